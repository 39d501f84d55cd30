#include "imd/format/stats_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::stats_log_test {
namespace {

using testing::HasSubstr;

EpochStats some_stats(uint64_t ranks, uint64_t seed) {
  EpochStats merged;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    RankStats stats;
    stats.add(Stat::kAppendRecords, seed * 1'000 + rank);
    stats.add(Stat::kSortNanos, 5 * seed + rank % 3);
    merged.merge(EpochStats::of(static_cast<net::Rank>(rank), stats));
  }
  return merged;
}

TEST(StatsLog, LinesComeBackByEpochIdAlsoThoseAddedLater) {
  io::MemoryDevice device;
  ASSERT_TRUE(io::make_directories(device, job_folder("/dir", 1)).ok());
  StatsReader reader(device, "/dir", 1);
  EXPECT_EQ(reader.get(1).status().code(), Code::kNotFound) << "no file yet";
  StatsLog log(device, "/dir", 1);
  for (uint64_t id = 1; id <= 300; ++id) {
    log.append(id, EpochNumber(static_cast<uint32_t>(id)), some_stats(1 + id % 5, id));
    if (id % 7 != 0) continue;
    const Result<EpochStats> found = reader.get(id);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(*found, some_stats(1 + id % 5, id));
  }
  log.sync();
  for (uint64_t id = 1; id <= 300; ++id) EXPECT_EQ(*reader.get(id), some_stats(1 + id % 5, id));
  EXPECT_EQ(reader.get(301).status().code(), Code::kNotFound);
}

// What docs/design/statistics.md reckons with.
TEST(StatsLog, ALineOfManyRanksIsShort) {
  EpochStats merged;
  RankStats stats;
  for (const StatRow& row : stat_rows()) stats.add(row.stat, 123'456'789'012);
  for (net::Rank rank = 0; rank < 3; ++rank) merged.merge(EpochStats::of(rank + 100'000, stats));
  const std::string line = encode_stats_line(7, EpochNumber(7), merged);
  std::printf("%zu bytes a line\n", line.size());
  EXPECT_LT(line.size(), 2'600u);
  EXPECT_EQ(*decode_stats_line(line, "x", 0), merged);
}

TEST(StatsLog, ALineThatIsNestedDeeplyIsDamage) {
  const std::string nested = std::string(30'000, '[') + std::string(30'000, ']');
  const std::string covered =
      "{\"epoch_id\":\"0000000000000007\",\"ranks\":1,\"stats\":{\"x\":" + nested + "}";
  const std::string line = covered + "," + seal_of(covered + ",");
  EXPECT_EQ(decode_stats_line(line, "x", 0).status().code(), Code::kCorruption);
}

// The front of a line that a crash left is cut off by the next writer; one that stands in the middle is
// passed over. What a crash leaves of a line; and another job's log has nothing to do with it.
TEST(StatsLog, ATornLineIsPassedOver) {
  const std::string torn = encode_stats_line(9, EpochNumber(9), some_stats(3, 9));
  size_t points = 0;
  for (size_t length = 0; length < torn.size(); ++length, ++points) {
    io::MemoryDevice device;
    ASSERT_TRUE(io::make_directories(device, job_folder("/dir", 1)).ok());
    StatsLog log(device, "/dir", 1);
    log.append(1, EpochNumber(1), some_stats(2, 1));
    auto file = device.open(stats_path("/dir", 1), io::OpenMode::kReadWrite).value();
    const uint64_t at = file->size().value();
    ASSERT_TRUE(file->pwrite(at, torn.substr(0, length)).ok());
    StatsReader reader(device, "/dir", 1);
    EXPECT_EQ(*reader.get(1), some_stats(2, 1));
    EXPECT_EQ(reader.get(9).status().code(), Code::kNotFound);
    // It was being written: the same reader finds it when it is whole.
    ASSERT_TRUE(file->pwrite(at + length, torn.substr(length)).ok());
    EXPECT_EQ(*reader.get(9), some_stats(3, 9));
  }
  std::printf("%zu places of a tear\n", points);
}

TEST(StatsLog, EveryFlippedBitIsAnErrorOrNoLineAtAll) {
  const std::string line = encode_stats_line(9, EpochNumber(9), some_stats(3, 9));
  size_t refused = 0;
  for (size_t bit = 0; bit < line.size() * 8; ++bit) {
    std::string damaged = line;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const Result<EpochStats> decoded = decode_stats_line(damaged, "DIR/stats.jsonl", 4711);
    EXPECT_EQ(decoded.status().code(), Code::kCorruption);
    EXPECT_THAT(decoded.status().message(), HasSubstr("DIR/stats.jsonl: offset 4711"));
    ++refused;
    io::MemoryDevice device;
    ASSERT_TRUE(io::make_directories(device, job_folder("/dir", 1)).ok());
    auto file = device.open(stats_path("/dir", 1), io::OpenMode::kCreate).value();
    ASSERT_TRUE(file->pwrite(0, damaged).ok());
    StatsReader reader(device, "/dir", 1);
    const Code code = reader.get(9).status().code();
    EXPECT_TRUE(code == Code::kCorruption || code == Code::kNotFound) << bit;
  }
  EXPECT_TRUE(decode_stats_line(line, "x", 0).ok()) << "the canary: undamaged, it is read";
  std::printf("%zu flipped bits refused\n", refused);
}

TEST(StatsLog, NonsenseWithARightChecksumIsRefused) {
  for (const char* text :
       {"", "[1]", "{", R"({"ranks":1})", R"({"ranks":0,"stats":{}})", R"({"ranks":-1,"stats":{}})",
        R"({"ranks":1,"stats":[]})", R"({"ranks":1,"stats":{"sort.time":-1}})",
        R"({"ranks":1,"stats":{"sort.time":"1"}})", R"({"ranks":1,"stats":{"sort.time":[1,2,3,4]}})",
        R"({"ranks":1,"stats":{"sort.time":[1,2,4294967296,4,5]}})", R"({"ranks":99999999999,"stats":{}})"}) {
    std::string line = text;
    if (!line.empty() && line.back() == '}') line.back() = ',';
    const Status status = decode_stats_line(
                              line +
                                  [&] {
                                    char seal[64];
                                    std::snprintf(seal, sizeof seal, "\"crc32c\":\"%08x\"}\n", crc32c(line));
                                    return std::string(seal);
                                  }(),
                              "x", 0)
                              .status();
    EXPECT_EQ(status.code(), Code::kCorruption) << text;
  }
}

void write_epochs(io::Device& device, int32_t ranks, uint32_t epochs,
                  std::vector<MetricsSnapshot>* metrics = nullptr) {
  run_ranks(ranks, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 6 * kMiB;
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      // Rank r appends (r + 1) · 20,000 records.
      for (int i = 0; i < 20'000 * (job.rank() + 1); ++i) {
        ASSERT_TRUE((*writer)->append(fmt::format("{:04}/{:08}", job.rank(), i), std::string(40, 'v')).ok());
      }
      const Status ended = (*writer)->epoch_end(epoch, epoch);
      ASSERT_TRUE(ended.ok()) << ended.to_string();
    }
    if (metrics != nullptr && job.rank() == 0) metrics->push_back((*writer)->metrics());
    ASSERT_TRUE((*writer)->close().ok());
  });
}

class EpochsOfRanks : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EpochsOfRanks, testing::Values(1, 2, 4, 11));

TEST_P(EpochsOfRanks, AreKeptWithWhatEveryStageDid) {
  const int32_t ranks = GetParam();
  const auto wide = static_cast<uint64_t>(ranks);
  io::MemoryDevice device;
  std::vector<MetricsSnapshot> metrics;
  write_epochs(device, ranks, 2, &metrics);
  auto reader = Reader::open(device, "/dir", {}).value();
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const Result<EpochStats> found = reader->epoch_stats(epoch);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    const EpochStats& stats = *found;
    EXPECT_EQ(stats.ranks, wide);
    const uint64_t records = 20'000 * wide * (wide + 1) / 2;
    EXPECT_EQ(stats.at(Stat::kAppendRecords), (MergedStat{records, 20'000, 20'000 * wide, 0, ranks - 1}));
    EXPECT_EQ(stats.at(Stat::kAppendBytes).sum, records * (13 + 40));
    EXPECT_EQ(stats.at(Stat::kIndexedRecords).sum, records);
    EXPECT_GE(stats.at(Stat::kWriteDataBytes).sum, records * (13 + 40));
    EXPECT_GT(stats.at(Stat::kWriteIndexBytes).min, 0u) << "every rank has a footer";
    EXPECT_GE(stats.at(Stat::kSortRuns).min, 1u);
    EXPECT_GE(stats.at(Stat::kIndexSegments).min, 1u);
    for (const Stat stat : {Stat::kSortNanos, Stat::kIndexNanos, Stat::kWriteNanos, Stat::kEpochOpenNanos,
                            Stat::kEpochFlushNanos, Stat::kWriteRequests, Stat::kWriteRequestsMax}) {
      EXPECT_GT(stats.at(stat).min, 0u) << static_cast<int>(stat);
    }
    EXPECT_GT(stats.at(Stat::kCommitNanos).sum, 0u);
    EXPECT_EQ(stats.at(Stat::kCommitNanos).max_rank, 0);
    EXPECT_EQ(stats.at(Stat::kNetworkFrames).sum > 0, ranks > 1);
    EXPECT_LE(stats.at(Stat::kNetworkBytes).sum, records * (13 + 40 + 2));
    EXPECT_EQ(stats.at(Stat::kNetworkBytes).sum > 0, ranks > 1);
  }
  const auto named = [&](std::string_view name) {
    for (const Metric& metric : metrics[0]) {
      if (metric.name == name) return metric.value;
    }
    ADD_FAILURE() << name;
    return uint64_t{0};
  };
  EXPECT_EQ(named("append.records"), 40'000u) << "over both epochs, of rank 0";
  EXPECT_EQ(named("epochs.committed"), 2u);
  EXPECT_EQ(reader->epoch_stats(2).status().code(), Code::kInvalidArgument);
}

// Statistics are no part of the promise: what they cannot write, the epochs do not miss.
TEST(StatsOfADirectory, AreNotMissedWhenTheyCannotBeWritten) {
  size_t failed = 0;
  for (uint64_t call = 1; call <= 3; ++call) {
    io::MemoryDevice memory;
    io::FaultDevice device(memory);
    io::Fault fault;
    fault.path_part = "stats.jsonl";
    fault.nth = call;
    fault.from_then_on = true;
    device.inject(fault);
    write_epochs(device, 2, 2);
    auto reader = Reader::open(memory, "/dir", {}).value();
    ASSERT_EQ(reader->manifest().epochs.size(), 2u);
    for (int64_t epoch = 0; epoch < 2; ++epoch) failed += reader->epoch_stats(epoch).ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 0u) << "no fault has struck";
}

TEST(StatsOfADirectory, OldDirectoriesHaveNone) {
  io::MemoryDevice device;
  write_epochs(device, 1, 1);
  ASSERT_TRUE(device.remove(stats_path("/dir", 1)).ok());
  auto reader = Reader::open(device, "/dir", {}).value();
  const Status status = reader->epoch_stats(0).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("kept none"));
}

}  // namespace
}  // namespace swale::imd::stats_log_test
