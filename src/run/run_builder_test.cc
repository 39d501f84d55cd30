#include "run/run_builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "run/testing/run_test_support.h"

namespace swale::run::run_builder_test {
namespace {

using test::PartitionInMemory;
using test::Records;

// Hash order, and arrival order among equal 40 bits.
Records in_storage_order(Records records) {
  std::stable_sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return test::rest_of(a.first) >> kEntryOffsetBits < test::rest_of(b.first) >> kEntryOffsetBits;
  });
  return records;
}

RunKind kind_of(const PartitionInMemory& partition) { return partition.sketches.back().kind; }

void expect_round_trip(const Records& records, RunKind kind) {
  PartitionInMemory partition;
  ASSERT_NO_FATAL_FAILURE(partition.add_run(records));
  EXPECT_EQ(kind_of(partition), kind);
  uint64_t digest = 0;
  for (const auto& [key, value] : records) digest += swale::record_digest(key + value, key.size());
  EXPECT_EQ(partition.digest, digest);
  for (const size_t chunk_blocks : {1, 2, 5, 1000}) {
    Status status;
    EXPECT_EQ(test::scan(partition.data, PartitionNumber(7), &status, chunk_blocks),
              in_storage_order(records));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(RunBuilder, RoundTripsUniformRuns) {
  Rng rng(5);
  for (const size_t value_bytes : {0, 1, 24, 40, 120, 500, 1012}) {
    for (const size_t count : {1, 83, 84, 2000}) {
      expect_round_trip(test::random_records(rng, count, 8, value_bytes), RunKind::kUniform);
    }
  }
  expect_round_trip(test::random_records(rng, 100, 1, 0), RunKind::kUniform);
  expect_round_trip(test::random_records(rng, 100, 255, 765), RunKind::kUniform);
}

TEST(RunBuilder, RoundTripsOneSizeThatFillsBlocksBadly) {
  Rng rng(6);
  expect_round_trip(test::random_records(rng, 300, 8, 673),
                    RunKind::kVariable);  // 5 rows would leave 675 bytes
  expect_round_trip(test::random_records(rng, 300, 8, 1013), RunKind::kVariable);
}

TEST(RunBuilder, RoundTripsMixedSizes) {
  Rng rng(7);
  Records records;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t value_bytes = rng.chance(1, 50) ? rng.below(kValueBytesMax + 1) : rng.below(300);
    records.emplace_back(test::random_bytes(rng, 1 + rng.below(255)), test::random_bytes(rng, value_bytes));
  }
  expect_round_trip(records, RunKind::kVariable);
}

TEST(RunBuilder, RoundTripsRecordsThatSpanSeveralBlocks) {
  Rng rng(8);
  expect_round_trip(test::random_records(rng, 1, 8, kValueBytesMax), RunKind::kVariable);
  expect_round_trip(test::random_records(rng, 20, 255, kValueBytesMax), RunKind::kVariable);
}

TEST(RunBuilder, RoundTripsEmptyValuesAmongOthers) {
  Rng rng(9);
  Records records = test::random_records(rng, 500, 3, 0);
  records.emplace_back("key", "value");
  expect_round_trip(records, RunKind::kVariable);
}

TEST(RunBuilder, RoundTripsExactlyFullBlocks) {
  Rng rng(10);
  expect_round_trip(test::random_records(rng, 85 * 3 - 2, 8, 40), RunKind::kUniform);
  // Variable: 64 + 2 (header) + 8 + 4006 fill the first block, 2 + 1 + 3 + 4074 the others.
  for (const size_t last_value_bytes : {4068, 4069, 4070}) {
    Records records = test::random_records(rng, 1, 8, 4016 - 11);
    records.emplace_back(test::random_bytes(rng, 9), test::random_bytes(rng, last_value_bytes));
    expect_round_trip(records, RunKind::kVariable);
  }
}

// Records that end exactly at, one before and one behind the end of a block.
TEST(RunBuilder, RoundTripsRecordsAtTheSeamOfBlocks) {
  Rng rng(11);
  for (size_t first_value = 3990; first_value < 4020; ++first_value) {
    Records records = test::random_records(rng, 1, 8, first_value);
    for (int i = 0; i < 3; ++i)
      records.emplace_back(records.front().first, test::random_bytes(rng, 4067 + i));
    expect_round_trip(records, RunKind::kVariable);
  }
}

TEST(RunBuilder, KeepsTheOrderOfOneKeysValues) {
  Records records;
  for (int i = 0; i < 5000; ++i) records.emplace_back("a hot key", std::to_string(10'000 + i));
  expect_round_trip(records, RunKind::kUniform);  // in_storage_order leaves them as they are
}

TEST(RunBuilder, StatesItsBlocksBeforeItSorts) {
  Rng rng(12);
  auto memtable = Memtable::create(kMiB, 1000).value();
  auto scratch = RunScratch::create(1000).value();
  auto arena = SketchArena::create(kMiB).value();
  ASSERT_TRUE(test::append(memtable, "12345678", std::string(40, 'x')));
  EXPECT_EQ(RunBuilder::block_count(memtable), 1u);
  for (int i = 1; i < 83; ++i) ASSERT_TRUE(test::append(memtable, "12345678", std::string(40, 'x')));
  EXPECT_EQ(RunBuilder::block_count(memtable), 1u);  // 83 rows and the header's two
  ASSERT_TRUE(test::append(memtable, "12345678", std::string(40, 'x')));
  EXPECT_EQ(RunBuilder::block_count(memtable), 2u);
  const RunBuilder builder(memtable, scratch, arena, {});
  EXPECT_EQ(builder.block_count(), 2u);
  EXPECT_EQ(builder.record_count(), 84u);
  EXPECT_EQ(builder.data_bytes(), 84u * 48);
}

TEST(RunBuilder, SketchTakesWhatWasSaid) {
  Rng rng(13);
  for (const size_t count : {1, 100, 100'000}) {
    PartitionInMemory partition;
    ASSERT_NO_FATAL_FAILURE(partition.add_run(test::random_records(rng, count, 8, 20)));
    const RunSketch& sketch = partition.sketches.back();
    EXPECT_EQ(partition.sketch_memory.used(), sketch_memory_bytes(count, sketch.blocks, sketch.kind));
    EXPECT_EQ(sketch.records, count);
  }
}

// Random allocations of several epochs, each given back as a whole: never two in one place, and room that is
// free again is used before room that never was.
TEST(SketchArena, NeverGivesAPlaceTwiceAndStaysLow) {
  Rng rng(14);
  constexpr size_t kBytes = 64 * 1000;
  auto arena = SketchArena::create(kBytes).value();
  std::vector<std::vector<MutableBytes>> epochs(2);
  const auto used = [&] {
    size_t bytes = 0;
    for (const auto& epoch : epochs)
      for (const MutableBytes& memory : epoch) bytes += memory.size();
    return bytes;
  };
  size_t allocations = 0, refusals = 0;
  char* const base = arena.allocate(64).data();
  arena.clear();
  for (int round = 0; round < 500; ++round) {
    std::vector<MutableBytes>& epoch = epochs[rng.below(2)];
    for (uint64_t count = rng.below(20); count > 0; --count) {
      const size_t bytes = 64 * (1 + rng.below(99));
      if (!arena.fits(bytes)) {
        ++refusals;
        continue;
      }
      epoch.push_back(arena.allocate(bytes));
      ++allocations;
      std::memset(epoch.back().data(), static_cast<int>(allocations), bytes);
      EXPECT_EQ(arena.used(), used());
      for (const auto& other : epochs) {
        for (const MutableBytes& memory : other) {
          ASSERT_GE(memory.data(), base);
          ASSERT_LE(memory.data() + memory.size(), base + kBytes);
          ASSERT_TRUE(memory.data() == epoch.back().data() ||
                      memory.data() + memory.size() <= epoch.back().data() ||
                      epoch.back().data() + bytes <= memory.data());
        }
      }
    }
    std::vector<MutableBytes>& over = epochs[rng.below(2)];
    for (const MutableBytes& memory : over) arena.release(memory);
    over.clear();
    if (epochs[0].empty() && epochs[1].empty()) {
      EXPECT_TRUE(arena.fits(kBytes));  // one room again
      EXPECT_EQ(arena.allocate(64).data(), base);
      arena.clear();
    }
  }
  EXPECT_GT(refusals, 0u);
  fmt::print("{} allocations, {} refused\n", allocations, refusals);
}

TEST(Sketch, NaturalBucketBitsKeepTheLoadNearOne) {
  EXPECT_EQ(natural_bucket_bits(1), 0u);
  for (uint64_t records = 1; records < 2'000'000; records = records * 9 / 8 + 1) {
    const double load =
        static_cast<double>(records) / static_cast<double>(uint64_t{1} << natural_bucket_bits(records));
    EXPECT_GE(load, 0.8) << records;
    EXPECT_LT(load, 1.6) << records;
  }
}

}  // namespace
}  // namespace swale::run::run_builder_test
