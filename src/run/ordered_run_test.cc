// A run of records that come in order is, byte for byte, the run that a memtable makes of them.
#include "run/ordered_run_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "run/run_builder.h"
#include "run/testing/run_test_support.h"

namespace swale::run::ordered_run_test {
namespace {

using test::Records;

constexpr RunPlacement kPlace{.first_block = BlockNumber(17), .epoch_id = 0x1122334455667788, .run = 3};

// The blocks, and what the sketch consists of.
struct Made {
  std::string blocks;
  std::vector<uint64_t> buckets, ends;
  std::vector<uint8_t> remainders;
  uint64_t digest = 0;
  RunKind kind = {};

  bool operator==(const Made&) const = default;
};

// Each fill is `fill_blocks` long, so that records cross the seams between fills.
Made make(RunOutput& builder, size_t fill_blocks) {
  Made made;
  std::vector<char> out(fill_blocks * kBlockBytes, '\x5a');
  while (const size_t produced = builder.fill(out)) made.blocks.append(out.data(), produced);
  EXPECT_TRUE(builder.done());
  EXPECT_EQ(made.blocks.size(), builder.block_count() * kBlockBytes);
  const RunSketch& sketch = builder.sketch();
  made.buckets.assign(sketch.buckets.begin(), sketch.buckets.end());
  made.ends.assign(sketch.ends.begin(), sketch.ends.end());
  made.remainders.assign(sketch.remainders.begin(), sketch.remainders.end());
  made.digest = builder.digest();
  made.kind = sketch.kind;
  return made;
}

// False: the chunk has no room for it.
bool put(RecordChunk& chunk, Bytes key, Bytes value) {
  const size_t bytes = encoded_record_bytes(key.size(), value.size());
  char* const at = chunk.space(bytes);
  if (at == nullptr) return false;
  encode_record(key, value, at);
  RecordView record;
  EXPECT_EQ(parse_record({at, bytes}, &record), RecordParse::kOk);
  chunk.add(record);
  return true;
}

// In chunks of at most `chunk_records`.
OrderedRecords ordered(const Records& records, size_t chunk_records) {
  static const auto pool = ChunkPool::create();
  OrderedRecords all;
  ChunkPool::Chunk chunk = pool->take();
  for (const auto& [key, value] : records) {
    if (chunk->shape().records < chunk_records && put(*chunk, key, value)) continue;
    EXPECT_TRUE(all.has_room(*chunk));
    all.add(std::move(chunk));
    chunk = pool->take();
    EXPECT_TRUE(put(*chunk, key, value));
  }
  all.add(std::move(chunk));
  all.add(pool->take());  // one without records changes nothing
  return all;
}

// Of keys that differ in the top 40 bits of their hashes: beyond, a memtable has the order of arrival.
Records in_order(Records records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& a, const auto& b) { return hash_bytes(a.first) < hash_bytes(b.first); });
  return records;
}

