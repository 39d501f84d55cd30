#include "meta/index/run_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"

namespace swale::meta::run_detector_test {
namespace {

constexpr uint64_t kBytes = 8192;  // of the oracle's file

uint64_t block_count(const Run& run) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < run.levels; ++i) count *= run.level[i].count;
  return count;
}

// The blocks as types.h says, level 0 the innermost.
void expand(const Run& run, uint32_t level, uint64_t offset, uint64_t address, std::vector<Extent>* out) {
  if (level == 0) return out->push_back({offset, run.length, {run.place.log, address}});
  const Level& at = run.level[level - 1];
  for (uint64_t i = 0; i < at.count; ++i)
    expand(run, level - 1, offset + i * at.stride, address + i * at.address_stride, out);
}
std::vector<Extent> extents_of(const Run& run) {
  std::vector<Extent> blocks;
  expand(run, run.levels, run.offset, run.place.address, &blocks);
  return blocks;
}

bool nested(const Run& run) {
  uint64_t span = run.length;
  bool right = run.length > 0 && run.levels <= kRunLevels;
  for (uint32_t i = 0; i < run.levels; ++i) {
    const Level& level = run.level[i];
    right &= level.count >= 2 && level.stride >= span;
    span += (level.count - 1) * level.stride;
  }
  return right && run.offset + span <= kOffsetEnd;
}

// Where each byte of a small file stands, written block by block.
class ByteMap {
 public:
  void put(const Extent& extent) {
    for (uint64_t i = 0; i < extent.length; ++i)
      places_[extent.offset + i] = {extent.place.log, extent.place.address + i};
  }
  void put(const Run& run) {
    for (const Extent& block : extents_of(run)) put(block);
  }
  friend bool operator==(const ByteMap&, const ByteMap&) = default;

 private:
  std::vector<Place> places_ = std::vector<Place>(kBytes, Place{~0u, 0});
};

// What is wrong with the detector's output; "": nothing.
std::string judge(const std::vector<Extent>& entries, const DetectedBatch& batch) {
  ByteMap truth;
  for (const Extent& entry : entries) truth.put(entry);
  ByteMap found;
  std::string problem;
  batch.for_each([&](const Extent& extent) { found.put(extent); },
                 [&](const Run& run) {
                   if (!nested(run)) problem = "a run whose levels are not nested";
                   if (problem.empty()) found.put(run);
                 });
  if (problem.empty() && !(truth == found)) problem = "another map of bytes";
  return problem;
}

// A loop nest over a small file, its loops in any order, that may stop in the middle.
void add_nest(Rng& rng, std::vector<Extent>* entries) {
  const uint64_t length = 1 + rng.below(8);
  uint64_t counts[4], strides[4];
  uint64_t span = length;
  const uint64_t depth = rng.below(5);
  for (uint64_t i = 0; i < depth; ++i) {
    counts[i] = 1 + rng.below(6);
    strides[i] = rng.chance(1, 8) ? 1 + rng.below(30) : span + (rng.chance(1, 3) ? 0 : rng.below(12));
    span += (counts[i] - 1) * strides[i];
  }
  if (span >= kBytes) return;
  for (uint64_t i = depth; i > 1; --i) {  // a program's loops need not go by stride
    if (rng.chance(3, 4)) continue;
    const uint64_t other = rng.below(i);
    std::swap(counts[i - 1], counts[other]);
    std::swap(strides[i - 1], strides[other]);
  }
  const uint64_t offset = rng.below(kBytes - span);
  const LogId log = static_cast<LogId>(rng.below(2));
  uint64_t address = rng.below(100'000);
  const uint64_t gap = rng.chance(1, 2) ? 0 : rng.below(10);
  uint64_t total = 1;
  for (uint64_t i = 0; i < depth; ++i) total *= counts[i];
  const uint64_t end = rng.chance(1, 4) ? rng.below(total + 1) : total;
  for (uint64_t n = 0; n < end; ++n) {
    uint64_t rest = n;
    uint64_t at = offset;
    for (uint64_t i = 0; i < depth; ++i) {
      at += rest % counts[i] * strides[i];
      rest /= counts[i];
    }
    entries->push_back({at, length, {log, address}});
    address += length + gap;
  }
}

std::vector<Extent> any_batch(Rng& rng) {
  std::vector<Extent> entries;
  for (uint64_t parts = 1 + rng.below(6); parts > 0; --parts) {
    if (rng.chance(2, 3)) {
      add_nest(rng, &entries);
    } else {
      for (uint64_t n = rng.below(20); n > 0; --n) {
        const uint64_t length = 1 + rng.below(rng.chance(1, 2) ? 2 : 40);
        entries.push_back(
            {rng.below(kBytes - length), length, {static_cast<LogId>(rng.below(2)), rng.below(1000)}});
      }
    }
  }
  return entries;
}

DetectedBatch detect(const std::vector<Extent>& entries, uint64_t blocks_min = 8) {
  RunDetector detector(blocks_min);
  DetectedBatch batch;
  detector.add(entries, &batch);
  detector.finish(&batch);
  return batch;
}

int rounds() {
  const char* text = std::getenv("SWALE_META_ROUNDS");
  return text == nullptr ? 4'000 : std::atoi(text);
}

TEST(RunDetector, GivesTheSameMapOfBytesForEveryInput) {
  uint64_t runs = 0, deep = 0, blocks = 0;
  for (int seed = 0; seed < rounds(); ++seed) {
    Rng rng(static_cast<uint64_t>(seed));
    const std::vector<Extent> entries = any_batch(rng);
    RunDetector detector(rng.chance(1, 2) ? 2 : RunDetector::kBlocksMin);
    DetectedBatch batch;
    for (size_t at = 0; at < entries.size();) {  // in pieces, some of them ended
      const size_t take = std::min<size_t>(entries.size() - at, rng.below(64));
      detector.add(std::span(entries).subspan(at, take), &batch);
      at += take;
      if (rng.chance(1, 10)) detector.finish(&batch);
    }
    detector.finish(&batch);
    ASSERT_EQ(judge(entries, batch), "") << "seed " << seed;
    runs += batch.runs.size();
    for (const meta::Run& run : batch.runs) {
      deep += run.levels == kRunLevels;
      blocks += block_count(run);
    }
  }
  std::printf("%d inputs, %lu runs of %lu blocks, %lu of them with %u levels\n", rounds(),
              static_cast<unsigned long>(runs), static_cast<unsigned long>(blocks),
              static_cast<unsigned long>(deep), kRunLevels);
  EXPECT_GT(deep, 100u);
}

TEST(RunDetector, CanaryAWrongAddressOrOrderIsSeen) {
  int wrong_address = 0, wrong_order = 0, tried = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const std::vector<Extent> entries = any_batch(rng);
    DetectedBatch batch = detect(entries);
    if (batch.runs.empty()) continue;
    ++tried;
    DetectedBatch moved = batch;
    moved.runs.back().level[0].address_stride += 1;
    wrong_address += !judge(entries, moved).empty();
    DetectedBatch late = batch;
    late.run_at.back() = late.extents.size();
    std::rotate(late.runs.begin(), late.runs.begin() + 1, late.runs.end());
    wrong_order += !judge(entries, late).empty();
  }
  EXPECT_GT(wrong_address, tried / 2);
  EXPECT_GT(wrong_order, 0);
}

