// Readers with a ReadCache: every answer is that of a reader without one, and what is there is not read
// again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "imd/format/log_names.h"
#include "imd/optimize/optimizer.h"
#include "imd/read/read_cache.h"
#include "imd/testing/test_optimize.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::reader_cache_test {
namespace {

using test::Answers;
using test::ask_reader;
using test::kOptimized;
using test::optimized_key;

constexpr uint64_t kKeys = 40;
constexpr size_t kPlenty = 16 * kMiB;

// Epochs with a record for each key, of lengths that lie in one block and in several; none in a value log.
void write_epochs(io::Device& device, const WriterOptions& given, uint32_t epochs, uint64_t seed) {
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options = given;
    options.memory_bytes = 20 * kMiB;
    auto writer = Writer::open(job, device, kOptimized, Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      for (auto key = static_cast<uint64_t>(job.rank()); key < kKeys; key += 2) {
        Rng rng(seed * 1'000 + epoch * kKeys + key);
        std::string value(key % 5 == 0 ? 9'000 + rng.below(5'000) : 30 + rng.below(60), '\0');
        for (char& c : value) c = static_cast<char>(rng.below(16));
        ASSERT_TRUE((*writer)->append(optimized_key(key), value).ok());
      }
      ASSERT_TRUE((*writer)->epoch_end(static_cast<int64_t>(seed * 100 + epoch), 0.5).ok());
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
}

std::unique_ptr<Reader> open(io::Device& device, std::shared_ptr<ReadCache> cache) {
  ReaderOptions options;
  options.cache = std::move(cache);
  auto reader = Reader::open(device, kOptimized, options);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  return reader.ok() ? std::move(*reader) : nullptr;
}

std::shared_ptr<ReadCache> new_cache(size_t bytes = kPlenty) { return std::make_shared<ReadCache>(bytes); }

// What a reader without a cache answers.
Answers truth_of(io::Device& device) {
  Answers answers = ask_reader(*open(device, nullptr), kKeys);
  EXPECT_EQ(answers.problem, "");
  return answers;
}

struct Kind {
  const char* name;
  WriterOptions options;
  bool optimized = false;
};

std::vector<Kind> kinds() {
  std::vector<Kind> kinds = {
      {"plain", {}}, {"packed", {}}, {"filters", {}}, {"ways", {}}, {"cluster", {}, true}};
  kinds[1].options.compression = Codec::kLz4;
  kinds[2].options.index = run::IndexKind::kBloom;
  kinds[3].options.ways = 3;
  return kinds;
}

void write_kind(io::Device& device, const Kind& kind) {
  write_epochs(device, kind.options, 3, 1);
  if (!kind.optimized) return;
  const auto pass = optimize_directory(device, kOptimized, test::small_pass());
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
}

TEST(ReaderCache, ASecondQueryOfAKeyAsksStorageForNothing) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    io::MemoryDevice memory;
    write_kind(memory, kind);
    const Answers truth = truth_of(memory);
    io::FaultDevice device(memory);
    const auto reader = open(device, new_cache());
    EXPECT_TRUE(ask_reader(*reader, kKeys) == truth);
    const ReadStats before = reader->stats();
    device.inject({.kind = io::CallKind::kRead, .from_then_on = true});
    for (const auto& [key, values] : truth.each) {
      const auto found = reader->get(key, Reader::kAllEpochs);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      ASSERT_EQ(found->size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ((*found)[i].bytes, values[i].second);
    }
    EXPECT_EQ(reader->stats().reads, before.reads);
    EXPECT_EQ(reader->stats().cache_misses, before.cache_misses);
    EXPECT_GT(reader->stats().cache_hits, before.cache_hits);
    EXPECT_GT(reader->stats().cache_bytes, 0u);
    EXPECT_FALSE(Reader::open(device, kOptimized, {}).ok()) << "the canary: storage answers nothing";
  }
}

TEST(ReaderCache, IsSharedByReadersOfOneDirectory) {
  io::MemoryDevice device;
  write_epochs(device, {}, 3, 1);
  const auto cache = new_cache();
  const auto first = open(device, cache);
  const auto second = open(device, cache);
  ASSERT_TRUE(first->get(optimized_key(7), Reader::kAllEpochs).ok());
  ASSERT_TRUE(second->get(optimized_key(7), Reader::kAllEpochs).ok());
  EXPECT_EQ(second->stats().cache_misses, 0u);
  EXPECT_LT(second->stats().reads, first->stats().reads) << "a footer only";
}

TEST(ReaderCache, EpochsThatTookTheNumbersOfOthersAreRead) {
  io::MemoryDevice device;
  write_epochs(device, {}, 3, 1);
  const auto cache = new_cache();
  const auto reader = open(device, cache);
  const Answers before = ask_reader(*reader, kKeys);
  EXPECT_TRUE(before == truth_of(device));
  WriterOptions again;
  again.resume_after = 101;  // drops the last epoch
  write_epochs(device, again, 2, 2);
  EXPECT_TRUE(ask_reader(*reader, kKeys) == before) << "the view is that of its epochs";
  ASSERT_TRUE(reader->refresh().ok());
  const Answers after = ask_reader(*reader, kKeys);
  EXPECT_TRUE(after == truth_of(device));
  EXPECT_FALSE(after == before) << "the canary";
}

TEST(ReaderCache, ADirectoryThatWasMadeAnewIsRead) {
  const auto cache = new_cache();
  Answers last;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    io::MemoryDevice device;
    write_epochs(device, {}, 2, seed);
    const Answers found = ask_reader(*open(device, cache), kKeys);
    EXPECT_TRUE(found == truth_of(device)) << seed;
    EXPECT_FALSE(found == last) << "the canary: at the same path, under the same numbers";
    last = found;
  }
}

