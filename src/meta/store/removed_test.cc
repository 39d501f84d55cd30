// Files that are gone: their handles find nothing, whatever has their name by now, and what they took is
// given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

constexpr Extent kNear{100, 50, {1, 0}}, kFar{4096 * 5, 100, {1, 50}};  // of two servers

// All that a handle can ask for.
void expect_gone(RankOf& rank, File file) {
  const auto code = [](const Status& status) {
    EXPECT_NE(status.message(), "");
    return status.code();
  };
  for (const Extent& each : {kNear, kFar}) {
    EXPECT_EQ(code(rank.client->put(&file, std::span(&each, 1))), Code::kNotFound);
    Found found;
    const ByteRange range{each.offset, each.length};
    EXPECT_EQ(code(rank.client->get(file, std::span(&range, 1), &found)), Code::kNotFound);
    FoundRuns runs;
    const Run query = run_of(each);
    EXPECT_EQ(code(rank.client->get_runs(file, std::span(&query, 1), &runs)), Code::kNotFound);
  }
  std::vector<Extent> extents;
  uint64_t next = 0;
  EXPECT_EQ(code(rank.client->scan(file, 0, 100, &extents, &next)), Code::kNotFound);
  EXPECT_EQ(code(rank.client->truncate(&file, 10, 0)), Code::kNotFound);
  EXPECT_EQ(code(rank.client->seal(&file)), Code::kNotFound);
  EXPECT_EQ(code(rank.client->close(&file, 0).status()), Code::kNotFound);
}

void expect_empty(RankOf& rank, const std::string& name) {
  const auto file = rank.client->open(name, 0, 0, 0);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->attributes.size, 0u);
  EXPECT_FALSE(file->attributes.sealed);
  std::vector<Extent> extents;
  uint64_t next = 0;
  ASSERT_TRUE(rank.client->scan(*file, 0, 100, &extents, &next).ok());
  EXPECT_TRUE(extents.empty());
}

// Removed by one rank, and made again by another, while all have it open; then by jobs with other ranks.
void remove_under_handles(bool sealed) {
  io::MemoryDevice device;
  std::atomic<uint64_t> first_low{0};
  run_ranks(3, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    const Extent both[] = {kNear, kFar};
    ASSERT_TRUE(rank.client->put(&*file, both).ok());
    barrier(rank);
    if (sealed) {
      ASSERT_TRUE(rank.client->seal(&*file).ok());
      ASSERT_NE(file->table, nullptr);  // gets ask nobody
    }
    first_low = file->attributes.file.low;
    barrier(rank);
    if (rank.job.rank() == 1) {
      ASSERT_TRUE(rank.client->remove("f").ok());
    }
    barrier(rank);
    expect_gone(rank, *file);
    barrier(rank);
    if (rank.job.rank() == 2) {
      const auto again = rank.client->open("f", Client::kCreate | Client::kExclusive, 0, 0);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_NE(again->attributes.file, file->attributes.file);
    }
    barrier(rank);
    expect_gone(rank, *file);
    barrier(rank);
    expect_empty(rank, "f");
    barrier(rank);
  });
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    expect_empty(rank, "f");
    File old;  // as a handle of the last job would be
    old.attributes.name = "f";
    old.attributes.file = rank.client->open("f", 0, 0, 0)->attributes.file;
    old.attributes.file.low = first_low;
    expect_gone(rank, old);
    barrier(rank);
  });
}

TEST(Removed, HandlesOfAllRanksFindNothingAlsoWhenTheNameIsAnotherFiles) { remove_under_handles(false); }
TEST(Removed, HandlesThatAskNobodyFindNothing) { remove_under_handles(true); }

