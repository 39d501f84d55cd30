// Closed stores that are not as they were: each file removed, cut, flipped, or replaced by its copy of an
// earlier close. Opening and verifying say so, and name the file; nothing of it reads as a store with less in
// it.
#include "meta/store/closing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/index/shard_check.h"
#include "meta/store/roster.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

using testing::HasSubstr;
using Files = std::map<std::string, std::string>;  // by name

Files files_of(io::Device& device) {
  Files files;
  const std::vector<std::string> names = *device.list("store");
  for (const std::string& name : names) {
    if (name.ends_with(".claims")) continue;  // a folder, which nothing needs
    files[name] = *io::read_file(device, "store/" + name, kGiB);
  }
  return files;
}

void put_files(io::Device* device, const Files& files) {
  ASSERT_TRUE(device->make_directory("store").ok());
  for (const auto& [name, bytes] : files) {
    const auto file = device->open("store/" + name, io::OpenMode::kCreate);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->pwrite(0, bytes).ok() && (*file)->sync().ok());
  }
}

void put_file(io::Device* device, const std::string& path, Bytes bytes) {
  const auto file = device->open(path, io::OpenMode::kCreate);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->pwrite(0, bytes).ok() && (*file)->sync().ok());
}

constexpr int kNames = 6;

// One job's work: extents and runs at both servers; `drain`: sorted files and snapshots too.
void work(io::Device& device, uint64_t round, bool drain) {
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    for (int i = rank.job.rank(); i < kNames; i += 2) {
      auto file = rank.client->open(fmt::format("f{}", i), Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      std::vector<Extent> segments;
      for (uint64_t at = 0; at < 40; ++at)
        segments.push_back({at * at * 977 + round * 100'000, 300, {static_cast<LogId>(round), at * 1000}});
      ASSERT_TRUE(rank.client->put(&*file, segments).ok());
      ASSERT_TRUE(rank.client->close(&*file, 1).ok());
    }
    barrier(rank);
    if (drain) {
      rank.store.with_servers([](ServerCore& core) { ASSERT_TRUE(core.shard().drain().ok()); });
    }
  });
}

// What a later job of one rank says: all attributes and extents.
struct Opened {
  Status status;
  std::string content;
};

Opened open_store(io::Device& device) {
  Opened opened;
  const auto job = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
  auto store = Store::open(*job, device, "store", small_ranges());
  opened.status = store.status();
  if (store.ok()) {
    auto client = (*store)->client();
    for (int i = 0; i < kNames && opened.status.ok(); ++i) {
      const auto file = client->open(fmt::format("f{}", i), 0, 0, 0);
      opened.status = file.status();
      if (!file.ok()) break;
      opened.content += fmt::format("\n{}", file->attributes.size);
      for (uint64_t at = 0; at < kOffsetEnd && opened.status.ok();) {
        std::vector<Extent> some;
        opened.status = client->scan(*file, at, 1000, &some, &at);
        for (const Extent& each : some)
          opened.content += fmt::format(" {}+{}@{}", each.offset, each.length, each.place.address);
      }
    }
    client.reset();
    static_cast<void>((*store)->close());
  }
  static_cast<void>(job->close());
  return opened;
}

// As `swale verify` does.
std::vector<Status> verify(io::Device& device) {
  const auto manifest = read_manifest(device, "store");
  if (!manifest.ok()) return {manifest.status()};
  std::vector<Status> problems;
  const auto names = device.list("store");
  for (uint32_t server = 0; server < manifest->servers; ++server) {
    const auto here = has_server(device, "store", *names, *manifest, server);
    if (!here.ok()) return {here.status()};
    if (!*here) return {absent_server(*manifest, server, "store", {})};
    if (manifest->closed) problems = check_closing(device, "store", *manifest, server);
    const auto found = verify_shard(device, "store", server);
    if (!found.ok()) problems.push_back(found.status());
    if (found.ok()) problems.insert(problems.end(), found->problems.begin(), found->problems.end());
    if (!problems.empty()) return problems;
  }
  return problems;
}

struct Damage {
  std::string what;
  std::string file;
  Files files;
};

std::vector<Damage> damages(const Files& closed, const Files& earlier) {
  std::vector<Damage> all;
  for (const auto& [name, bytes] : closed) {
    const auto add = [&, &name = name](std::string what, const std::optional<std::string>& now) {
      Files files = closed;
      now ? static_cast<void>(files[name] = *now) : static_cast<void>(files.erase(name));
      all.push_back({std::move(what), name, std::move(files)});
    };
    const size_t last = bytes.size() - 1;
    add("removed", std::nullopt);
    add("cut to nothing", "");
    if (bytes.size() > 32) add("cut to its head", bytes.substr(0, 32));
    add("its last byte cut", bytes.substr(0, last));
    // An earlier job may append to its log for ever (AnOlderJobThatWakesAfterTheCloseDoesNoHarm).
    if (name.find(".j0001.log-") == std::string::npos) add("a byte more", bytes + '\0');
    for (size_t at = 0; at < bytes.size(); at += std::max<size_t>(1, bytes.size() / 12)) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
      add(fmt::format("byte {} flipped", at), flipped);
    }
    std::string flipped = bytes;
    flipped[last] = static_cast<char>(flipped[last] ^ 1);
    add("its last byte flipped", flipped);
    const auto old = earlier.find(name);
    if (old != earlier.end() && old->second != bytes) add("its copy of an earlier close", old->second);
  }
  return all;
}