TEST(RunDetector, AStridedWriterIsOneRun) {
  std::vector<Extent> entries;
  for (uint64_t i = 0; i < 64'000; ++i) entries.push_back({(i * 16 + 3) * 1024, 1024, {3, i * 1024}});
  const DetectedBatch batch = detect(entries);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch.runs.at(0).levels, 1u);
  EXPECT_EQ(block_count(batch.runs.at(0)), 64'000u);
}

TEST(RunDetector, ATileIsOneRunAlsoWhenItsRowsAreWrittenInPieces) {
  std::vector<Extent> entries;
  for (uint64_t row = 0; row < 500; ++row)
    for (uint64_t k = 0; k < 64; ++k)
      entries.push_back({(row * 4 + 1) * 64 * 4096 + k * 4096, 4096, {0, (row * 64 + k) * 4096}});
  const DetectedBatch batch = detect(entries);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch.runs.at(0).length, 64u * 4096);
  EXPECT_EQ(block_count(batch.runs.at(0)), 500u);
}

// BTIO (NAS NPB 2.4, class C, 64 processes): 8 cells a process on the diagonals of a grid of 162^3 points of
// 40 bytes.
TEST(RunDetector, BtioIsARunForEachGroupOfCells) {
  const uint64_t cells = 8, cell = 20, grid = cells * cell, point = 40;
  for (uint64_t process : {uint64_t{0}, uint64_t{27}}) {
    std::vector<Extent> entries;
    uint64_t address = 0;
    for (uint64_t c = 0; c < cells; ++c) {
      const uint64_t x = (process % cells + c) % cells, y = (process / cells + c) % cells;
      for (uint64_t k = 0; k < cell; ++k)
        for (uint64_t j = 0; j < cell; ++j) {
          const uint64_t at = ((c * cell + k) * grid + y * cell + j) * grid + x * cell;
          entries.push_back({at * point, cell * point, {1, address}});
          address += cell * point;
        }
    }
    const DetectedBatch batch = detect(entries);
    EXPECT_LE(batch.size(), 3u);  // the diagonal wraps around in x and in y
    uint64_t blocks = 0;
    for (const meta::Run& run : batch.runs) blocks += block_count(run);
    EXPECT_EQ(blocks, entries.size());
  }
}

TEST(RunDetector, LoopsThatDoNotGoByStrideAreFoundToo) {
  std::vector<Extent> entries;  // a matrix of 100 rows, written column by column, of which every second one
  for (uint64_t column = 0; column < 50; ++column)
    for (uint64_t row = 0; row < 100; ++row)
      entries.push_back({row * 1000 + column * 10, 5, {0, (column * 100 + row) * 5}});
  const DetectedBatch batch = detect(entries);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_TRUE(nested(batch.runs.at(0)));
  EXPECT_EQ(batch.runs.at(0).levels, 2u);
}

TEST(RunDetector, RandomInputStaysExtents) {
  Rng rng(1);
  std::vector<Extent> entries;
  for (uint64_t i = 0; i < 10'000; ++i) entries.push_back({rng.below(1 << 20) * 1024, 1024, {0, i * 1024}});
  const DetectedBatch batch = detect(entries);
  EXPECT_EQ(batch.runs.size(), 0u);
  EXPECT_EQ(batch.extents, entries);
}

TEST(RunDetector, WorksUpToTheLastByteOfAFile) {
  std::vector<Extent> entries;
  for (uint64_t i = 20; i > 0; --i) entries.push_back({kOffsetEnd - i * 100, 100, {0, i * 1000}});
  const DetectedBatch batch = detect(entries);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_TRUE(nested(batch.runs.at(0)));
  EXPECT_EQ(extents_of(batch.runs.at(0)).back().offset, kOffsetEnd - 100);
}

}  // namespace
}  // namespace swale::meta::run_detector_test