void expect_alike(const Records& unordered, RunKind kind) {
  const Records records = in_order(unordered);
  auto memtable = Memtable::create(Memtable::kArenaBytesMax, Memtable::kRecordsMax).value();
  auto scratch = RunScratch::create(Memtable::kRecordsMax).value();
  auto arena = SketchArena::create(8 * kMiB).value();
  for (const auto& [key, value] : records) ASSERT_NE(memtable.append(hash_bytes(key), key, value), nullptr);
  RunBuilder sorted(memtable, scratch, arena, kPlace);
  const Made expected = make(sorted, 3);
  EXPECT_EQ(expected.kind, kind);
  for (const size_t chunk_records : {1, 7, 100'000}) {
    for (const size_t fill_blocks : {1, 4, 1000}) {
      const OrderedRecords all = ordered(records, chunk_records);
      EXPECT_EQ(all.shape().records, records.size());
      EXPECT_EQ(all.shape().encoded_bytes, memtable.encoded_bytes());
      OrderedRunBuilder builder(all, arena, kPlace);
      const Made made = make(builder, fill_blocks);
      EXPECT_TRUE(made == expected) << chunk_records << " records a chunk, " << fill_blocks << " blocks";
      arena.release(builder.sketch().memory);
    }
  }
}

TEST(OrderedRun, IsThatOfAMemtable) {
  Rng rng(5);
  for (const size_t value_bytes : {0, 1, 40, 204, 1012}) {
    for (const size_t count : {1, 83, 84, 2000})
      expect_alike(test::random_records(rng, count, 8, value_bytes), RunKind::kUniform);
  }
  expect_alike(test::random_records(rng, 100, 255, 765), RunKind::kUniform);
  expect_alike(test::random_records(rng, 300, 8, 644), RunKind::kVariable);
  expect_alike(test::random_records(rng, 20, 255, kValueBytesMax), RunKind::kVariable);
}

TEST(OrderedRun, OfMixedSizesIsThatOfAMemtable) {
  Rng rng(7);
  Records records;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t value_bytes = rng.chance(1, 50) ? rng.below(kValueBytesMax + 1) : rng.below(300);
    records.emplace_back(test::random_bytes(rng, 8 + rng.below(240)), test::random_bytes(rng, value_bytes));
  }
  expect_alike(records, RunKind::kVariable);
  records = test::random_records(rng, 500, 8, 40);  // one of another size, in a chunk of its own or not
  records.emplace_back("12345678", "value");
  expect_alike(records, RunKind::kVariable);
}

// Records that end exactly at, one before and one behind the end of a block.
TEST(OrderedRun, AtTheSeamOfBlocksIsThatOfAMemtable) {
  Rng rng(11);
  for (size_t first_value = 3990; first_value < 4020; ++first_value) {
    Records records = test::random_records(rng, 1, 8, first_value);
    for (int i = 0; i < 3; ++i)
      records.emplace_back(records.front().first, test::random_bytes(rng, 4067 + i));
    expect_alike(records, RunKind::kVariable);
  }
}

TEST(OrderedRun, KeepsTheOrderOfOneKeysValues) {
  Records records;
  for (int i = 0; i < 5000; ++i) records.emplace_back("a hot key", std::to_string(10'000 + i));
  expect_alike(records, RunKind::kUniform);
}

// A run has an end: of records, and of blocks.
TEST(OrderedRun, HasRoomUpToTheLimitsOfARun) {
  for (const size_t value_bytes : {size_t{0}, kValueBytesMax}) {
    const auto pool = ChunkPool::create();
    OrderedRecords all;
    uint64_t records = 0;
    uint64_t blocks = 0;
    for (;;) {
      ChunkPool::Chunk chunk = pool->take();
      while (put(*chunk, "key", std::string(value_bytes, 'v'))) {
      }
      records = chunk->shape().records;
      blocks = chunk->shape().blocks();
      if (!all.has_room(*chunk)) break;
      all.add(std::move(chunk));
      ASSERT_LE(all.shape().records, kRunRecordsMax);
      ASSERT_LE(all.shape().blocks(), kRunBlocksMax);
    }
    EXPECT_TRUE(all.shape().records + records > kRunRecordsMax ||
                all.shape().blocks() + blocks > kRunBlocksMax);
    EXPECT_EQ(all.shape().records + records > kRunRecordsMax, value_bytes == 0);
  }
}

// What comes back is given again: memory does not grow with the runs that were made.
TEST(ChunkPool, GivesTheSameMemoryAgain) {
  const auto pool = ChunkPool::create();
  std::set<const char*> places;
  for (int i = 0; i < 100; ++i) {
    const ChunkPool::Chunk first = pool->take();
    const ChunkPool::Chunk second = pool->take();
    EXPECT_TRUE(first->bytes().empty());
    for (const auto* chunk : {&first, &second}) {
      places.insert((*chunk)->bytes().data());
      EXPECT_TRUE(put(**chunk, "key", "value"));
    }
  }
  EXPECT_LE(places.size(), Buffer::kHugePageBytes / ChunkPool::kChunkBytes);
  ChunkPool::Chunk last = ChunkPool::create()->take();  // outlives its owner's pool
  EXPECT_NE(last->space(1), nullptr);
}

}  // namespace
}  // namespace swale::run::ordered_run_test