void expect_damage(const Damage& damage, const std::string& content, bool in_a_block) {
  const std::string where = damage.file + ", " + damage.what;
  io::MemoryDevice device;
  put_files(&device, damage.files);
  const std::vector<Status> problems = verify(device);
  const Files before = files_of(device);
  const Opened opened = open_store(device);
  // A flipped byte in a page of a sorted file is found when the page is read; behind its block it says
  // nothing.
  if (in_a_block && opened.status.ok()) {
    EXPECT_EQ(opened.content, content) << where;
    return;
  }
  ASSERT_FALSE(problems.empty()) << where;
  ASSERT_FALSE(opened.status.ok()) << where;
  EXPECT_THAT(std::string(opened.status.message()), HasSubstr("store/")) << where;
  if (in_a_block) return;
  EXPECT_THAT(std::string(problems.front().message()), HasSubstr(damage.file)) << where;
  EXPECT_TRUE(files_of(device) == before) << where << ": a refused opening has changed something";
}

// Two closes, the second after a job that has added to both servers.
TEST(Closing, WhatIsNotAsItWasClosedIsDamage) {
  size_t count = 0;
  for (const bool drain : {false, true}) {
    io::MemoryDevice device;
    work(device, 1, drain);
    const Files earlier = files_of(device);
    work(device, 2, drain);
    const Files closed = files_of(device);
    EXPECT_GE(closed.size(), 9u);  // two servers: claim, manifest, log or more, closing; and swale.json
    io::MemoryDevice whole;
    put_files(&whole, closed);
    EXPECT_TRUE(verify(whole).empty()) << verify(whole).front().to_string();
    const Opened opened = open_store(whole);
    ASSERT_TRUE(opened.status.ok()) << opened.status.to_string();
    for (const Damage& damage : damages(closed, earlier)) {
      const bool sorted = damage.file.find(".sorted-") != std::string::npos;
      expect_damage(damage, opened.content, sorted && damage.what.find("flipped") != std::string::npos);
      ++count;
    }
    // All files of one server, and all of them as of the earlier close.
    for (const std::string& server : {std::string("00000"), std::string("00001")}) {
      Damage gone{"all removed", "closing-" + server, {}}, old{"all older", "closing-" + server, {}};
      const auto is_of = [&](const std::string& name) {
        return name.starts_with("shard-0" + server) || name.starts_with("closing-" + server);
      };
      for (const auto& each : closed) {
        if (!is_of(each.first)) gone.files.insert(each), old.files.insert(each);
      }
      for (const auto& each : earlier) {
        if (is_of(each.first)) old.files.insert(each);
      }
      for (const Damage& damage : {gone, old}) expect_damage(damage, opened.content, false);
      count += 2;
    }
  }
  std::printf("%zu damages\n", count);
  EXPECT_GT(count, 300u);
}

