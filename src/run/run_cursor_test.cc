#include "run/run_cursor.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/testing/run_test_support.h"

namespace swale::run::run_cursor_test {
namespace {

using test::PartitionInMemory;

constexpr PartitionNumber kPartition(7);

class RunCursorTest : public testing::Test {
 protected:
  void SetUp() override {
    Rng rng(50);
    partition_.add_run(test::random_records(rng, 300, 8, 40));
    auto mixed = test::random_records(rng, 10, 8, 3000);
    mixed.emplace_back("key", "value");
    partition_.add_run(mixed);
    partition_.add_run(test::random_records(rng, 100, 8, 40));
  }

  Status walk(Bytes data, PartitionNumber partition = kPartition, std::optional<uint64_t> epoch_id = {}) {
    RunCursor cursor(partition, BlockNumber(0), "part-000007.data", epoch_id);
    records_ = 0;
    SWALE_RETURN_IF_ERROR(cursor.feed(data, [&](const ScannedRecord&) { return ++records_, true; }));
    return cursor.finish();
  }

  PartitionInMemory partition_;
  uint64_t records_ = 0;
};

TEST_F(RunCursorTest, WalksAllRunsOfTheRightEpoch) {
  EXPECT_TRUE(walk(partition_.data, kPartition, PartitionInMemory::kEpochId).ok());
  EXPECT_EQ(records_, 411u);
  const Status other = walk(partition_.data, kPartition, 99);
  EXPECT_EQ(other.code(), Code::kCorruption);
  EXPECT_NE(other.message().find("part-000007.data: offset 0"), std::string_view::npos);
}

TEST_F(RunCursorTest, RefusesAnotherPartitionsLog) {
  EXPECT_EQ(walk(partition_.data, PartitionNumber(8)).code(), Code::kCorruption);
  EXPECT_EQ(records_, 0u);
}

TEST_F(RunCursorTest, SaysWhereARunIsCutOff) {
  const uint64_t first_run_bytes = partition_.sketches[0].blocks * kBlockBytes;
  EXPECT_TRUE(walk(Bytes(partition_.data).substr(0, first_run_bytes)).ok());
  const Status cut = walk(Bytes(partition_.data).substr(0, first_run_bytes + kBlockBytes));
  EXPECT_NE(cut.message().find("cut off after 1 of"), std::string_view::npos);
  EXPECT_EQ(walk(Bytes(partition_.data).substr(0, first_run_bytes + 100)).code(), Code::kCorruption);
}

TEST_F(RunCursorTest, NoticesMisdirectedBlocks) {
  std::string swapped = partition_.data;
  std::swap_ranges(swapped.begin() + 4096, swapped.begin() + 8192, swapped.begin() + 8192);
  const Status status = walk(swapped);
  EXPECT_NE(status.message().find("expected block 1, found block 2"), std::string_view::npos);
}

// A lost write: the place still holds an intact block of the epoch that was given up before.
TEST_F(RunCursorTest, NoticesABlockOfAnEarlierEpochAtTheSamePlace) {
  Rng rng(51);
  PartitionInMemory earlier;
  earlier.epoch = EpochNumber(3);
  earlier.add_run(test::random_records(rng, 300, 8, 40));
  std::string stale = partition_.data;
  stale.replace(kBlockBytes, kBlockBytes, earlier.data, kBlockBytes, kBlockBytes);
  EXPECT_EQ(walk(stale).code(), Code::kCorruption);
}

TEST_F(RunCursorTest, StopsWhenTold) {
  RunCursor cursor(kPartition, BlockNumber(0), "data");
  uint64_t seen = 0;
  EXPECT_TRUE(cursor.feed(partition_.data, [&](const ScannedRecord&) { return ++seen < 305; }).ok());
  EXPECT_TRUE(cursor.stopped());
  EXPECT_EQ(seen, 305u);
  EXPECT_TRUE(cursor.finish().ok());
}

// In the order of the log, and the counts are those of single records.
TEST_F(RunCursorTest, GivesTheRowsOfUniformRunsBlockByBlock) {
  std::vector<std::string> singly, mixed;
  RunCursor one(kPartition, BlockNumber(0), "data");
  ASSERT_TRUE(one.feed(partition_.data,
                       [&](const ScannedRecord& record) {
                         singly.push_back(std::string(record.key) + std::string(record.value));
                         return true;
                       })
                  .ok());
  RunCursor many(kPartition, BlockNumber(0), "data");
  uint64_t blocks = 0;
  const RunCursor::RowsFn rows = [&](const UniformRows& block) {
    ++blocks;
    EXPECT_EQ(block.key_bytes + block.value_bytes, block.row_bytes());
    for (uint32_t i = 0; i < block.count; ++i)
      mixed.emplace_back(block.rows + i * block.row_bytes(), block.row_bytes());
    return true;
  };
  many.take_rows(&rows);
  ASSERT_TRUE(many.feed(partition_.data,
                        [&](const ScannedRecord& record) {
                          mixed.push_back(std::string(record.key) + std::string(record.value));
                          return true;
                        })
                  .ok());
  EXPECT_TRUE(many.finish().ok());
  EXPECT_EQ(mixed, singly);
  EXPECT_EQ(blocks, partition_.sketches[0].blocks + partition_.sketches[2].blocks);
  EXPECT_EQ(many.records(), one.records());
  EXPECT_EQ(many.runs(), 3u);

  RunCursor stopped(kPartition, BlockNumber(0), "data");
  const RunCursor::RowsFn stop = [](const UniformRows&) { return false; };
  stopped.take_rows(&stop);
  EXPECT_TRUE(stopped.feed(partition_.data, [](const ScannedRecord&) { return true; }).ok());
  EXPECT_TRUE(stopped.stopped());
}

TEST_F(RunCursorTest, StartsAtAnyRun) {
  const BlockNumber second = partition_.sketches[1].first_block;
  RunCursor cursor(kPartition, second, "data");
  uint32_t seen = 0;
  ASSERT_TRUE(cursor
                  .feed(Bytes(partition_.data).substr(second * kBlockBytes),
                        [&](const ScannedRecord& record) {
                          ++seen;
                          return record.run->run != 0;
                        })
                  .ok());
  EXPECT_EQ(seen, 111u);
  EXPECT_EQ(cursor.runs(), 2u);
}

// Seals the run that begins at block `first` anew after its header was changed.
void seal_header(std::string* data, uint64_t first, const RunHeader& header) {
  char* const block = data->data() + first * kBlockBytes;
  put_fixed(block, header);
  put_u32(block + 60, crc32c_extend(partition_seed(kPartition), {block, 60}));
  put_u32(block + kBlockBytes - 4,
          crc32c_extend(epoch_seed(kPartition, header.epoch_id), {block, kBlockBytes - 4}));
}

// Owners look for the block of a failure in what they fed: a run that ends with other sums than its header
// says failed one block too late.
TEST_F(RunCursorTest, AFailureIsAlwaysWithinTheBlocksThatWereFed) {
  using Change = void (*)(RunHeader*);
  const Change changes[] = {
      [](RunHeader* h) { ++h->records; },    [](RunHeader* h) { --h->records; },
      [](RunHeader* h) { ++h->blocks; },     [](RunHeader* h) { --h->blocks; },
      [](RunHeader* h) { ++h->data_bytes; }, [](RunHeader* h) { --h->data_bytes; },
  };
  const uint64_t end = partition_.data.size() / kBlockBytes;
  for (const Change change : changes) {
    for (const auto& sketch : partition_.sketches) {
      std::string forged = partition_.data;
      const uint64_t first = sketch.first_block;
      auto header = get_fixed<RunHeader>(forged.data() + first * kBlockBytes);
      change(&header);
      seal_header(&forged, first, header);
      for (uint64_t chunk = 1; chunk <= end; ++chunk) {  // shorter than a run, as long, and longer
        RunCursor cursor(kPartition, BlockNumber(0), "data");
        Status status;
        for (uint64_t at = 0; at < end && status.ok(); at += chunk) {
          const Bytes fed = Bytes(forged).substr(at * kBlockBytes, chunk * kBlockBytes);
          status = cursor.feed(fed, [](const ScannedRecord&) { return true; });
          if (status.ok()) continue;
          EXPECT_GE(cursor.next_block(), at) << status.to_string();
          EXPECT_LT(cursor.next_block(), at + fed.size() / kBlockBytes) << status.to_string();
        }
        EXPECT_FALSE(status.ok() && cursor.finish().ok());
      }
    }
  }
}

// A header of partition 7 with possible numbers, changed and sealed.
Status decode_changed(void (*change)(RunHeader*)) {
  RunHeader header{};
  header.magic = kRunMagic;
  header.kind = RunKind::kVariable;
  header.partition = kPartition;
  header.records = header.blocks = 1;
  header.ranks = 8;
  header.ways = 1;
  change(&header);
  char bytes[sizeof(header)];
  put_fixed(bytes, header);
  put_u32(bytes + 60, crc32c_extend(partition_seed(kPartition), {bytes, 60}));
  return decode_run_header({bytes, sizeof(bytes)}, kPartition, BlockNumber(0), "data").status();
}

TEST(RunHeader, RefusesWhatIsOfANewerFormat) {
  EXPECT_TRUE(decode_changed([](RunHeader*) {}).ok());
  EXPECT_EQ(decode_changed([](RunHeader* header) { header->kind = RunKind{9}; }).code(), Code::kUnsupported);
  EXPECT_EQ(decode_changed([](RunHeader* header) { header->home = HomeRule{3}; }).code(), Code::kUnsupported);
  EXPECT_EQ(decode_changed([](RunHeader* header) { header->values = ValueRule{2}; }).code(),
            Code::kUnsupported);
  char bytes[sizeof(RunHeader)];
  put_fixed(bytes, RunHeader{});
  EXPECT_EQ(decode_run_header({bytes, sizeof(bytes)}, kPartition, BlockNumber(0), "data").status().code(),
            Code::kCorruption);
}

TEST(RunHeader, RefusesJobsThatCannotBe) {
  const auto refused = [](void (*change)(RunHeader*)) {
    return decode_changed(change).code() == Code::kCorruption;
  };
  EXPECT_TRUE(refused([](RunHeader* header) { header->ranks = 7; })) << "partitions 0 to 6";
  EXPECT_TRUE(refused([](RunHeader* header) { header->ranks = kRanksMax + 1; }));
  EXPECT_TRUE(refused([](RunHeader* header) { header->ways = 0; }));
  EXPECT_TRUE(refused([](RunHeader* header) { header->way = 1; }));
  EXPECT_TRUE(decode_changed([](RunHeader* header) {
                header->ways = 2;
                header->way = 1;
              }).ok());
}

}  // namespace
}  // namespace swale::run::run_cursor_test