TEST(ReaderCache, ASmallOneAnswersAsALargeOne) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    io::MemoryDevice device;
    write_kind(device, kind);
    const Answers truth = truth_of(device);
    for (const size_t bytes : {size_t{1}, 100 * kKiB, 300 * kKiB}) {
      const auto cache = new_cache(bytes);
      const auto reader = open(device, cache);
      for (int round = 0; round < 2; ++round) EXPECT_TRUE(ask_reader(*reader, kKeys) == truth) << bytes;
      EXPECT_LE(cache->used_bytes(), bytes);
    }
  }
}

// Turns bytes of all logs over, one at a time. `fill`: the cache has everything before. How often a reader
// told.
uint64_t flip_bytes(const Kind& kind, bool fill) {
  set_log_level(LogLevel::kOff);
  io::MemoryDevice device;
  write_kind(device, kind);
  const Answers truth = truth_of(device);
  const std::string folder = kind.optimized ? cluster_folder(kOptimized, 1) : std::string(kOptimized);
  uint64_t told = 0;
  for (const bool index : {false, true}) {
    const LogId id = kind.optimized ? test::log_of_cluster() : LogId{1, PartitionNumber(0)};
    const std::string path = index ? index_log_path(folder, id) : data_log_path(folder, id);
    const auto file = device.open(path, io::OpenMode::kReadWrite).value();
    const uint64_t bytes = *file->size();
    for (uint64_t at = 5; at < bytes; at += bytes / 60 + 1) {
      const auto cache = new_cache();
      const auto reader = open(device, cache);
      if (fill) {
        EXPECT_TRUE(ask_reader(*reader, kKeys) == truth);
      }
      char byte = 0;
      EXPECT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
      const char turned = static_cast<char>(byte ^ 0x10);
      EXPECT_TRUE(file->pwrite(at, {&turned, 1}).ok());
      const Answers damaged = ask_reader(*reader, kKeys);
      EXPECT_TRUE(!damaged.problem.empty() || damaged == truth) << path << " " << at;
      told += damaged.problem.empty() ? 0 : 1;
      EXPECT_TRUE(file->pwrite(at, {&byte, 1}).ok());
      EXPECT_TRUE(ask_reader(*reader, kKeys) == truth) << "nothing wrong was kept: " << path << " " << at;
    }
  }
  set_log_level(LogLevel::kWarn);
  return told;
}

TEST(ReaderCache, NoByteThatIsWrongEnters) {
  uint64_t told = 0;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    told += flip_bytes(kind, false);
    EXPECT_EQ(flip_bytes(kind, true), 0u) << "what was verified before answers";
  }
  fmt::print("{} answers told of a flipped byte\n", told);
  EXPECT_GT(told, 100u);
}

