#include "imd/write/partition.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "run/testing/run_test_support.h"

namespace swale::imd::partition_test {
namespace {

// A Partition alone in a job of one rank, whose storage does everything at once.
class PartitionAlone {
 public:
  PartitionAlone() {
    PartitionParams params;
    params.memory.memtable_bytes = kMiB;
    params.memory.memtable_records = 30'000;
    params.memory.output_buffer_bytes = 256 * kKiB;
    params.memory.output_buffers = 4;
    params.memory.sketch_bytes = 4 * kMiB;
    partition_ = Partition::create(params).value();
    partition_->begin_epoch(EpochNumber(0), 100);
  }

  Partition& operator*() { return *partition_; }
  Partition* operator->() { return partition_.get(); }

  // Appends until the memtable has to be replaced; returns how many records it took.
  uint64_t fill_memtable() {
    for (uint64_t count = 0;; ++count) {
      const std::string key = run::test::random_bytes(rng_, 8);
      if (partition_->append(hash_bytes(key), key, value_).row != nullptr) continue;
      EXPECT_TRUE(partition_->make_room(0));
      settle();
      EXPECT_NE(partition_->append(hash_bytes(key), key, value_).row, nullptr);
      return count;
    }
  }
  void end_epoch(uint32_t next) {
    partition_->end_epoch(EpochNumber(next), 100 + next);
    settle();
    EXPECT_TRUE(partition_->durable());
  }

  void settle() {
    for (bool busy = true; busy;) {
      busy = false;
      while (auto task = partition_->next_task(0)) {
        task->work();
        partition_->finish_task(*task);
        busy = true;
      }
      while (auto request = partition_->next_io()) {
        partition_->finish_io(*request, {});
        busy = true;
      }
    }
    EXPECT_TRUE(partition_->failure().ok());
  }

 private:
  Rng rng_{21};
  const std::string value_ = std::string(40, 'v');
  std::unique_ptr<Partition> partition_;
};

// Records in full memtables, in the one being filled, and none of another epoch.
TEST(Partition, CountsWhatTheOpenEpochHasTaken) {
  PartitionAlone partition;
  EXPECT_EQ(partition->taken(), RecordTally{});
  uint64_t records = 0;
  for (int i = 0; i < 3; ++i) records += partition.fill_memtable() + 1;  // with that for which it had no room
  EXPECT_EQ(partition->taken(), (RecordTally{records, records * 48, 0}));
  uint64_t digest = 0;
  const std::string key = "quickkey";
  EXPECT_FALSE(partition->append_quickly(key, std::string(40, 'q'), &digest));  // its bin has no chunk yet
  EXPECT_EQ(digest, 0u);
  partition.end_epoch(1);
  EXPECT_EQ(partition->tally().records, records);
  EXPECT_EQ(partition->taken(), RecordTally{});
  EXPECT_NE(partition->append(hash_bytes(key), key, "once").row, nullptr);
  EXPECT_TRUE(partition->append_quickly(key, "again", &digest));
  EXPECT_EQ(digest, record_digest(key + "again", key.size()));
  EXPECT_EQ(partition->taken(), (RecordTally{2, 8 + 4 + 8 + 5, 0}));
}

// A run of its own, besides memtables of the same epoch; one at a time.
TEST(Partition, TakesRunsThatAreInOrder) {
  PartitionAlone partition;
  uint64_t records = partition.fill_memtable() + 1;
  uint64_t digest = 0;
  for (int i = 0; i < 3; ++i) {
    auto chunk = run::ChunkPool::create()->take();
    const std::string row = "a key of the run and its value";
    char* const at = chunk->space(row.size() + 2);
    run::RecordView record;
    const char* const end = run::encode_record(Bytes(row).substr(0, 5), Bytes(row).substr(5), at);
    ASSERT_EQ(run::parse_record({at, static_cast<size_t>(end - at)}, &record), run::RecordParse::kOk);
    chunk->add(record);
    auto run = std::make_unique<run::OrderedRecords>();
    run->add(std::move(chunk));
    digest += run->digest();
    EXPECT_TRUE(partition->room_for_run());
    partition->append_run(std::move(run));
    EXPECT_FALSE(partition->room_for_run());
    EXPECT_FALSE(partition->make_room(0));  // for a memtable either
    partition.settle();
    ++records;
  }
  EXPECT_EQ(partition->taken().records, records);
  EXPECT_EQ(digest, 3 * record_digest("a key of the run and its value", 5));
  partition.end_epoch(1);
  EXPECT_EQ(partition->tally().records, records);
  EXPECT_TRUE(partition->room_for_run());
}

// Storage has nothing to do until the first memtable is full, so the first ones after a rest are small.
TEST(Partition, StartsSmallAfterARest) {
  PartitionAlone partition;
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint64_t> counts;
    for (int i = 0; i < 4; ++i) counts.push_back(partition.fill_memtable());
    EXPECT_LT(counts[0], counts[3] * 3 / 10) << epoch;
    EXPECT_GT(counts[0], counts[3] / 10) << epoch;
    EXPECT_LT(counts[1], counts[3] * 6 / 10) << epoch;
    EXPECT_GT(counts[1], counts[3] * 4 / 10) << epoch;
    EXPECT_GT(counts[2], counts[3] * 9 / 10) << epoch;
    partition.end_epoch(epoch + 1);
    partition->start_small();
  }
}

// Not where records wait already: they would be more than it may take.
TEST(Partition, DoesNotStartSmallWithRecordsInMemory) {
  PartitionAlone partition;
  partition.fill_memtable();
  partition.fill_memtable();
  const uint64_t whole = partition.fill_memtable();  // and one record in the next
  partition->start_small();
  EXPECT_GT(partition.fill_memtable(), whole * 9 / 10);
}

// Whoever does not say that storage rests goes on with whole memtables.
TEST(Partition, FillsWholeMemtablesBetweenEpochs) {
  PartitionAlone partition;
  for (int i = 0; i < 3; ++i) partition.fill_memtable();
  const uint64_t whole = partition.fill_memtable();
  partition.end_epoch(1);
  EXPECT_GT(partition.fill_memtable(), whole * 9 / 10);
}

}  // namespace
}  // namespace swale::imd::partition_test
