#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "run/testing/run_test_support.h"

namespace swale::run::segment_test {
namespace {

using test::Found;
using test::PartitionInMemory;
using test::Records;

// For every record of the segment's epoch: the index names its exact place once, and a lookup of its key
// yields exactly the key's values, in storage order.
void expect_all_found(const PartitionInMemory& partition, const SegmentRecord& segment) {
  std::map<std::string, std::vector<std::string>> values;
  size_t misplaced = 0;
  RunCursor cursor(PartitionNumber(7), segment.data_block, "data", segment.epoch_id);
  const Bytes blocks =
      Bytes(partition.data).substr(segment.data_block * kBlockBytes, segment.data_blocks * kBlockBytes);
  ASSERT_TRUE(
      cursor
          .feed(blocks,
                [&](const ScannedRecord& record) {
                  values[std::string(record.key)].emplace_back(record.value);
                  auto slice =
                      partition.open_slice(segment, *locate_slice(segment, test::rest_of(record.key)));
                  EXPECT_TRUE(slice.ok()) << slice.status().to_string();
                  int named = 0;
                  EXPECT_TRUE(slice
                                  ->candidates(test::rest_of(record.key),
                                               [&](const Candidate& c) { named += record.is(c) ? 1 : 0; })
                                  .ok());
                  misplaced += named == 1 ? 0 : 1;
                  return values.size() < 5000;  // enough of large epochs
                })
          .ok());
  EXPECT_EQ(misplaced, 0u);
  if (cursor.stopped()) return;
  EXPECT_EQ(cursor.records(), segment.records);
  for (const auto& [key, expected] : values) {
    const Found found = partition.find(key, segment);
    ASSERT_TRUE(found.status.ok()) << found.status.to_string();
    ASSERT_EQ(found.values, expected);
  }
}

// An epoch of runs with these records, checked.
PartitionInMemory checked_epoch(const std::vector<Records>& runs) {
  PartitionInMemory partition;
  for (const Records& records : runs) partition.add_run(records);
  partition.finish_epoch();
  expect_all_found(partition, partition.segments.back());
  return partition;
}

Records mixed_records(Rng& rng, size_t count, size_t value_bytes_max) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    records.emplace_back(test::random_bytes(rng, 1 + rng.below(20)),
                         test::random_bytes(rng, rng.below(value_bytes_max)));
  }
  return records;
}

TEST(Segment, OneRecordIsFound) {
  Rng rng(20);
  const auto partition = checked_epoch({test::random_records(rng, 1, 8, 40)});
  EXPECT_EQ(partition.segments[0].slice_bits, 0);
  EXPECT_EQ(partition.segments[0].flags, kUniformSegment);
}

TEST(Segment, UniformRunsOfAllSizesSideBySide) {
  Rng rng(21);
  std::vector<Records> runs;
  for (const size_t count : {30'000, 1, 7, 20'000, 150})
    runs.push_back(test::random_records(rng, count, 8, 40));
  const auto partition = checked_epoch(runs);
  EXPECT_EQ(partition.segments[0].flags, kUniformSegment);
  EXPECT_EQ(partition.segments[0].slice_bits, 4);
  EXPECT_EQ(partition.segments[0].runs, 5u);
}

TEST(Segment, UniformRunsOfDifferentSizesMakeAMixedSegment) {
  Rng rng(22);
  const auto partition =
      checked_epoch({test::random_records(rng, 3000, 8, 40), test::random_records(rng, 3000, 8, 41),
                     test::random_records(rng, 9, 1, 0)});
  EXPECT_EQ(partition.segments[0].flags, 0);
}

TEST(Segment, VariableRunsAndUniformOnesSideBySide) {
  Rng rng(23);
  const auto partition = checked_epoch({mixed_records(rng, 9000, 100), test::random_records(rng, 5000, 8, 40),
                                        mixed_records(rng, 3, 10), mixed_records(rng, 40, kValueBytesMax)});
  EXPECT_EQ(partition.segments[0].flags, 0);
  EXPECT_EQ(partition.segments[0].slice_bits, 2);
}

TEST(Segment, RecordsThatEndAtTheSeamOfBlocks) {
  Rng rng(24);
  Records records;
  for (int i = 0; i < 300;
       ++i) {  // 4,080 bytes each, behind a first one that fills the header's block, or nearly
    records.emplace_back(test::random_bytes(rng, 8),
                         test::random_bytes(rng, 4080 - 11 - (i % 10 == 0 ? 1 : 0)));
  }
  for (size_t first = 4004; first < 4008; ++first) {
    Records one = records;
    one.emplace_back(test::random_bytes(rng, 8), test::random_bytes(rng, first));
    checked_epoch({one});
  }
  // All of one key, so that the order is known: 64 + 4,016 is the first block, 4,080 each of the others.
  Records seams = {{"12345678", std::string(4005, 'a')}};
  for (char c = 'b'; c < 'k'; ++c) seams.emplace_back("12345678", std::string(4069, c));
  const auto partition = checked_epoch({seams});
  EXPECT_EQ(partition.data.size(), 10 * kBlockBytes);
}

