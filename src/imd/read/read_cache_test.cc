#include "imd/read/read_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "base/memory_shares.h"
#include "base/rng.h"

namespace swale::imd::read_cache_test {
namespace {

using Admit = ReadCache::Admit;

ReadCache::Name name_of(uint64_t number) {
  return {.epoch_id = 7, .offset = number * 4 * kKiB, .directory = 1, .job = 1, .partition = 0, .blocks = 1};
}

// The bytes that the piece of this number has in these tests.
std::string content_of(uint64_t number, size_t bytes = 4 * kKiB) {
  std::string content;
  Rng rng(number);
  while (content.size() < bytes) append_u64(&content, rng.next());
  content.resize(bytes);
  return content;
}

// Whether the piece is there; one with other bytes than its own is a failure.
bool has(ReadCache& cache, uint64_t number, bool* wrong = nullptr) {
  const ReadCache::Pin pin = cache.find(name_of(number));
  if (!pin) return false;
  const bool right = pin.bytes() == content_of(number, pin.bytes().size());
  if (wrong != nullptr) *wrong = !right;
  if (wrong == nullptr) {
    EXPECT_TRUE(right) << "piece " << number;
  }
  return true;
}

bool put(ReadCache& cache, uint64_t number, Admit admit = Admit::kAsUsed, size_t bytes = 4 * kKiB) {
  return cache.put(name_of(number), content_of(number, bytes), {}, admit);
}

// Opening a reader makes the cache: what it has for pieces is backed by memory when pieces come.
TEST(ReadCache, AnEmptyOneTakesNoMemory) {
  const auto faults = [] {
    rusage usage;
    EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
  };
  { ReadCache small(kMiB); }  // code and what else is there once
  const auto before = faults();
  ReadCache cache(32 * kMiB);
  const auto taken = faults() - before;
  std::printf("%ld page faults\n", static_cast<long>(taken));
  EXPECT_LT(taken, 16);
  EXPECT_FALSE(has(cache, 1));
  put(cache, 1);
  EXPECT_TRUE(has(cache, 1));
}

TEST(ReadCache, FindsWhatWasPutByItsWholeName) {
  ReadCache cache(kMiB);
  const ReadCache::Name name = name_of(3);
  EXPECT_FALSE(cache.find(name));
  ASSERT_TRUE(cache.put(name, "blocks", "unpacked"));
  EXPECT_EQ(cache.find(name).bytes(), "blocksunpacked");
  const auto other = [&](auto change) {
    ReadCache::Name changed = name;
    change(changed);
    return static_cast<bool>(cache.find(changed));
  };
  EXPECT_FALSE(other([](auto& it) { it.epoch_id += 1; }));
  EXPECT_FALSE(other([](auto& it) { it.offset += 1; }));
  EXPECT_FALSE(other([](auto& it) { it.directory += 1; }));
  EXPECT_FALSE(other([](auto& it) { it.job += 1; }));
  EXPECT_FALSE(other([](auto& it) { it.partition += 1; }));
  EXPECT_FALSE(other([](auto& it) { it.blocks += 1; }));
  EXPECT_TRUE(other([](auto&) {})) << "the canary";
}

TEST(ReadCache, WhatIsThereAlreadyStays) {
  ReadCache cache(kMiB);
  ASSERT_TRUE(put(cache, 1));
  const size_t used = cache.used_bytes();
  const ReadCache::Pin pin = cache.find(name_of(1));
  EXPECT_TRUE(put(cache, 1));
  EXPECT_EQ(cache.used_bytes(), used);
  EXPECT_EQ(cache.find(name_of(1)).bytes().data(), pin.bytes().data());
}

TEST(ReadCache, HoldsItsCapacityAndChargesTheProcess) {
  const uint64_t before = MemoryShares::of_this_process().used();
  {
    ReadCache cache(8 * kMiB);
    Rng rng(1);
    for (uint64_t number = 0; number < 5'000; ++number) {
      put(cache, number, Admit::kAsUsed, 1 + rng.below(30'000));
      ASSERT_LE(cache.used_bytes(), cache.capacity_bytes());
    }
    EXPECT_GT(cache.used_bytes(), cache.capacity_bytes() * 9 / 10) << "the canary: it was full";
    const uint64_t charged = MemoryShares::of_this_process().used() - before;
    EXPECT_GE(charged, cache.used_bytes());
    EXPECT_LE(charged, cache.capacity_bytes() + kMiB);
  }
  EXPECT_EQ(MemoryShares::of_this_process().used(), before);
}

TEST(ReadCache, PiecesThatAreAskedOnceDisplaceNoneThatAreAskedAgain) {
  ReadCache cache(4 * kMiB);
  constexpr uint64_t kHot = 500;  // half of it
  constexpr uint64_t kScanned = 20'000;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t number = 0; number < kHot; ++number) {
      if (!has(cache, number)) put(cache, number);
    }
  }
  for (uint64_t number = 1'000'000; number < 1'000'000 + kScanned; ++number) {
    if (!has(cache, number)) put(cache, number);
  }
  uint64_t hot = 0;
  for (uint64_t number = 0; number < kHot; ++number) hot += has(cache, number) ? 1 : 0;
  uint64_t scanned = 0;
  for (uint64_t number = 1'000'000; number < 1'000'000 + kScanned; ++number)
    scanned += has(cache, number) ? 1 : 0;
  EXPECT_EQ(hot, kHot);
  EXPECT_LT(scanned, 1'000u) << "the canary: most had to go";
  EXPECT_GT(scanned, 0u);
}

TEST(ReadCache, APieceThatComesBackSoonStays) {
  ReadCache cache(kMiB);  // one shard
  const auto scan = [&](uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; ++number) put(cache, number);
  };
  ASSERT_TRUE(put(cache, 1));
  scan(1'000, 400);
  ASSERT_FALSE(has(cache, 1)) << "it was asked for once";
  ASSERT_TRUE(put(cache, 1));
  scan(2'000, 400);
  EXPECT_TRUE(has(cache, 1)) << "it came back";
  EXPECT_FALSE(has(cache, 2'000)) << "the canary: the scan was as long";
}

TEST(ReadCache, WarmingDisplacesNothing) {
  ReadCache cache(kMiB);
  uint64_t fit = 0;
  while (put(cache, fit, Admit::kIfItFits)) ++fit;
  EXPECT_GT(fit, 200u);
  EXPECT_GT(cache.used_bytes() + ReadCache::cost_of(4 * kKiB), cache.capacity_bytes());
  for (uint64_t number = 0; number < fit; ++number) EXPECT_TRUE(has(cache, number)) << number;
  EXPECT_TRUE(put(cache, fit, Admit::kAsUsed)) << "the canary: another one may";
}

TEST(ReadCache, PinnedPiecesKeepTheirBytes) {
  ReadCache cache(kMiB);
  ASSERT_TRUE(put(cache, 1));
  ReadCache::Pin pin = cache.find(name_of(1));
  for (uint64_t number = 10; number < 2'000; ++number) put(cache, number);
  for (uint64_t number = 10; number < 2'000; ++number) {
    if (has(cache, number)) put(cache, number + 10'000);
  }
  EXPECT_EQ(pin.bytes(), content_of(1));
  ReadCache::Pin moved = std::move(pin);
  EXPECT_FALSE(pin);  // NOLINT(bugprone-use-after-move): what a move leaves
  EXPECT_EQ(moved.bytes(), content_of(1));
}

TEST(ReadCache, WhatIsTooLargeIsNotKept) {
  ReadCache cache(kMiB);
  EXPECT_FALSE(put(cache, 1, Admit::kAsUsed, kMiB / 16));
  EXPECT_EQ(cache.used_bytes(), 0u);
  EXPECT_TRUE(put(cache, 1, Admit::kAsUsed, kMiB / 17));
  ReadCache tiny(1);
  EXPECT_FALSE(tiny.put(name_of(1), "x"));
}

TEST(ReadCache, OneForTheProcessAndOnlyWhileSomebodyHasIt) {
  EXPECT_EQ(ReadCache::of_this_process(0), nullptr);
  std::shared_ptr<ReadCache> first = ReadCache::of_this_process(kMiB);
  const std::shared_ptr<ReadCache> second = ReadCache::of_this_process(2 * kMiB);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->capacity_bytes(), 2 * kMiB) << "the largest that was asked for";
  EXPECT_EQ(ReadCache::of_this_process(kMiB)->capacity_bytes(), 2 * kMiB);
  const std::weak_ptr<ReadCache> watched = first;
  first.reset();
  EXPECT_FALSE(watched.expired());
}

TEST(ReadCache, DirectoriesHaveNumbersOfTheirOwn) {
  ReadCache cache(kMiB);
  const uint32_t first = cache.number_of("/a");
  EXPECT_EQ(cache.number_of("/a"), first);
  std::set<uint32_t> numbers = {first};
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(numbers.insert(cache.number_of(fmt::format("/{}", i))).second);
}

// 32 threads put, find and hold pieces of a cache that holds a part of them. `spoilt`: a piece that is put
// with other bytes than its own. The number of wrong pieces that were found.
uint64_t run_threads(ReadCache& cache, uint64_t operations, uint64_t spoilt) {
  constexpr uint64_t kThreads = 32;
  constexpr uint64_t kPieces = 600;
  std::atomic<uint64_t> found = 0, missed = 0, wrong_count = 0;
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Rng rng(thread + 1);
      std::vector<ReadCache::Pin> held(4);
      for (uint64_t i = 0; i < operations; ++i) {
        const uint64_t number = rng.below(2) == 0 ? rng.below(20) : rng.below(kPieces);
        bool wrong = false;
        if (has(cache, number, &wrong)) {
          found.fetch_add(1);
          wrong_count.fetch_add(wrong ? 1 : 0);
          held[i % held.size()] = cache.find(name_of(number));
        } else {
          missed.fetch_add(1);
          if (number == spoilt) {
            cache.put(name_of(number), content_of(number + 1));
          } else {
            put(cache, number);
          }
        }
        EXPECT_LE(cache.used_bytes(), cache.capacity_bytes() + kThreads * ReadCache::cost_of(4 * kKiB));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.used_bytes(), cache.capacity_bytes());
  EXPECT_GT(found.load(), operations);
  EXPECT_GT(missed.load(), kPieces);
  return wrong_count.load();
}

TEST(ReadCache, ManyThreadsFindWhatWasPut) {
  ReadCache one_shard(kMiB);
  EXPECT_EQ(run_threads(one_shard, 400, UINT64_MAX), 0u);
  ReadCache cache(2 * kMiB);
  EXPECT_EQ(run_threads(cache, 400, UINT64_MAX), 0u);
  ReadCache spoilt(2 * kMiB);
  EXPECT_GT(run_threads(spoilt, 400, 5), 0u) << "the canary: piece 5 has other bytes";
}

}  // namespace
}  // namespace swale::imd::read_cache_test
