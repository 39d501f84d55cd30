// Each engine under a load that fills its buffers: what the process holds at the peak, above what it held
// before the engine was opened, is at most what the engine has reserved of the process's memory. Every
// allocation counts. The canaries hold more than they have reserved, and must be found. What each engine's
// counters say of it is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_shares.h"
#include "base/rng.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "iond/iond.h"
#include "meta/store/store.h"
#include "net/meeting/bootstrap.h"
#include "tests/memory/counted_malloc.h"
#include "tier/store/store.h"

namespace swale::memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of the threads that an engine starts: their arenas, names and entries in the tables of libraries.
constexpr uint64_t kThreadsBytes = kMiB;

struct Peak {
  uint64_t held = 0;      // above the baseline
  uint64_t reserved = 0;  // by then

  bool within() const { return held <= reserved + kThreadsBytes; }
  std::string words() const {
    return fmt::format("held {:.1f} MiB at the peak, reserved {:.1f} MiB", static_cast<double>(held) / kMiB,
                       static_cast<double>(reserved) / kMiB);
  }
};

uint64_t reserved_now() { return MemoryShares::of_this_process().used(); }

class EngineMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::current_path() / "memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override {
    std::filesystem::remove_all(root_);
    EXPECT_EQ(reserved_now(), 0u);
  }

  // Runs the load once, which notes what is reserved while it is open.
  Peak measure(const std::function<void()>& load) {
    reserved_ = 0;
    start_here();
    load();
    const Peak peak{held_memory().peak_bytes - before_, reserved_};
    std::printf("             %s\n", peak.words().c_str());
    return peak;
  }
  // The baseline: what is held now is not the engine's.
  void start_here() { before_ = restart_peak(); }
  void note_reserved() { reserved_ = std::max(reserved_, reserved_now()); }

  // One rank alone, or ranks as threads of this process, each with the body.
  void run_job(int32_t size, uint64_t memory, const std::function<void(net::Job&)>& body) {
    net::JobOptions options;
    options.transport = "loopback";
    options.memory_bytes = memory;
    const auto group = std::make_shared<net::LocalGroup>(size);
    std::vector<std::thread> threads;
    for (net::Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto job =
            net::Job::open(size == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank), options);
        ASSERT_TRUE(job.ok()) << job.status().to_string();
        body(**job);
        EXPECT_TRUE((*job)->close().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::string path(std::string_view name) const { return fmt::format("{}/{}", root_, name); }

  void write_directory(uint64_t memory, uint64_t hoard);
  void use_store(uint64_t memory, uint64_t hoard);
  void use_tier(const MemoryLimit& memory, uint64_t hoard);
  void use_servers(uint64_t memory, uint64_t hoard);

  io::PosixDevice device_;
  std::string root_;
  uint64_t reserved_ = 0;
  uint64_t before_ = 0;
};

// ---- the massive directory

// Two epochs of more records than the memtables hold. `hoard`: bytes that nobody has reserved.
void EngineMemory::write_directory(uint64_t memory, uint64_t hoard) {
  run_job(1, 0, [&](net::Job& job) {
    const uint64_t rounds = 2;
    bool told = false;
    imd::WriterOptions options;
    options.memory_bytes = memory;
    start_here();
    auto writer = imd::Writer::open(job, device_, path("dir"), imd::Writer::Create::kExclusive, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const std::string hoarded(hoard, 'h');
    const std::string value(100, 'v');
    for (uint64_t epoch = 0; epoch < rounds; ++epoch) {
      for (uint64_t i = 0; i < 200'000; ++i)
        ASSERT_TRUE((*writer)->append(fmt::format("key{:012}", i * 7919 % 1'000'003), value).ok());
      ASSERT_TRUE((*writer)->epoch_end(static_cast<int64_t>(epoch), 0.5).ok());
    }
    note_reserved();
    for (const Metric& metric : (*writer)->metrics()) {
      if (metric.name != "memory.reserved") continue;
      EXPECT_EQ(metric.value, reserved_now());
      told = true;
    }
    EXPECT_TRUE(told);
    EXPECT_TRUE((*writer)->close().ok());
  });
}

TEST_F(EngineMemory, ADirectoryHoldsWhatItReserves) {
  const Peak peak = measure([&] { write_directory(16 * kMiB, 0); });
  EXPECT_EQ(peak.reserved, 16 * kMiB);
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, ADirectoryThatHoldsMoreIsFound) {
  EXPECT_FALSE(measure([&] { write_directory(16 * kMiB, 16 * kMiB); }).within());
}

// ---- the metadata store

// Irregular segments, so that nothing of them becomes a run.
std::vector<meta::Extent> irregular_segments(uint64_t seed, uint64_t count) {
  Rng rng(seed);
  std::vector<meta::Extent> segments(count);
  uint64_t offset = seed << 40;
  for (uint64_t i = 0; i < count; ++i) {
    segments[i] = {offset, 1 + rng.below(4096), {static_cast<meta::LogId>(seed), rng.next() >> 8}};
    offset += segments[i].length + rng.below(1000);
  }
  return segments;
}

// Large puts and gets by several clients at a time, and many names. The callers' arrays are made before.
void EngineMemory::use_store(uint64_t memory, uint64_t hoard) {
  constexpr uint64_t kClients = 2, kPuts = 3, kSegments = 128 * 1024;
  std::vector<std::vector<meta::Extent>> segments;
  std::vector<std::vector<meta::ByteRange>> ranges;
  for (uint64_t i = 0; i < kClients * kPuts; ++i) {
    segments.push_back(irregular_segments(1 + i, kSegments));
    ranges.emplace_back();
    for (const meta::Extent& each : segments.back()) ranges.back().push_back({each.offset, each.length});
  }
  run_job(1, memory, [&](net::Job& job) {
    start_here();
    meta::StoreOptions options;
    options.shard.sync_log = false;
    options.deadline = seconds(300);
    auto store = meta::Store::open(job, device_, path("store"), options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    const std::string hoarded(hoard, 'h');
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        const auto client = (*store)->client();
        for (uint64_t name = 0; name < 500; ++name)
          ASSERT_TRUE(client->open(fmt::format("/run/{}/{}", i, name), meta::Client::kCreate, 0644, 1).ok());
        auto file = client->open(fmt::format("/run/{}", i), meta::Client::kCreate, 0644, 1);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        for (uint64_t put = 0; put < kPuts; ++put) {
          const uint64_t which = i * kPuts + put;
          const Status done = client->put(&*file, segments[which]);
          ASSERT_TRUE(done.ok()) << done.to_string();
          meta::Found found;
          ASSERT_TRUE(client->get(*file, ranges[which], &found).ok());
          ASSERT_EQ(found.extents.size(), kSegments);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    note_reserved();
    const auto counters = (*store)->client()->stats();
    ASSERT_TRUE(counters.ok()) << counters.status().to_string();
    EXPECT_GT(counters->sum("memory.reserved"), 0u);
    EXPECT_LE(counters->sum("memory.reserved"), reserved_now());  // which has its requests and content, too
    EXPECT_TRUE((*store)->close().ok());
  });
}

// The answers of two callers, and what a call copies of its caller's arrays
// (docs/design/shared-resources.md).
constexpr uint64_t kCallersBytes =
    2 * 128 * 1024 * (sizeof(meta::Extent) + sizeof(size_t) + 3 * sizeof(meta::ByteRange) / 2);

TEST_F(EngineMemory, AMetadataStoreHoldsWhatItReserves) {
  Peak peak = measure([&] { use_store(0, 0); });
  peak.held -= std::min(peak.held, kCallersBytes);
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, AMetadataStoreWithASmallBudgetHoldsLess) {
  Peak peak = measure([&] { use_store(256 * kMiB, 0); });
  peak.held -= std::min(peak.held, kCallersBytes);
  EXPECT_LE(peak.reserved, 256 * kMiB);
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, AMetadataStoreThatHoldsMoreIsFound) {
  Peak peak = measure([&] { use_store(256 * kMiB, 256 * kMiB); });
  peak.held -= std::min(peak.held, kCallersBytes);
  EXPECT_FALSE(peak.within()) << peak.words();
}

// A budget that is too small is refused with one that is enough.
TEST_F(EngineMemory, AMetadataStoreSaysWhatWouldBeEnough) {
  uint64_t enough = 0;
  run_job(1, 8 * kMiB, [&](net::Job& job) {
    const auto refused = meta::Store::open(job, device_, path("store"), {});
    ASSERT_EQ(refused.status().code(), Code::kResourceExhausted) << refused.status().to_string();
    const std::string words(refused.status().message());
    EXPECT_THAT(words, AllOf(HasSubstr("job.memory"), HasSubstr("give at least "), HasSubstr(path("store"))));
    enough = std::strtoull(words.c_str() + words.find("give at least ") + 14, nullptr, 10);
  });
  run_job(1, enough, [&](net::Job& job) {
    const auto store = meta::Store::open(job, device_, path("store"), {});
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_TRUE((*store)->close().ok());
  });
}

// What is stored grows, within the user's limit. Beyond it new files are refused, and all others go on.
TEST_F(EngineMemory, AMetadataStoreRefusesFilesForWhichTheProcessHasNoMemory) {
  io::MemoryDevice device;  // nothing is counted here
  run_job(1, 8 * kMiB, [&](net::Job& job) {
    const auto refused = meta::Store::open(job, device, path("store"), {});
    const std::string words(refused.status().message());
    const uint64_t enough = std::strtoull(words.c_str() + words.find("give at least ") + 14, nullptr, 10);
    EXPECT_GT(enough, 0u);
    reserved_ = enough;
  });
  run_job(1, reserved_, [&](net::Job& job) {
    meta::StoreOptions options;
    options.shard.sync_log = false;
    auto store = meta::Store::open(job, device, path("store"), options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    auto client = (*store)->client();
    Status refused;
    uint64_t files = 0;
    for (; files < 10'000 && refused.ok(); ++files)
      refused = client->open(fmt::format("/run/{}", files), meta::Client::kCreate, 0644, 1).status();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("job.memory"), HasSubstr("give at least")));
    EXPECT_GT(files, 1'000u);
    EXPECT_LE(reserved_now(), reserved_);
    const auto known = client->open("/run/0", meta::Client::kCreate, 0644, 1);
    EXPECT_TRUE(known.ok()) << known.status().to_string();
    EXPECT_TRUE(client->stat("/run/1").ok());
    for (uint64_t i = 0; i < files - 1; ++i) ASSERT_TRUE(client->remove(fmt::format("/run/{}", i)).ok());
    EXPECT_TRUE(client->open("/run/again", meta::Client::kCreate, 0644, 1).ok());
    client.reset();
    EXPECT_TRUE((*store)->close().ok());
  });
}

// ---- the tiered store

tier::StoreOptions tier_options(const std::string& root) {
  tier::StoreOptions options;
  options.ssd_directory = root + "/ssd";
  options.backing_directory = root + "/backing";
  std::filesystem::create_directories(options.backing_directory);
  options.engine.policy = tier::Policy::kSsdOverflowing;
  options.engine.segment_count = 8;
  options.engine.segment_bytes = 16 * kMiB;
  options.queue_slots = 64;
  options.open_files_max = 4096;
  return options;
}

// Small writes in no order, to many files, so that the maps grow.
void write_tier(tier::Store& store, uint64_t seed) {
  Rng rng(seed);
  const std::string data(4096, 'd');
  std::vector<tier::Store::Handle> files;
  for (int i = 0; i < 50; ++i) {
    const auto file = store.open_file(fmt::format("file{}-{}", seed, i), io::OpenMode::kCreate);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    files.push_back(*file);
  }
  for (int i = 0; i < 5'000; ++i) {
    const auto file = files[rng.below(files.size())];
    const Status done =
        store.write(file, rng.below(1 << 20) * 512, Bytes(data).substr(0, 512 + rng.below(3584)));
    ASSERT_TRUE(done.ok()) << done.to_string();
  }
  for (const auto file : files) store.close_file(file);
}

void EngineMemory::use_tier(const MemoryLimit& memory, uint64_t hoard) {
  tier::StoreOptions options = tier_options(path("tier"));
  options.memory = memory;
  auto store = tier::Store::open(device_, options);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  note_reserved();
  EXPECT_EQ((*store)->stats().reserved_bytes, reserved_now());
  const std::string hoarded(hoard, 'h');
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { write_tier(**store, i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE((*store)->close(tier::Store::AtClose::kKeep).ok());
}

TEST_F(EngineMemory, ATieredStoreHoldsWhatItReserves) {
  const Peak peak = measure([&] { use_tier({UINT64_MAX}, 0); });
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, ATieredStoreWithASmallBudgetHoldsLess) {
  const Peak peak = measure([&] { use_tier({64 * kMiB, MemoryLimit::Kind::kHard}, 0); });
  EXPECT_LE(peak.reserved, 64 * kMiB);
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, ATieredStoreThatHoldsMoreIsFound) {
  EXPECT_FALSE(measure([&] { use_tier({64 * kMiB, MemoryLimit::Kind::kHard}, 64 * kMiB); }).within());
}

TEST_F(EngineMemory, ATieredStoreSaysWhatWouldBeEnough) {
  tier::StoreOptions options = tier_options(path("tier"));
  options.memory = {kMiB, MemoryLimit::Kind::kHard};
  const auto refused = tier::Store::open(device_, options);
  ASSERT_EQ(refused.status().code(), Code::kResourceExhausted);
  const std::string words(refused.status().message());
  const size_t at = words.find("give at least ");
  ASSERT_NE(at, std::string::npos) << words;
  options.memory.bytes = std::strtoull(words.c_str() + at + 14, nullptr, 10);
  const auto store = tier::Store::open(device_, options);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
}

// ---- I/O servers

// One server, which is a client too, and one client, with several threads each.
void EngineMemory::use_servers(uint64_t memory, uint64_t hoard) {
  const std::string data(4 * kMiB, 'd');  // the callers' own
  std::vector<std::string> backs(8, std::string(4 * kMiB, '\0'));
  run_job(2, memory, [&](net::Job& job) {
    if (job.rank() == 0) start_here();
    ASSERT_TRUE(job.allgather("").ok());
    std::unique_ptr<tier::Store> store;
    std::optional<iond::IondServing> serving;
    if (job.rank() == 0) {
      tier::StoreOptions options = tier_options(path("tier"));
      options.memory = {memory == 0 ? UINT64_MAX : memory / 2,
                        memory == 0 ? MemoryLimit::Kind::kAdvice : MemoryLimit::Kind::kHard};
      auto opened = tier::Store::open(device_, options);
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      store = *std::move(opened);
      serving = iond::IondServing{store.get(), options.backing_directory};
    }
    iond::IondOptions options;
    options.deadline = seconds(300);
    auto servers = iond::Iond::open(job, options, serving);
    ASSERT_TRUE(servers.ok()) << servers.status().to_string();
    const std::string hoarded(job.rank() == 0 ? hoard : 0, 'h');
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        auto file = (*servers)->open_file(fmt::format("f{}-{}", job.rank(), i), iond::kIondCreate);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        for (uint64_t at = 0; at < 24 * kMiB; at += data.size())
          ASSERT_TRUE((*servers)->write(*file, at, data).ok());
        std::string& back = backs[static_cast<size_t>(job.rank() * 4 + i)];
        ASSERT_TRUE((*servers)->read(*file, 0, back).ok());
        EXPECT_EQ(back, data);
        EXPECT_TRUE((*servers)->close_file(&*file).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (job.rank() == 0) note_reserved();
    const auto counters = (*servers)->stats();
    ASSERT_TRUE(counters.ok()) << counters.status().to_string();
    EXPECT_EQ(counters->sum("memory.requests"), (*servers)->memory_bytes());  // of the one server
    EXPECT_GT(counters->sum("memory.reserved"), 0u);                          // its store's
    EXPECT_TRUE((*servers)->close().ok());
    if (store) {
      EXPECT_TRUE(store->close(tier::Store::AtClose::kKeep).ok());
    }
  });
}

TEST_F(EngineMemory, IoServersHoldWhatTheyReserve) {
  const Peak peak = measure([&] { use_servers(0, 0); });
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, IoServersWithASmallBudgetHoldLess) {
  const Peak peak = measure([&] { use_servers(128 * kMiB, 0); });
  EXPECT_LE(peak.reserved, 128 * kMiB);
  EXPECT_TRUE(peak.within()) << peak.words();
}

TEST_F(EngineMemory, IoServersThatHoldMoreAreFound) {
  EXPECT_FALSE(measure([&] { use_servers(128 * kMiB, 128 * kMiB); }).within());
}

}  // namespace
}  // namespace swale::memory_test
