// Parts of the shard: blocks of all codecs, runs in layers, clusters.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/rng.h"
#include "meta/index/block.h"
#include "meta/index/cluster.h"
#include "meta/index/run_layers.h"
#include "meta/index/snapshot.h"

namespace swale::meta::shard_parts_test {
namespace {

constexpr FileId kFile{1, 2};

meta::Run strided(uint64_t offset, uint64_t length, uint64_t count, uint64_t stride, LogId log = 0) {
  meta::Run run;
  run.offset = offset, run.length = length, run.place = {log, 0}, run.levels = 1;
  run.level[0] = {count, stride, length};
  return run;
}

// Blocks.

std::vector<Entry> rows_of(Rng* rng, int kind, size_t count) {
  std::vector<Entry> rows;
  uint64_t offset = kind == 3 ? kOffsetEnd - 10'000'000 : 0;
  for (size_t i = 0; i < count; ++i) {
    Entry row;
    row.file = kind == 2 ? static_cast<uint32_t>(i / 7) : 0;
    if (kind == 2 && i % 7 == 0) offset = 0;
    row.offset = offset;
    row.length = kind == 0 ? 1024 : kind == 1 ? 2040 * (1 + rng->below(4)) : 1 + rng->below(1000);
    row.log = static_cast<LogId>(kind == 0 ? i % 16 : rng->below(1000));
    row.address = kind == 0 ? i / 16 * 1024 : kind == 3 ? rng->next() : rng->below(1 << 20) * 1024;
    row.sequence = kind == 0 ? 5 : 5 + rng->below(3);
    offset = row.end() + (kind == 0 ? 0 : rng->below(5000));
    rows.push_back(row);
  }
  if (kind == 3) rows.back().length = kOffsetEnd - rows.back().offset;
  return rows;
}

TEST(Block, RoundTripsWithEveryCodecAndFindsRows) {
  Rng rng(1);
  for (int kind = 0; kind < 4; ++kind) {
    FileTable files;
    for (uint64_t i = 0; i < 400; ++i) files.index_of({i / 3, i});
    const std::vector<Entry> rows = rows_of(&rng, kind, 2000);
    for (const BlockCodec codec : {BlockCodec::kFrame, BlockCodec::kDeltaZstd, BlockCodec::kAuto}) {
      auto encoder = BlockEncoder::create(codec);
      ASSERT_TRUE(encoder.ok());
      size_t done = 0, bytes = 0;
      while (done < rows.size()) {
        std::string block;
        const size_t count = (*encoder)->encode(std::span(rows).subspan(done), files, kBlockBytes, &block);
        ASSERT_GT(count, 0u);
        ASSERT_LE(block.size(), kBlockBytes);
        bytes += block.size();
        const size_t size = block.size();
        block.append(kColumnSlackBytes, '\0');
        const auto view = BlockView::parse(Bytes(block).substr(0, size), "test");
        ASSERT_TRUE(view.ok()) << view.status().to_string();
        ASSERT_EQ(view->rows(), count);
        for (size_t i = 0; i < count; ++i) {
          const Entry& expected = rows[done + i];
          const Entry row = view->row(i);
          ASSERT_EQ(view->file_id(row.file), files.id(expected.file));
          ASSERT_EQ(std::tuple(row.offset, row.length, row.address, row.log, row.sequence),
                    std::tuple(expected.offset, expected.length, expected.address, expected.log,
                               expected.sequence));
          const FileId& id = files.id(expected.file);
          ASSERT_EQ(view->find(id, row.offset), i);
          ASSERT_EQ(view->find(id, row.end() - 1), i);
          if (row.offset > 0 && (i == 0 || rows[done + i - 1].offset < row.offset - 1)) {
            ASSERT_EQ(view->find(id, row.offset - 1), i == 0 ? count : i - 1);
          }
        }
        done += count;
      }
      if (kind == 0 && codec == BlockCodec::kAuto) {
        EXPECT_LT(bytes, 3 * rows.size());
      }
    }
  }
}

// 1, 2 and 4 were codecs of comparison.
TEST(Block, OfAnUnknownCodecIsRefused) {
  FileTable files;
  files.index_of(kFile);
  const std::vector<Entry> rows = {{0, 1024, 0, 9, 1, 0}};
  std::string block;
  ASSERT_EQ((*BlockEncoder::create(BlockCodec::kFrame))->encode(rows, files, kBlockBytes, &block), 1u);
  for (const char codec : {'\1', '\2', '\4', '\5'}) {
    std::string other = block;
    other[12] = codec;
    put_u32(other.data(), crc32c(Bytes(other).substr(4)));
    const size_t size = other.size();
    other.append(kColumnSlackBytes, '\0');
    EXPECT_EQ(BlockView::parse(Bytes(other).substr(0, size), "test").status().code(), Code::kUnsupported);
  }
}

TEST(Block, OfASequenceThatNoShardReachesIsRefused) {
  FileTable files;
  files.index_of(kFile);
  for (const uint64_t more : {0, 1}) {
    const std::vector<Entry> rows = {{0, 1024, 0, kSequenceMax + more, 1, 0}};
    std::string block;
    ASSERT_EQ((*BlockEncoder::create(BlockCodec::kFrame))->encode(rows, files, kBlockBytes, &block), 1u);
    const size_t size = block.size();
    block.append(kColumnSlackBytes, '\0');
    EXPECT_EQ(BlockView::parse(Bytes(block).substr(0, size), "test").ok(), more == 0);
  }
}

TEST(Block, RandomSegmentsTakeThreeBytes) {
  FileTable files;
  files.index_of(kFile);
  Rng rng(3);
  std::vector<Entry> rows;
  for (uint64_t i = 0; i < 100'000; ++i)
    rows.push_back({i * 1024, 1024, rng.below(1 << 18) * 1024, 9, static_cast<LogId>(rng.below(16)), 0});
  auto encoder = BlockEncoder::create(BlockCodec::kAuto);
  size_t done = 0, bytes = 0;
  for (std::string block; done < rows.size(); block.clear()) {
    done += (*encoder)->encode(std::span(rows).subspan(done), files, kBlockBytes, &block);
    bytes += round_up(block.size(), kBlockBytes);
  }
  EXPECT_LT(bytes, 3 * rows.size());  // 18 bits of address and 4 of log are 2.75
}

// Runs.

// Counting on from such numbers would begin at 0 again.
TEST(ShardManifest, OfNumbersThatNoShardReachesIsRefused) {
  for (const uint64_t more : {0, 1}) {
    for (int which = 0; which < 3; ++which) {
      ShardManifest manifest;
      manifest.job = manifest.first_log = 1;
      manifest.tables.resize(1);
      (which == 0   ? manifest.group
       : which == 1 ? manifest.sequence
                    : manifest.tables[0].sequence_max) = kSequenceMax + more;
      const auto read = ShardManifest::decode(manifest.encode(), "the manifest");
      EXPECT_EQ(read.ok(), more == 0) << read.status().to_string();
    }
  }
}

TEST(RunLayers, StridedClientsShareOneLayerAndJoin) {
  RunLayers layers;
  Sequence sequence = 1;
  for (uint64_t batch = 0; batch < 10; ++batch) {
    for (uint32_t client = 0; client < 16; ++client) {
      meta::Run run = strided((batch * 1000 * 16 + client) * 1024, 1024, 1000, 16 * 1024, client);
      run.place.address = batch * 1000 * 1024;
      layers.insert(run, sequence++, 0);
    }
  }
  EXPECT_EQ(layers.layers(), 1u);
  EXPECT_EQ(layers.runs(), 16u);
}

TEST(RunLayers, OverlappingLatticesDoNotExplode) {
  // 2^30 blocks each, strides without common factors: expanded they would be 2^40 extents.
  RunLayers layers;
  std::vector<meta::Run> runs;
  for (uint64_t i = 0; i < 1000; ++i) {
    const meta::Run run = strided(i * 7, 3, uint64_t{1} << 30, 1000 + i % 8, static_cast<LogId>(i));
    runs.push_back(run);
    if (layers.fits(run, 16)) layers.insert(run, i + 1, ~Sequence{0});
  }
  EXPECT_LE(layers.runs(), 1000u);
  EXPECT_LE(layers.layers(), 16u);
  EXPECT_LT(layers.memory_bytes(), 1000u * 400);
  Rng rng(1);
  std::vector<StoredRun> found;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t at = rng.below(uint64_t{1} << 40);
    found.clear();
    layers.find(at, at + 1, &found);
    std::vector<Sequence> expected, got;
    layers.for_each([&](const meta::Run& run, Sequence sequence) {
      if (touches(run, at, at + 1)) expected.push_back(sequence);
    });
    for (const StoredRun& run : found) got.push_back(run.sequence);
    std::sort(expected.begin(), expected.end());
    std::sort(got.begin(), got.end());
    ASSERT_EQ(got, expected);
  }
}

TEST(RunLayers, RewritingTheSamePatternKeepsOneRun) {
  RunLayers layers;
  for (Sequence s = 1; s <= 100; ++s) layers.insert(strided(5, 10, 50, 64), s, ~Sequence{0});
  EXPECT_EQ(layers.runs(), 1u);
}

// Clusters.

TEST(Cluster, FollowsThePapersExample) {
  // Figure 6: at 80 %, two blanks in ten blocks are one region.
  std::vector<WantedBlock> wanted;
  for (const uint32_t block : {0u, 1u, 2u, 4u, 5u, 7u, 8u, 9u}) wanted.push_back({block, 1});
  const std::vector<Region> regions = cluster_blocks(wanted, 80, 256);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].blocks(), 10u);
  EXPECT_EQ(regions[0].wanted, 8u);
}