TEST(Segment, AHotKeyOverflowsItsSlice) {
  Rng rng(25);
  Records uniform = test::random_records(rng, 30'000, 8, 4);
  Records variable = mixed_records(rng, 8'000, 8);
  for (int i = 0; i < 4000; ++i) {
    uniform.emplace_back("hot key!", "abcd");
    variable.emplace_back("hot key!", std::to_string(i));
  }
  const auto partition = checked_epoch({uniform, variable, uniform});
  EXPECT_GT(partition.segments[0].overflow_units, 0u);
  const Found found = partition.find("hot key!", partition.segments[0]);
  EXPECT_EQ(found.values.size(), 12'000u);
  EXPECT_EQ(found.values[4000], "0");  // run by run, each in its own order
  EXPECT_EQ(found.values[7999], "3999");
  // Nobody else pays: the stride is about what the other slices need.
  EXPECT_LT(partition.segments[0].stride, 8000u);
}

TEST(Segment, AllRecordsOfOneKey) {
  Records records;
  for (int i = 0; i < 20'000; ++i) records.emplace_back("one", "");
  PartitionInMemory partition;
  partition.add_run(records);
  partition.finish_epoch();
  EXPECT_EQ(partition.find("one", partition.segments[0]).values.size(), 20'000u);
  EXPECT_LT(partition.index.size(), 36'000u);  // 9 bits each, a short stride, the footer
}

TEST(Segment, AnEpochWithoutRecordsHasNoSlice) {
  PartitionInMemory partition;
  partition.finish_epoch();
  EXPECT_EQ(partition.segments[0].runs, 0u);
  EXPECT_EQ(segment_bytes(partition.segments[0]), 0u);
  EXPECT_FALSE(locate_slice(partition.segments[0], 0x1234).has_value());
  EXPECT_LE(partition.index.size(), 128u);  // the footer
}

TEST(Segment, LaterEpochsStandOnTheirOwn) {
  Rng rng(26);
  PartitionInMemory partition;
  const Records same = test::random_records(rng, 500, 8, 40);
  for (int epoch = 0; epoch < 3; ++epoch) {
    partition.add_run(same);
    partition.add_run(test::random_records(rng, 5000, 8, 40));
    partition.finish_epoch();
  }
  for (const SegmentRecord& segment : partition.segments) {
    expect_all_found(partition, segment);
    const Found found = partition.find(same[0].first, segment);
    EXPECT_EQ(found.values, std::vector<std::string>{same[0].second});
  }
}

TEST(Segment, BytesDoNotDependOnHowTheyAreFetched) {
  Rng rng(27);
  const Records records = test::random_records(rng, 20'000, 8, 3);
  std::vector<std::string> logs;
  for (const size_t size : {1, 2, 100}) {
    PartitionInMemory partition;
    partition.add_run(records, size);
    partition.add_run({{"hot", "x"}, {"hot", "y"}}, size);
    partition.finish_epoch(size);
    logs.push_back(partition.data + partition.index);
  }
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_EQ(logs[0], logs[2]);
}

// load / 256 for each run: an absent key meets `load` records in its bucket, each agrees in 8 bits by chance.
TEST(Segment, FalseCandidatesAreAsRareAsTheoryHasThem) {
  Rng rng(28);
  PartitionInMemory partition;
  double expected = 0;
  for (const size_t count : {92'000, 60'000, 3'000, 500}) {
    partition.add_run(test::random_records(rng, count, 8, 1));
    const double buckets = static_cast<double>(uint64_t{1} << natural_bucket_bits(count));
    expected += static_cast<double>(count) / buckets / 256;
  }
  partition.finish_epoch();
  const SegmentRecord& segment = partition.segments[0];
  constexpr size_t kQueries = 40'000;
  size_t candidates = 0;
  for (size_t i = 0; i < kQueries; ++i) {
    const Hash rest = rng.next();
    auto slice = partition.open_slice(segment, *locate_slice(segment, rest));
    ASSERT_TRUE(slice.ok());
    ASSERT_TRUE(slice->candidates(rest, [&](const Candidate&) { ++candidates; }).ok());
  }
  const double rate = static_cast<double>(candidates) / kQueries;
  EXPECT_GT(rate, 0.85 * expected);
  EXPECT_LT(rate, 1.15 * expected);
  EXPECT_LT(rate / segment.runs, 0.0056);
}

TEST(Segment, AbsentKeysHaveNoValues) {
  Rng rng(29);
  PartitionInMemory partition;
  partition.add_run(test::random_records(rng, 50'000, 8, 4));
  partition.add_run(mixed_records(rng, 20'000, 30));
  partition.finish_epoch();
  size_t false_candidates = 0;
  for (int i = 0; i < 3000; ++i) {
    const Found found = partition.find(test::random_bytes(rng, 21), partition.segments[0]);
    ASSERT_TRUE(found.status.ok()) << found.status.to_string();
    EXPECT_TRUE(found.values.empty());
    false_candidates += found.false_candidates;
  }
  EXPECT_GT(false_candidates, 0u);  // the test did meet some
}

// The project's promise is 1.031 for 4 M records (docs/design/run-format.md); fewer records pad more.
TEST(Segment, BytesPerByteStayNearThePromise) {
  Rng rng(30);
  PartitionInMemory partition;
  constexpr size_t kRun = 180'000;
  for (int run = 0; run < 2; ++run) partition.add_run(test::random_records(rng, kRun, 8, 40), 256);
  partition.finish_epoch();
  const double ratio =
      static_cast<double>(partition.data.size() + partition.index.size()) / (2.0 * kRun * 48);
  EXPECT_LT(ratio, 1.033);
  EXPECT_GT(ratio, 1.028);  // else this test counts wrongly
}

// Row numbers of a uniform segment have 32 bits: an epoch beyond them takes the longer piece headers.
TEST(Segment, FarRunsOfAHugeEpochAreNamed) {
  Rng rng(32);
  PartitionInMemory partition;
  const Records records = test::random_records(rng, 1000, 8, 40);
  partition.add_run(records);
  constexpr uint32_t kFar = 60'000'000;  // blocks of 85 rows: 5.1 * 10^9
  std::vector<RunSketch> sketches = partition.sketches;
  sketches[0].first_block = BlockNumber(kFar);
  SegmentBuilder builder(sketches,
                         {.partition = PartitionNumber(7), .data_blocks = kFar + sketches[0].blocks});
  std::vector<char> out(round_up(builder.size_bytes(), kIndexPageBytes));
  ASSERT_EQ(builder.fill(out), builder.size_bytes());
  const SegmentRecord segment = builder.record(0);
  EXPECT_EQ(segment.flags, 0);
  const Hash rest = test::rest_of(records[0].first);
  const auto slice = Slice::open(segment, PartitionNumber(7), *locate_slice(segment, rest),
                                 {out.data(), segment.stride}, "index");
  ASSERT_TRUE(slice.ok()) << slice.status().to_string();
  size_t found = 0;
  ASSERT_TRUE(slice
                  ->candidates(rest,
                               [&](Candidate candidate) {
                                 EXPECT_GE(candidate.block, kFar);
                                 candidate.block = candidate.block - kFar;
                                 BlockWalk walk;
                                 const auto match = RecordMatch::in_verified(
                                     candidate,
                                     Bytes(partition.data).substr(candidate.block * kBlockBytes, kBlockBytes),
                                     records[0].first, &walk, "data");
                                 ASSERT_TRUE(match.ok());
                                 found += *match && (*match)->value == records[0].second ? 1 : 0;
                               })
                  .ok());
  EXPECT_EQ(found, 1u);
}

TEST(Slice, RefusesBytesOfAnotherPlace) {
  Rng rng(31);
  PartitionInMemory partition;
  partition.add_run(test::random_records(rng, 30'000, 8, 4));
  partition.finish_epoch();
  const SegmentRecord& segment = partition.segments[0];
  const SliceLocation one = slice_location(segment, 1);
  const Bytes bytes = Bytes(partition.index).substr(one.offset, one.bytes);
  EXPECT_TRUE(Slice::open(segment, PartitionNumber(7), one, bytes, "index").ok());

  const auto expect_refused = [&](const SegmentRecord& record, uint32_t slot, PartitionNumber of_partition,
                                  Bytes what) {
    const auto slice =
        Slice::open(record, of_partition, slice_location(record, slot), what, "part-000007.index");
    EXPECT_EQ(slice.status().code(), Code::kCorruption);
    EXPECT_NE(slice.status().message().find("part-000007.index"), std::string_view::npos);
  };
  expect_refused(segment, 2, PartitionNumber(7), bytes);  // another slice
  expect_refused(segment, 1, PartitionNumber(8), bytes);  // another partition
  expect_refused(segment, 1, PartitionNumber(7), bytes.substr(1));
  expect_refused(segment, 1, PartitionNumber(7), {});
  SegmentRecord other = segment;
  other.epoch_id += 1;
  expect_refused(other, 1, PartitionNumber(7), bytes);  // left over from an epoch that was given up
}

}  // namespace
}  // namespace swale::run::segment_test