// One server does not hear of it: the name is nobody's until the removal is done, by the next job at the
// latest.
TEST(Removed, ARemovalThatFailsHalfWayIsFinishedByTheNextJob) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  const Partition partition(2, small_ranges().range_bytes);
  std::string name;  // of a file whose root is server 0
  for (int i = 0; name.empty() || partition.root_of(name) != 0; ++i) name = fmt::format("f{}", i);
  FileId id;
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    if (rank.job.rank() == 0) {
      auto file = rank.client->open(name, Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      const Extent both[] = {kNear, kFar};
      ASSERT_TRUE(rank.client->put(&*file, both).ok());
      id = file->attributes.file;
      find_no_space(&device, "shard-000001");
      EXPECT_EQ(rank.client->remove(name).code(), Code::kNoSpace);
      device.clear();
      EXPECT_EQ(rank.client->open(name, Client::kCreate, 0, 0).status().code(), Code::kUnavailable);
    }
    barrier(rank);
  });
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    EXPECT_EQ(rank.client->stat(name).status().code(), Code::kNotFound);
    File old;
    old.attributes.name = name;
    old.attributes.file = id;
    expect_gone(rank, old);
    barrier(rank);
  });
}

uint64_t bytes_on(io::Device& device, const std::string& directory) {
  uint64_t bytes = 0;
  const auto names = device.list(directory);
  for (const std::string& name : *names) {
    if (name.ends_with(".claims")) continue;  // a folder of empty files
    bytes += io::read_file(device, directory + "/" + name, kGiB)->size();
  }
  return bytes;
}

// Of 80,000 files 17.9 MB stayed on disk and 11 MB in memory. With every eighth alive: as much as these need.
void make_and_remove(uint64_t files, uint64_t live_every) {
  constexpr uint64_t kWarm = 4'000;
  io::MemoryDevice device;
  StoreOptions options = small_ranges();
  options.shard.write_buffer_entries = 1 << 14;
  std::set<FileId> ids;
  uint64_t alive = 0;
  int64_t memory_growth = INT64_MAX;
  run_ranks(1, device, options, [&](RankOf& rank) {
    const auto in_use = [&] { return static_cast<int64_t>(::mallinfo2().uordblks); };
    int64_t warm = 0;
    std::deque<std::string> names;
    for (uint64_t i = 0; i < files; ++i) {
      if (i == kWarm) warm = in_use();
      // Up to 4 MiB of records wait for the next checkpoint, in memory as in the log, on a disk of memory: so
      // the least of many looks counts.
      if (i > files / 2 && i % 64 == 0) memory_growth = std::min(memory_growth, in_use() - warm);
      const std::string name = fmt::format("a file of some length, number {}", i);
      auto file = rank.client->open(name, Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      if (i % 4 != 0) {
        ASSERT_TRUE(rank.client->put(&*file, std::span(&kNear, 1)).ok());
      }
      if (live_every != 0 && i % live_every == 0) {
        ++alive;
        continue;
      }
      names.push_back(name);
      if (names.size() < 64) continue;
      ASSERT_TRUE(rank.client->remove(names.front()).ok());
      names.pop_front();
    }
    for (const std::string& name : names) ASSERT_TRUE(rank.client->remove(name).ok());
  });
  const uint64_t on_disk = bytes_on(device, "store");
  fmt::print("{} of {} files alive: {} bytes on disk, {} more in memory than after {} files\n", alive, files,
             on_disk, memory_growth, kWarm);
  EXPECT_LT(on_disk, (1u << 20) + alive * 400);
  EXPECT_LT(memory_growth, (4 << 20) + static_cast<int64_t>(alive) * 2000);
  run_ranks(1, device, options, [&](RankOf& rank) {
    rank.store.with_servers([&](ServerCore& core) {
      EXPECT_EQ(core.attributes().files(), alive);
      EXPECT_LE(core.shard().state().removed_ranges, alive + 1);
      EXPECT_LE(core.shard().state().files, alive);
    });
  });
}

TEST(Removed, EightyThousandFilesGiveBackWhatTheyTook) { make_and_remove(80'000, 0); }
TEST(Removed, FilesAmongOthersThatLiveGiveBackWhatTheyTook) { make_and_remove(24'000, 8); }

}  // namespace
}  // namespace swale::meta::store_test