// The canary of the tests above: bytes of a cache are what readers answer from, so wrong ones would be seen.
TEST(ReaderCache, AWrongPieceWouldBeSeen) {
  io::MemoryDevice device;
  write_epochs(device, {}, 1, 1);
  const Answers truth = truth_of(device);
  const auto right = new_cache();
  const auto reader = open(device, right);
  ASSERT_TRUE(ask_reader(*reader, kKeys) == truth);
  const auto wrong = new_cache();
  const Manifest& manifest = reader->manifest();
  uint64_t spoilt = 0;
  for (uint32_t partition = 0; partition < 2; ++partition) {
    for (uint64_t block = 0; block < 100; ++block) {
      ReadCache::Name name{.epoch_id = manifest.epochs[0].epoch_id,
                           .offset = block * run::kBlockBytes,
                           .directory = 1,
                           .job = 1,
                           .partition = partition,
                           .blocks = 1};
      const ReadCache::Pin pin = right->find(name);
      if (!pin) continue;
      std::string bytes(pin.bytes());
      for (size_t i = 200; i < 3'000; ++i) bytes[i] = static_cast<char>(bytes[i] ^ 1);
      spoilt += wrong->put(name, bytes) ? 1 : 0;
    }
  }
  ASSERT_GT(spoilt, 0u);
  EXPECT_FALSE(ask_reader(*open(device, wrong), kKeys) == truth);
}

TEST(ReaderCache, BytesThatWereWrongOnceAreKeptAsTheyAre) {
  set_log_level(LogLevel::kOff);
  io::MemoryDevice memory;
  write_epochs(memory, {}, 2, 1);
  const Answers truth = truth_of(memory);
  uint64_t flips = 0;
  for (uint64_t nth = 1; nth < 60; ++nth) {
    io::FaultDevice device(memory);
    const auto reader = open(device, new_cache());
    device.inject(
        {.action = io::FaultAction::kFlip, .kind = io::CallKind::kRead, .nth = nth, .position = 999});
    for (int round = 0; round < 2; ++round) {
      for (const auto& [key, values] : truth.each) {
        const auto found = reader->get(key, Reader::kAllEpochs);
        ASSERT_TRUE(found.ok()) << nth << ": " << found.status().to_string();
        ASSERT_EQ(found->size(), values.size()) << nth;
        for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ((*found)[i].bytes, values[i].second) << nth;
      }
    }
    flips += device.faults();
  }
  set_log_level(LogLevel::kWarn);
  EXPECT_GT(flips, 20u);
}

TEST(ReaderCache, AWarmReaderReadsNoIndex) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    io::MemoryDevice memory;
    write_kind(memory, kind);
    const Answers truth = truth_of(memory);
    io::FaultDevice device(memory);
    const auto cache = new_cache();
    const auto reader = open(device, cache);
    const int64_t all[] = {Reader::kAllEpochs};
    const auto warmed = reader->warm(all);
    ASSERT_TRUE(warmed.ok()) << warmed.status().to_string();
    EXPECT_EQ(*warmed, cache->used_bytes());
    EXPECT_GT(*warmed, 0u);
    EXPECT_EQ(*reader->warm(all), *warmed) << "it is all there";
    const uint64_t reads = reader->stats().reads;
    device.inject({.kind = io::CallKind::kRead, .path_part = ".index", .from_then_on = true});
    EXPECT_TRUE(ask_reader(*reader, kKeys) == truth);
    EXPECT_GT(reader->stats().reads, reads) << "the canary: blocks are read";
    EXPECT_LE(reader->stats().depth_max, 3u);
  }
}

TEST(ReaderCache, WarmsTheEpochsThatAreAskedAsFarAsTheyFit) {
  io::MemoryDevice device;
  write_epochs(device, {}, 3, 1);
  const auto warm = [&](std::vector<int64_t> epochs, size_t bytes) {
    const auto cache = new_cache(bytes);
    const auto reader = open(device, cache);
    const Result<uint64_t> warmed = reader->warm(epochs);
    EXPECT_TRUE(warmed.ok()) << warmed.status().to_string();
    EXPECT_EQ(*warmed, cache->used_bytes());
    return *warmed;
  };
  const uint64_t one = warm({1}, kPlenty);
  EXPECT_GT(one, 0u);
  EXPECT_EQ(warm({1, 1, 1}, kPlenty), one);
  EXPECT_EQ(warm({0, 1, 2}, kPlenty), warm({Reader::kAllEpochs}, kPlenty));
  EXPECT_EQ(warm({}, kPlenty), 0u);
  EXPECT_LT(warm({0, 1, 2}, 2 * one), 3 * one);
  const int64_t absent[] = {3};
  EXPECT_EQ(open(device, new_cache())->warm(absent).status().code(), Code::kInvalidArgument);
  const int64_t all[] = {Reader::kAllEpochs};
  EXPECT_EQ(open(device, nullptr)->warm(all).status().code(), Code::kInvalidArgument);
}

TEST(ReaderCache, ManyThreadsOfSeveralReadersAnswerRightly) {
  io::MemoryDevice device;
  write_kind(device, kinds()[4]);
  write_epochs(device, {}, 2, 3);
  const Answers truth = truth_of(device);
  const auto cache = new_cache(300 * kKiB);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 4; ++i) readers.push_back(open(device, cache));
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 32; ++thread) {
    threads.emplace_back([&, thread] {
      Reader& reader = *readers[thread % readers.size()];
      for (uint64_t i = 0; i < kKeys; ++i) {
        const std::string key = optimized_key((i * 7 + thread) % kKeys);
        const auto found = reader.get(key, Reader::kAllEpochs);
        ASSERT_TRUE(found.ok()) << found.status().to_string();
        const auto& values = truth.each.at(key);
        ASSERT_EQ(found->size(), values.size());
        for (size_t at = 0; at < values.size(); ++at) EXPECT_EQ((*found)[at].bytes, values[at].second);
        if (i % 16 == 5) {
          const int64_t all[] = {Reader::kAllEpochs};
          EXPECT_TRUE(reader.warm(all).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache->used_bytes(), cache->capacity_bytes());
}

}  // namespace
}  // namespace swale::imd::reader_cache_test
