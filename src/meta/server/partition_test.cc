#include "meta/server/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"

namespace swale::meta::partition_test {
namespace {

meta::Run any_run(Rng& rng, uint64_t scale) {
  meta::Run run;
  run.offset = rng.below(100 * scale);
  run.length = 1 + rng.below(rng.chance(1, 12) ? 3 * scale : 50);
  run.place = {static_cast<LogId>(rng.below(4)), rng.below(1 << 20)};
  uint64_t span = run.length;
  for (run.levels = 0; run.levels < rng.below(kRunLevels + 1); ++run.levels) {
    Level& level = run.level[run.levels];
    level = {2 + rng.below(5), span + rng.below(2 * scale), rng.below(1000)};
    span += (level.count - 1) * level.stride;
  }
  return run;
}

TEST(Partition, OwnersOfARunAreThoseOfItsBytes) {
  Rng rng(1);
  for (int round = 0; round < 60; ++round) {
    const Partition partition(1 + static_cast<uint32_t>(rng.below(9)), 4096);
    const FileId file{rng.next(), rng.next()};
    const meta::Run run = any_run(rng, 4096);
    std::set<Server> expected;
    for (uint64_t i = 0; i < blocks_of(run); ++i) {
      const Extent block = block_at(run, i);
      for (uint64_t at = block.offset; at < block.offset + block.length; ++at)
        expected.insert(partition.server_of(file, at));
    }
    std::vector<Server> owners;
    partition.owners_of(file, run, &owners);
    const std::set<Server> found(owners.begin(), owners.end());
    ASSERT_EQ(found.size(), owners.size());
    ASSERT_EQ(found, expected);
  }
}

TEST(Partition, ARunOfVeryManyBlocksIsDividedAtOnce) {
  const Partition partition(64, 4096);
  meta::Run run;
  run.length = 10;
  run.levels = 1;
  run.level[0] = {uint64_t{1} << 40, 64 * 4096, 10};  // always the same server
  std::vector<Server> owners;
  partition.owners_of({1, 2}, run, &owners);
  EXPECT_EQ(owners.size(), 64u);  // more than needed, found in 4,096 steps
}

// Each byte stands at its owner, in the order of the whole put.
TEST(Partition, SplitKeepsEveryByteAndTheOrderAtEachServer) {
  Rng rng(2);
  for (int round = 0; round < 30; ++round) {
    const Partition partition(1 + static_cast<uint32_t>(rng.below(5)), 4096);
    const FileId file{rng.next(), 1};
    DetectedBatch batch;
    std::vector<meta::Run> order;
    for (uint64_t n = rng.below(20); n > 0; --n) {
      meta::Run run = any_run(rng, 2048);
      if (rng.chance(1, 2)) {
        run.levels = 0;
        run.level = {};
        batch.extents.push_back({run.offset, run.length, run.place});
      } else {
        batch.runs.push_back(run);
        batch.run_at.push_back(batch.extents.size());
      }
      order.push_back(run);
    }
    std::map<uint64_t, Place> truth;
    const auto paint = [](const meta::Run& run, std::map<uint64_t, Place>* map) {
      for (uint64_t i = 0; i < blocks_of(run); ++i) {
        const Extent block = block_at(run, i);
        for (uint64_t at = 0; at < block.length; ++at)
          (*map)[block.offset + at] = {block.place.log, block.place.address + at};
      }
    };
    for (const meta::Run& run : order) paint(run, &truth);
    std::map<uint64_t, Place> found;
    for (const ServerPut& put : partition.split(file, batch)) {
      std::map<uint64_t, Place> at_server;
      put.items.for_each([&](const Extent& extent) { paint(run_of(extent), &at_server); },
                         [&](const meta::Run& run) { paint(run, &at_server); });
      for (const auto& [at, place] : at_server) {
        if (partition.server_of(file, at) == put.server) found[at] = place;
      }
    }
    ASSERT_EQ(found, truth);
  }
}

TEST(Partition, OwnedRangesOfAllServersAreTheWholeFile) {
  const Partition partition(3, 4096);
  for (const FileId file : {FileId{1, 1}, FileId{7, 9}}) {
    for (uint64_t from : {uint64_t{0}, uint64_t{5000}, kOffsetEnd - 10'000, kOffsetEnd - 1}) {
      std::vector<std::pair<uint64_t, uint64_t>> next;
      for (Server server = 0; server < 3; ++server) {
        const auto [begin, end] = ServerRanges(&partition, server).next_owned(file, from);
        if (begin == end) continue;
        EXPECT_EQ(partition.server_of(file, begin), server);
        EXPECT_GT(end, from);
        next.emplace_back(begin, end);
      }
      std::sort(next.begin(), next.end());
      ASSERT_FALSE(next.empty());
      EXPECT_LE(next.front().first, from);
      for (size_t i = 1; i < next.size(); ++i) EXPECT_EQ(next[i].first, next[i - 1].second);
    }
    EXPECT_EQ(ServerRanges(&partition, 1).next_owned(file, kOffsetEnd).first, kOffsetEnd);
  }
}

TEST(Partition, RefusesNumbersThatCannotWork) {
  EXPECT_TRUE(Partition::check(1, 4096).ok());
  EXPECT_FALSE(Partition::check(0, 4096).ok());
  EXPECT_FALSE(Partition::check(1, 4095).ok());
  EXPECT_FALSE(Partition::check(kServersMax + 1, 4096).ok());
}

}  // namespace
}  // namespace swale::meta::partition_test