// A store that was closed, opened and left: recovered from its logs, as before.
TEST(Closing, ACrashAfterAnOpeningIsNoDamage) {
  io::MemoryDevice device;
  work(device, 1, false);
  {
    const auto job = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
    auto store = Store::open(*job, device, "store", small_ranges());
    ASSERT_TRUE(store.ok());
    auto client = (*store)->client();
    auto file = client->open("f0", 0, 0, 0);
    const Extent more{7, 5, {9, 9}};
    ASSERT_TRUE(file.ok() && client->put(&*file, std::span(&more, 1)).ok());
    client.reset();
    ASSERT_TRUE(device.remove("store/swale.lock").ok());
  }  // without a close
  EXPECT_FALSE(read_manifest(device, "store")->closed);
  EXPECT_EQ(read_manifest(device, "store")->generation, 2u);
  EXPECT_TRUE(verify(device).empty());
  const Opened opened = open_store(device);
  EXPECT_TRUE(opened.status.ok()) << opened.status.to_string();
  EXPECT_THAT(opened.content, HasSubstr("7+5@9"));
  EXPECT_TRUE(read_manifest(device, "store")->closed);
}

// A job left a log that its successor's manifest names; the successor closed the store. The first job wakes,
// appends to that log, and makes another file: both were never acknowledged, and nobody reads them.
TEST(Closing, AnOlderJobThatWakesAfterTheCloseDoesNoHarm) {
  io::MemoryDevice device;
  work(device, 1, false);
  Files asleep;
  {
    const auto job = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
    auto store = Store::open(*job, device, "store", small_ranges());
    ASSERT_TRUE(store.ok());
    auto client = (*store)->client();
    auto file = client->open("f0", 0, 0, 0);
    const Extent more{7, 5, {9, 9}};
    ASSERT_TRUE(file.ok() && client->put(&*file, std::span(&more, 1)).ok());
    client.reset();
    asleep = files_of(device);
    ASSERT_TRUE(device.remove("store/swale.lock").ok());
  }                                                         // without a close
  const std::string expected = open_store(device).content;  // the successor, which closes it
  ASSERT_TRUE(read_manifest(device, "store")->closed);
  size_t logs = 0;
  for (const auto& [name, bytes] : asleep) {
    if (name.find(".j0002.log-") == std::string::npos || !*device.exists("store/" + name)) continue;
    ++logs;
    const auto log = device.open("store/" + name, io::OpenMode::kReadWrite);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->pwrite(bytes.size(), "a late record").ok());
  }
  ASSERT_GT(logs, 0u);
  put_file(&device, "store/shard-000000.j0002.snapshot-000009", "a late file");
  EXPECT_TRUE(verify(device).empty());
  const Opened opened = open_store(device);
  EXPECT_TRUE(opened.status.ok()) << opened.status.to_string();
  EXPECT_EQ(opened.content, expected);
}

// Its manifest of before the close says that the store is open: the closings know better.
TEST(Closing, AnOlderManifestIsNoticed) {
  io::MemoryDevice device;
  std::string early;
  run_ranks(1, device, small_ranges(),
            [&](RankOf&) { early = *io::read_file(device, "store/swale.json", kMiB); });
  EXPECT_TRUE(open_store(device).status.code() != Code::kOk);  // no files f0...
  ASSERT_TRUE(io::replace_file(device, "store/swale.json", early).ok());
  const Opened opened = open_store(device);
  EXPECT_EQ(opened.status.code(), Code::kCorruption) << opened.status.to_string();
  EXPECT_THAT(std::string(opened.status.message()), HasSubstr("older copy"));
}

