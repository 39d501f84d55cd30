#include "tier/store/testing/store_folder.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <new>
#include <thread>

#include "base/rng.h"
#include "io/posix_device.h"

namespace swale::tier::store_test {
namespace {

uint64_t scale() {
  const char* factor = std::getenv("SWALE_TIER_SEEDS");
  return factor ? std::strtoull(factor, nullptr, 10) : 1;
}

class StoreTest : public ::testing::Test, protected StoreFolder {
 protected:
  StoreTest() : StoreFolder("store") {}

  StoreOptions options(Policy policy = Policy::kSsdBlocking,
                       Durability durability = Durability::kPageCache) const {
    StoreOptions options = small_options();
    options.engine.policy = policy;
    options.engine.durability = durability;
    return options;
  }
  std::unique_ptr<Store> open(const StoreOptions& options) {
    auto store = Store::open(device_, options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::string on_backing(const std::string& path) const {
    std::ifstream file(backing_ + "/" + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string read_all(Store& store, Store::Handle file) {
    std::string bytes(*store.size(file), '\0');
    const auto got = store.read(file, 0, bytes);
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    return bytes;
  }

  io::PosixDevice device_;
};

std::string random_bytes(Rng* rng, size_t length) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng->next());
  return bytes;
}

TEST_F(StoreTest, WhatIsWrittenIsReadKeptAndDrained) {
  Rng rng(1);
  const std::string text = random_bytes(&rng, 300'000);
  {
    auto store = open(options());
    const auto file = *store->open_file("data", io::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store->write(file, 0, text).ok());
    EXPECT_EQ(read_all(*store, file), text);
    ASSERT_TRUE(store->close(Store::AtClose::kKeep).ok());
  }
  {
    auto store = open(options());
    EXPECT_GT(store->recovery().dirty_bytes, 0u);
    const auto file = *store->open_file("data", io::OpenMode::kRead);
    EXPECT_EQ(read_all(*store, file), text);
    ASSERT_TRUE(store->close(Store::AtClose::kDrain).ok());
  }
  EXPECT_EQ(on_backing("data"), text);
}

// What a write leaves to its thread is done, or told to the storage thread, also if the answer's code throws.
TEST_F(StoreTest, AnAnswerThatThrowsLeavesNothingUndone) {
  auto store = open(options(Policy::kBacking));
  const auto file = *store->open_file("a", io::OpenMode::kOpenOrCreate);
  const auto fill = [](MutableBytes out) -> Status {
    std::memset(out.data(), 'x', out.size());
    return {};
  };
  // Several parts, far from the one that is written before the answer.
  const auto write = [&](const Store::Answered& answered) {
    store->write(file, 0, 5 * options().slot_bytes, fill, answered);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the storage thread rests
  EXPECT_THROW(write([](const Status&) { throw std::bad_alloc(); }), std::bad_alloc);
  auto drained = std::async(std::launch::async, [&] { return store->drain(); });
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "waits for ever";
  write([](const Status& status) { EXPECT_TRUE(status.ok()); });  // so that it ends in any case
  EXPECT_TRUE(drained.get().ok());
}

TEST_F(StoreTest, TwoStoresOnOneDirectoryAreRefused) {
  auto first = open(options());
  EXPECT_EQ(Store::open(device_, options()).status().code(), Code::kBusy);
  StoreOptions other = options();
  other.ssd_directory = root_ + "/other";
  EXPECT_EQ(Store::open(device_, other).status().code(), Code::kBusy) << "of one backing directory";
}

// Programs see every file of the backing directory: one that empties it would remove the log.
TEST_F(StoreTest, TheLogLiesOutsideOfTheBackingDirectory) {
  std::filesystem::create_directory_symlink(backing_, root_ + "/link");
  for (const char* inside : {"/backing", "/backing/ssd", "/backing/a/../ssd", "/link/ssd"}) {
    StoreOptions wrong = options();
    wrong.ssd_directory = root_ + inside;
    const Status refused = Store::open(device_, wrong).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << inside << refused.to_string();
    EXPECT_NE(refused.message().find("outside"), std::string::npos) << refused.to_string();
  }
  EXPECT_TRUE(std::filesystem::is_empty(backing_));
  StoreOptions beside = options();
  beside.ssd_directory = backing_ + "-ssd";
  open(beside);
}

TEST_F(StoreTest, AMissingLogIsToldAndNeverReplacedSilently) {
  {
    auto store = open(options());
    const auto file = *store->open_file("data", io::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store->write(file, 0, "abc").ok());
    ASSERT_TRUE(store->close(Store::AtClose::kKeep).ok());
  }
  std::filesystem::rename(ssd(), root_ + "/away");
  const auto without = Store::open(device_, options());
  EXPECT_EQ(without.status().code(), Code::kNotFound);
  std::filesystem::remove_all(ssd());
  std::filesystem::rename(root_ + "/away", ssd());
  auto store = open(options());
  EXPECT_EQ(read_all(*store, *store->open_file("data", io::OpenMode::kRead)), "abc");
}

// A model of files as strings, and random calls, in all policies and modes, with closings and openings
// between.
TEST_F(StoreTest, RandomCallsGiveWhatAPlainDirectoryWould) {
  constexpr Policy kPolicies[] = {Policy::kBacking, Policy::kSsdBlocking, Policy::kSsdOverflowing,
                                  Policy::kSwale};
  constexpr Durability kModes[] = {Durability::kPageCache, Durability::kPageCache, Durability::kGroupCommit};
  std::map<std::string, std::string> model;
  Rng rng(42);
  uint64_t calls = 0;
  for (uint64_t life = 0; life < 8 * scale(); ++life) {
    StoreOptions settings = options(kPolicies[rng.below(4)], kModes[rng.below(3)]);
    settings.engine.queue_slots = 4;
    settings.engine.swale.byte_budget_random = 0;
    auto store = open(settings);
    ASSERT_NE(store, nullptr);
    for (int i = 0; i < (settings.engine.durability == Durability::kPageCache ? 500 : 60); ++i, ++calls) {
      const std::string name = std::string("f") + static_cast<char>('0' + rng.below(4));
      const uint64_t dice = rng.below(100);
      if (dice < 55) {
        const auto file = store->open_file(name, io::OpenMode::kOpenOrCreate);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        const uint64_t offset = rng.below(200'000);
        const std::string bytes = random_bytes(&rng, 1 + rng.below(40'000));
        ASSERT_TRUE(store->write(*file, offset, bytes).ok());
        std::string& content = model[name];
        if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
        content.replace(offset, bytes.size(), bytes);
        store->close_file(*file);
      } else if (model.contains(name)) {
        std::string& content = model[name];
        const auto file = store->open_file(name, io::OpenMode::kReadWrite);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        if (dice < 80) {
          const uint64_t offset = rng.below(content.size() + 1);
          std::string out(1 + rng.below(60'000), '\0');
          const auto got = store->read(*file, offset, out);
          ASSERT_TRUE(got.ok()) << got.status().to_string();
          out.resize(*got);
          ASSERT_EQ(out == content.substr(offset, out.size()), true) << "call " << calls;
        } else if (dice < 87) {
          const uint64_t size = rng.below(250'000);
          ASSERT_TRUE(store->truncate(*file, size).ok());
          content.resize(size);
        } else if (dice < 90) {
          ASSERT_TRUE(store->remove(name).ok());
          model.erase(name);
        } else if (dice < 94) {
          const std::string to = std::string("f") + static_cast<char>('0' + rng.below(4));
          ASSERT_TRUE(store->rename(name, to).ok());
          if (to != name) {
            model[to] = content;
            model.erase(name);
          }
        } else if (dice < 98) {
          ASSERT_TRUE(store->sync(*file).ok());
        } else {
          ASSERT_TRUE(store->drain().ok());
        }
        if (rng.chance(7, 8)) store->close_file(*file);  // some stay open, also of files that are gone
      }
    }
    const bool drains = rng.chance(1, 2);
    for (const auto& [name, content] : model) {
      const auto file = store->open_file(name, io::OpenMode::kRead);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      ASSERT_EQ(read_all(*store, *file) == content, true) << name;
    }
    ASSERT_TRUE(store->close(drains ? Store::AtClose::kDrain : Store::AtClose::kKeep).ok());
    if (!drains) continue;
    for (const auto& [name, content] : model) ASSERT_EQ(on_backing(name) == content, true) << name;
  }
  std::printf("%lu calls\n", calls);
}

TEST_F(StoreTest, ManyThreadsWriteTheirOwnRangesOfOneFile) {
  auto store = open(options(Policy::kSwale));
  const auto file = *store->open_file("shared", io::OpenMode::kOpenOrCreate);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::string bytes(10'000, static_cast<char>('a' + t));
      for (uint64_t i = 0; i < 100; ++i) {
        const uint64_t offset = (i * 4 + static_cast<uint64_t>(t)) * bytes.size();
        std::string back(bytes.size(), '\0');
        if (!store->write(file, offset, bytes).ok() || !store->read(file, offset, back).ok() || back != bytes)
          ++failures;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  ASSERT_TRUE(store->close(Store::AtClose::kDrain).ok());
  const std::string content = on_backing("shared");
  ASSERT_EQ(content.size(), 4'000'000u);
  for (size_t i = 0; i < content.size(); ++i)
    ASSERT_EQ(content[i], static_cast<char>('a' + i / 10'000 % 4)) << i;
}

// What a child has been promised, in memory that outlives it. Block b of the file holds the number of its
// last write.
struct Promises {
  static constexpr uint64_t kBlocks = 64;
  std::atomic<uint64_t> begun[kBlocks];
  std::atomic<uint64_t> acknowledged[kBlocks];
  std::atomic<uint64_t> writes;
};

constexpr uint64_t kBlockBytes = 6000;

std::string block_of(uint64_t block, uint64_t number) {
  std::string bytes(kBlockBytes, '\0');
  Rng rng(block * 1'000'003 + number);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

[[noreturn]] void write_until_killed(const StoreOptions& options, Promises* promises, uint64_t seed) {
  io::PosixDevice device;
  auto store = Store::open(device, options);
  if (!store.ok()) ::_exit(3);
  const auto file = (*store)->open_file("data", io::OpenMode::kOpenOrCreate);
  if (!file.ok()) ::_exit(4);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      Rng rng(seed + t);
      for (;;) {
        const uint64_t block = rng.below(Promises::kBlocks / 2) * 2 + t;
        const uint64_t number = promises->begun[block].fetch_add(1) + 1;
        if (!(*store)->write(*file, block * kBlockBytes, block_of(block, number)).ok()) ::_exit(5);
        promises->acknowledged[block] = number;
        ++promises->writes;
      }
    });
  for (;;) ::pause();
}

struct Kills {
  uint64_t kills = 0;
  uint64_t records = 0;
  uint64_t queued = 0;
  std::string wrong;
};

// Children open the store, write and are killed, one after the other; after each one all that it was promised
// must be there. A child is killed after a number of writes, so that the test needs no times.
Kills kill_writers(io::Device& device, const std::vector<StoreOptions>& settings, uint64_t kills,
                   Promises* promises) {
  Kills done;
  Rng rng(7);
  for (; done.kills < kills && done.wrong.empty(); ++done.kills) {
    const StoreOptions& options = settings[done.kills % settings.size()];
    const uint64_t seed = rng.next();
    const uint64_t target = promises->writes + 1 + rng.below(300);
    for (uint64_t block = 0; block < Promises::kBlocks; ++block) {
      promises->begun[block] = done.kills * 1'000'000;
      promises->acknowledged[block] = 0;
    }
    const pid_t child = ::fork();
    if (child == 0) write_until_killed(options, promises, seed);
    int state = 0;
    while (promises->writes < target && ::waitpid(child, &state, WNOHANG) == 0) ::usleep(200);
    if (state != 0) return {.wrong = fmt::format("the child ended with {}", WEXITSTATUS(state))};
    ::kill(child, SIGKILL);
    ::waitpid(child, &state, 0);

    auto store = Store::open(device, options);
    if (!store.ok()) return {.wrong = store.status().to_string()};
    done.queued += (*store)->recovery().queued;
    done.records += (*store)->recovery().records;
    const auto file = (*store)->open_file("data", io::OpenMode::kOpenOrCreate);
    if (!file.ok()) return {.wrong = file.status().to_string()};
    for (uint64_t block = 0; block < Promises::kBlocks; ++block) {
      const uint64_t acknowledged = promises->acknowledged[block];
      // A write that was under way may be there, not there, or there in part; at most one a thread.
      if (acknowledged == 0 || promises->begun[block] > acknowledged) continue;
      std::string found(kBlockBytes, '\0');
      const auto got = (*store)->read(*file, block * kBlockBytes, found);
      if (!got.ok()) return {.wrong = got.status().to_string()};
      if (found != block_of(block, acknowledged))
        done.wrong = fmt::format("kill {}, block {}: not what was acknowledged", done.kills, block);
    }
    const Status closed = (*store)->close(rng.chance(1, 2) ? Store::AtClose::kKeep : Store::AtClose::kDrain);
    if (!closed.ok()) return {.wrong = closed.to_string()};
  }
  return done;
}

Promises* shared_promises() {
  void* const memory =
      ::mmap(nullptr, sizeof(Promises), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Promises*>(memory);
}

TEST_F(StoreTest, SigkillAtAnyTimeLosesNothingAcknowledged) {
  Promises* const promises = shared_promises();
  ASSERT_NE(promises, nullptr);
  std::vector<StoreOptions> settings;
  for (const Policy policy :
       {Policy::kBacking, Policy::kSsdBlocking, Policy::kSsdOverflowing, Policy::kSwale}) {
    settings.push_back(options(policy));
    settings.back().engine.queue_slots = 2;
    settings.back().engine.swale.byte_budget_random = 0;
  }
  const Kills kills = kill_writers(device_, settings, 12 * scale(), promises);
  EXPECT_EQ(kills.wrong, "");
  std::printf("%lu kills, %lu writes; recovered %lu records, %lu of them queued\n", kills.kills,
              promises->writes.load(), kills.records, kills.queued);
  ::munmap(promises, sizeof(Promises));
}

TEST_F(StoreTest, CanaryAKillLosesWhatTheQueueHadIfItWasNotSealed) {
  Promises* const promises = shared_promises();
  ASSERT_NE(promises, nullptr);
  StoreOptions unsealed = options(Policy::kBacking);
  unsealed.canary_unsealed_queue = true;
  EXPECT_NE(kill_writers(device_, {unsealed}, 100, promises).wrong, "");
  ::munmap(promises, sizeof(Promises));
}

}  // namespace
}  // namespace swale::tier::store_test
