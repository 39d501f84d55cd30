// The format as it is on disk: fixed inputs give the bytes of tests/golden/run, and those files are read for
// ever. SWALE_REGENERATE_GOLDEN=1 writes them anew, which only a change of the format may ask for.
#include "run/format.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "run/testing/run_test_support.h"

namespace swale::run::format_test {
namespace {

using test::PartitionInMemory;
using test::Records;

constexpr PartitionNumber kPartition(7);
constexpr char kGoldenFolder[] = SWALE_SOURCE_DIR "/tests/golden/run/";

std::string read_golden(const std::string& name) {
  std::ifstream in(kGoldenFolder + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Epoch 0: uniform. 1: uniform and variable runs, records that span blocks. 2: nothing. 3: a hot key.
PartitionInMemory golden_partition() {
  Rng rng(70);
  PartitionInMemory partition(kPartition);
  partition.add_run(test::random_records(rng, 150, 8, 40));
  partition.add_run(test::random_records(rng, 3, 8, 40));
  partition.finish_epoch();
  Records mixed = test::random_records(rng, 20, 8, 100);
  mixed.emplace_back("large", std::string(9000, 'x'));
  mixed.emplace_back("empty", "");
  partition.add_run(mixed);
  partition.add_run(test::random_records(rng, 50, 16, 4));
  partition.finish_epoch();
  partition.finish_epoch();
  Records hot = test::random_records(rng, 6500, 2, 0);
  for (int i = 0; i < 1800; ++i) hot.emplace_back("hh", "");
  partition.add_run(hot);
  partition.finish_epoch();
  return partition;
}

TEST(GoldenFiles, AreWhatThisBuildWrites) {
  const PartitionInMemory partition = golden_partition();
  const std::vector<std::pair<std::string, std::string>> files = {{"part-000007.data", partition.data},
                                                                  {"part-000007.index", partition.index}};
  for (const auto& [name, bytes] : files) {
    if (std::getenv("SWALE_REGENERATE_GOLDEN") != nullptr) {
      std::ofstream(kGoldenFolder + name, std::ios::binary) << bytes;
    }
    EXPECT_LT(bytes.size(), 64 * kKiB);
    EXPECT_TRUE(read_golden(name) == bytes) << name << " differs";
  }
}

TEST(GoldenFiles, AreRead) {
  PartitionInMemory expected = golden_partition();
  PartitionInMemory golden;
  golden.data = read_golden("part-000007.data");
  golden.index = read_golden("part-000007.index");
  const auto file = golden.index_file(golden.index);
  const auto footer = read_footer(*file, kPartition);
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  ASSERT_EQ(footer->segments.size(), 4u);
  EXPECT_EQ(footer->segments, expected.segments);
  EXPECT_GT(footer->segments[3].overflow_units, 0u);

  Status status;
  const Records records = test::scan(golden.data, kPartition, &status);
  EXPECT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(records.size(), 150u + 3 + 22 + 50 + 8300);
  for (size_t i = 0; i < 225; ++i) {
    size_t found = 0;
    for (const SegmentRecord& segment : footer->segments) {
      for (const std::string& value : golden.find(records[i].first, segment).values) {
        found += value == records[i].second ? 1 : 0;
      }
    }
    EXPECT_EQ(found, 1u) << i;
  }
  EXPECT_GE(golden.find("hh", footer->segments[3]).values.size(), 1800u);
  EXPECT_EQ(golden.find("large", footer->segments[1]).values, std::vector{std::string(9000, 'x')});
}

TEST(Seeds, TellWhatBytesBelongTo) {
  SegmentRecord segment;
  EXPECT_NE(partition_seed(PartitionNumber(1)), partition_seed(PartitionNumber(2)));
  EXPECT_NE(epoch_seed(PartitionNumber(1), 5), epoch_seed(PartitionNumber(1), 6));
  EXPECT_NE(epoch_seed(PartitionNumber(1), 5), epoch_seed(PartitionNumber(2), 5));
  const uint32_t seed = segment_seed(PartitionNumber(1), segment);
  segment.way = 1;
  EXPECT_NE(segment_seed(PartitionNumber(1), segment), seed);
  segment.way = 0;
  segment.records = 1;
  EXPECT_NE(segment_seed(PartitionNumber(1), segment), seed);
}

}  // namespace
}  // namespace swale::run::format_test