// Without swale.json a directory that was used is not a new store.
TEST(Closing, NoSecondStoreGrowsWhereTheManifestIsMissing) {
  io::MemoryDevice device;
  work(device, 1, false);
  ASSERT_TRUE(device.remove("store/swale.json").ok());
  EXPECT_EQ(open_store(device).status.code(), Code::kCorruption);
  ASSERT_TRUE(device.remove("store/closing-00000.json").ok());
  ASSERT_TRUE(device.remove("store/closing-00001.json").ok());
  EXPECT_EQ(open_store(device).status.code(), Code::kCorruption);
}

// A close that finds no space leaves a store that was not closed, and says so.
TEST(Closing, ACloseWithoutSpaceLeavesAStoreThatIsRecovered) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  work(device, 1, false);
  const std::string expected = open_store(device).content;
  for (const char* const part : {"closing-00001", "swale.json"}) {
    {
      const auto job = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
      auto store = Store::open(*job, device, "store", small_ranges());
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      find_no_space(&device, part);
      EXPECT_EQ((*store)->close().code(), Code::kNoSpace);
      device.clear();
      static_cast<void>(job->close());
    }
    EXPECT_FALSE(read_manifest(device, "store")->closed);
    const Opened opened = open_store(device);
    EXPECT_TRUE(opened.status.ok()) << opened.status.to_string();
    EXPECT_EQ(opened.content, expected);
  }
}

const std::filesystem::path kGoldenFolder = SWALE_SOURCE_DIR "/tests/golden/meta-closing-v1";

// The documents as this build writes them are those in tests/golden, and those are read for ever.
TEST(Closing, GoldenFiles) {
  Closing closing{3, 7, 5, 12, 345, {}};
  closing.parts = {{"shard-000003.j0007.attributes-000002", 321, 0x1234abcd},
                   {"shard-000003.j0007.log-000001", 4096, 0xfedcba98}};
  Manifest manifest{1, 64 << 20, 0x77, 5, true, {{0x99, "node17", "/local/store", 12}}, {{0x89abcdef}}};
  for (const auto& [name, text] : {std::pair(closing_name(3), encode_closing(closing)),
                                   std::pair(server_file_name(3), encode_server_file({0x77, 0x99, 3})),
                                   std::pair(std::string(kManifestName), encode_manifest(manifest))}) {
    if (std::getenv("SWALE_REGENERATE_GOLDEN") != nullptr) {
      std::filesystem::create_directories(kGoldenFolder);
      std::ofstream(kGoldenFolder / name, std::ios::binary) << text;
    }
    std::ifstream in(kGoldenFolder / name, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text) << name;
  }
  const auto read = decode_closing(encode_closing(closing), "closing");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(encode_closing(*read), encode_closing(closing));
  const auto again = decode_manifest(encode_manifest(manifest), "manifest");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(encode_manifest(*again), encode_manifest(manifest));
  const ServerFile server{0x77, 0x99, 3};
  EXPECT_EQ(*decode_server_file(encode_server_file(server), "server"), server);
  // Of a build whose servers had two logs.
  const auto fourth = decode_manifest(
      "{\"format\":\"swale-meta\",\"version\":4,\"incompatible_features\":[],\n\"servers\":4,\n"
      "\"range_bytes\":\"0000000004000000\",\n\"crc32c\":\"a626e9c5\"}\n",
      "manifest");
  EXPECT_EQ(fourth.status().code(), Code::kUnsupported);
  EXPECT_THAT(fourth.status().message(), testing::HasSubstr("is of format version 4, this build reads 5"));
}

}  // namespace
}  // namespace swale::meta::store_test