TEST(Cluster, GreedyIsNeverBetterThanBruteForceAndOftenEqual) {
  Rng rng(4);
  uint64_t cases = 0, worse = 0, greedy_sum = 0, best_sum = 0, means_sum = 0;
  for (int i = 0; i < 300; ++i, ++cases) {
    std::vector<WantedBlock> wanted;
    const uint64_t chance = 20 + rng.below(75);
    for (uint32_t block = 0; block < 60; ++block) {
      if (rng.chance(chance, 100)) wanted.push_back({block, 1 + rng.below(4)});
    }
    const auto greedy = cluster_blocks(wanted, 80, 256), best = brute_force(wanted, 80, 256),
               means = k_means(wanted, 80, 256);
    for (const auto* regions : {&greedy, &best, &means}) {
      uint64_t covered = 0;
      for (const Region& region : *regions) {
        EXPECT_TRUE(local_enough(region.wanted, region.blocks(), 80));
        covered += region.wanted;
      }
      EXPECT_EQ(covered, wanted.size());
    }
    ASSERT_LE(best.size(), greedy.size());
    ASSERT_LE(best.size(), means.size());
    worse += greedy.size() > best.size() ? 1 : 0;
    greedy_sum += greedy.size(), best_sum += best.size(), means_sum += means.size();
  }
  std::printf("regions of %llu cases: optimum %llu, Algorithm 1 %llu (worse in %llu cases), K-means %llu\n",
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(best_sum),
              static_cast<unsigned long long>(greedy_sum), static_cast<unsigned long long>(worse),
              static_cast<unsigned long long>(means_sum));
  EXPECT_GT(worse, 0u);  // it is greedy
}

TEST(Cluster, TheQueueGivesEveryRequestOnceDensestFirst) {
  Rng rng(5);
  ClusterQueue queue(256, 80, 256);
  for (int i = 0; i < 400; ++i) queue.add(static_cast<uint32_t>(rng.below(256)));
  for (int i = 0; i < 50; ++i) queue.add(100);
  uint64_t taken = 0;
  bool first = true;
  while (!queue.empty()) {
    const Region region = queue.take();
    if (first) {
      EXPECT_TRUE(region.first <= 100 && 100 <= region.last);
    }
    first = false;
    taken += region.requests;
  }
  EXPECT_EQ(taken, 450u);
}

}  // namespace
}  // namespace swale::meta::shard_parts_test
