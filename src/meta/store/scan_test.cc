// Scans of files that are nearly empty: they cost what is there, not how far apart it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

struct Scan {
  std::vector<Extent> found;
  uint64_t calls = 0;
};

Scan scan(RankOf& rank, const File& file, uint64_t from = 0) {
  Scan all;
  while (from < kOffsetEnd && all.calls < 100) {
    std::vector<Extent> some;
    const Status status = rank.client->scan(file, from, 1000, &some, &from);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) break;
    all.found.insert(all.found.end(), some.begin(), some.end());
    ++all.calls;
  }
  return all;
}

TEST(Scan, PassesOverEmptyRangesHoweverManyTheyAre) {
  const std::vector<Extent> segments = {{5, 10, {1, 0}},
                                        {uint64_t{1} << 40, 100, {2, 7}},
                                        {(uint64_t{1} << 62) + 12'345, 1, {3, 0}},
                                        {kOffsetEnd - 20, 20, {4, 99}}};
  for (const int32_t ranks : {1, 2, 3}) {
    io::MemoryDevice device;
    std::atomic<uint64_t> ranges = 0, requests = 0;
    run_ranks(ranks, device, small_ranges(), [&](RankOf& rank) {
      if (rank.job.rank() == 0) {
        auto file = rank.client->open("f", Client::kCreate, 0, 0);
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE(rank.client->put(&*file, segments).ok());
      }
      barrier(rank);
      uint64_t before = 0;
      rank.store.with_servers([&](ServerCore& core) { before = core.counters().requests; });
      barrier(rank);
      if (rank.job.rank() == 0) {
        const auto file = rank.client->open("f", 0, 0, 0);
        ASSERT_TRUE(file.ok());
        const Scan all = scan(rank, *file);
        EXPECT_THAT(all.found, testing::ElementsAreArray(segments));
        EXPECT_EQ(all.calls, 1u);
        const Scan last = scan(rank, *file, segments[2].offset + 1);
        EXPECT_THAT(last.found, testing::ElementsAre(segments[3]));
      }
      barrier(rank);
      rank.store.with_servers([&](ServerCore& core) {
        ranges += core.shard().counters().ranges_scanned;
        requests += core.counters().requests - before;
      });
    });
    // Each of two scans asks each server once; an open may pass a delegate. A server looks where something
    // stands, and where others' bytes stand.
    EXPECT_LE(requests, 2u * static_cast<uint64_t>(ranks) + 2);
    EXPECT_LE(ranges, 2u * static_cast<uint64_t>(ranks) * (segments.size() + 2));
  }
}

// A server that holds a run and owns none of its blocks looks at a bounded number of them a request.
TEST(Scan, ARunThatAnotherServerOwnsIsPassedOverInParts) {
  io::MemoryDevice device;
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    if (rank.job.rank() == 0) {
      auto file = rank.client->open("f", Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      std::vector<Extent> segments;
      for (uint64_t i = 0; i < 10'000; ++i) segments.push_back({i * 8192, 100, {1, i * 100}});
      ASSERT_TRUE(rank.client->put(&*file, segments).ok());
      const Extent last{(uint64_t{1} << 50) + 4096, 50, {2, 0}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&last, 1)).ok());
      segments.push_back(last);
      std::vector<Extent> found;
      uint64_t calls = 0;
      for (uint64_t at = 0; at < kOffsetEnd; ++calls) {
        std::vector<Extent> some;
        ASSERT_TRUE(rank.client->scan(*file, at, 100'000, &some, &at).ok());
        found.insert(found.end(), some.begin(), some.end());
      }
      EXPECT_THAT(found, testing::ElementsAreArray(segments));
      EXPECT_LE(calls, 4u);
    }
    barrier(rank);
  });
}

}  // namespace
}  // namespace swale::meta::store_test
