// Directories whose keys are spread by functions of the caller's.
#include "imd/format/partitioner.h"
#include "imd/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "imd/check/repair.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/partition_files.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd::partitioner_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kKeys = 3'000;

std::string key_of(uint64_t number) { return fmt::format("{:06}", number); }

// By the last digit of the key: nothing to do with its hash.
uint32_t by_digit(void* context, const void* key, size_t key_bytes, uint32_t partitions) {
  if (context != nullptr) ++*static_cast<std::atomic<uint64_t>*>(context);
  return static_cast<uint32_t>(static_cast<const char*>(key)[key_bytes - 1] - '0') % partitions;
}
uint32_t everything_to_the_last(void*, const void*, size_t, uint32_t partitions) { return partitions - 1; }
uint32_t nowhere(void*, const void* key, size_t key_bytes, uint32_t partitions) {
  return static_cast<const char*>(key)[key_bytes - 1] == '7' ? partitions : 0;
}

// One epoch, `value` for every key; each rank appends its share.
void write_epoch(io::Device& device, int32_t ranks, uint32_t ways, const Partitioner& partitioner,
                 const std::string& value) {
  run_ranks(ranks, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 8 * kMiB;
    options.ways = ways;
    options.partitioner = partitioner;
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint64_t i = 0; i < kKeys; ++i) {
      if (i % static_cast<uint64_t>(ranks) != static_cast<uint64_t>(job.rank())) continue;
      ASSERT_TRUE((*writer)->append(key_of(i), value + key_of(i)).ok());
    }
    const Status ended = (*writer)->epoch_end(1, 1);
    ASSERT_TRUE(ended.ok()) << ended.to_string();
    ASSERT_TRUE((*writer)->close().ok());
  });
}

void expect_all(Reader& reader, const std::vector<std::string>& values) {
  for (uint64_t i = 0; i < kKeys; i += 13) {
    const auto found = reader.get(key_of(i), Reader::kAllEpochs);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    ASSERT_EQ(found->size(), values.size());
    for (size_t epoch = 0; epoch < values.size(); ++epoch) {
      EXPECT_EQ((*found)[epoch].epoch, epoch);
      EXPECT_EQ((*found)[epoch].bytes, values[epoch] + key_of(i));
    }
  }
  EXPECT_EQ(reader.get("absent", Reader::kAllEpochs).status().code(), Code::kNotFound);
  std::vector<std::string> names;
  for (uint64_t i = 0; i < kKeys; ++i) names.push_back(key_of(i));
  names.push_back("absent7");
  const std::vector<Bytes> keys(names.begin(), names.end());
  std::set<std::pair<size_t, uint32_t>> seen;
  const auto found = reader.get_many(keys, Reader::kAllEpochs, [&](size_t key, uint32_t epoch, Bytes value) {
    EXPECT_EQ(value, values[epoch] + names[key]);
    EXPECT_TRUE(seen.emplace(key, epoch).second);
    return true;
  });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, kKeys);
  EXPECT_EQ(seen.size(), kKeys * values.size());
}

class PartitionedJobs : public testing::TestWithParam<std::tuple<int32_t, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, PartitionedJobs,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(1u, 3u)));

TEST_P(PartitionedJobs, AreReadWithTheFunctionAndWithout) {
  const auto [ranks, ways] = GetParam();
  io::MemoryDevice device;
  std::atomic<uint64_t> calls{0};
  write_epoch(device, ranks, ways, {"digit-1", by_digit, &calls}, "a");
  EXPECT_GE(calls.load(), kKeys);
  const auto without = Reader::open(device, "/dir", {}).value();
  EXPECT_EQ(without->manifest().jobs[0].partitioner, "digit-1");
  expect_all(*without, {"a"});
  const auto with = Reader::open(device, "/dir", {}).value();
  ASSERT_TRUE(with->set_partitioner({"digit-1", by_digit, &calls}).ok());
  expect_all(*with, {"a"});
  // The records lie where the function says, and nowhere else.
  const auto partitions = static_cast<uint32_t>(ranks);
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    const Status scanned = with->scan_part(0, partition, partitions, [&](uint32_t, Bytes key, Bytes) {
      EXPECT_EQ(by_digit(nullptr, key.data(), key.size(), partitions), partition);
      return true;
    });
    EXPECT_TRUE(scanned.ok()) << scanned.to_string();
  }
  size_t keys = 0;
  ASSERT_TRUE(with->keys(0, [&](Bytes) { return ++keys; }).ok());
  EXPECT_EQ(keys, kKeys);
  const VerifyReport report = verify_directory(*without, 10);
  EXPECT_TRUE(report.problems.empty()) << report.problems[0].to_string();
  EXPECT_EQ(report.records, kKeys);
}

TEST(Partitioner, AReaderThatKnowsItAsksOnePartition) {
  io::MemoryDevice device;
  write_epoch(device, 4, 1, {"digit-1", by_digit, nullptr}, "a");
  const auto reads = [&](bool known) {
    const auto reader = Reader::open(device, "/dir", {}).value();
    if (known) {
      EXPECT_TRUE(reader->set_partitioner({"digit-1", by_digit, nullptr}).ok());
    }
    EXPECT_TRUE(reader->get(key_of(5), 0).ok());  // footers
    EXPECT_TRUE(reader->get(key_of(6), 0).ok());
    const uint64_t before = reader->stats().reads;
    EXPECT_TRUE(reader->get(key_of(5), 0).ok());
    return reader->stats().reads - before;
  };
  EXPECT_EQ(reads(true), 2u) << "slice and block";
  EXPECT_GE(reads(false), 5u) << "four slices and a block: the canary";
}

TEST(Partitioner, EachJobHasItsOwn) {
  io::MemoryDevice device;
  write_epoch(device, 2, 1, {}, "a");
  write_epoch(device, 4, 1, {"digit-1", by_digit, nullptr}, "b");
  write_epoch(device, 3, 2, {"last", everything_to_the_last, nullptr}, "c");
  write_epoch(device, 2, 1, {}, "d");
  const auto reader = Reader::open(device, "/dir", {}).value();
  expect_all(*reader, {"a", "b", "c", "d"});
  ASSERT_TRUE(reader->set_partitioner({"last", everything_to_the_last, nullptr}).ok());
  expect_all(*reader, {"a", "b", "c", "d"});
  ASSERT_TRUE(reader->set_partitioner({"digit-1", by_digit, nullptr}).ok());
  expect_all(*reader, {"a", "b", "c", "d"});
  EXPECT_EQ(reader->epoch_stats(2)->at(Stat::kIndexedRecords).max_rank, 2);
  EXPECT_EQ(reader->epoch_stats(2)->at(Stat::kIndexedRecords).min, 0u);
  EXPECT_TRUE(verify_directory(*reader, 10).problems.empty());
}

TEST(Partitioner, AnAnswerOutsideIsAnErrorThatChangesNothing) {
  for (const int32_t ranks : {1, 2, 4}) {
    io::MemoryDevice device;
    run_ranks(ranks, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 6 * kMiB;
      options.partitioner = {"odd", nowhere, nullptr};
      auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options).value();
      size_t refused = 0;
      for (uint64_t i = 0; i < 100; ++i) {
        const Status status = writer->append(key_of(i), "v");
        EXPECT_EQ(status.code(), i % 10 == 7 ? Code::kInvalidArgument : Code::kOk);
        refused += status.ok() ? 0 : 1;
        if (!status.ok()) {
          EXPECT_THAT(status.message(), HasSubstr(fmt::format("\"odd\" answered {}", ranks)));
        }
      }
      EXPECT_EQ(refused, 10u);
      ASSERT_TRUE(writer->epoch_end(0, 0).ok());
      ASSERT_TRUE(writer->close().ok());
    });
    EXPECT_EQ(Reader::open(device, "/dir", {}).value()->count(0).value(), 90u * static_cast<uint64_t>(ranks));
  }
}

// Those go to the value log first: nothing of a refused one may stay there.
TEST(Partitioner, LargeValuesWithoutAHomeLeaveNothingBehind) {
  for (const int32_t ranks : {1, 2}) {
    io::MemoryDevice device;
    const std::string large(100'000, 'v');
    run_ranks(ranks, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 6 * kMiB;
      options.partitioner = {"odd", nowhere, nullptr};
      auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options).value();
      for (uint64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(writer->append(key_of(i), large).code(), i % 10 == 7 ? Code::kInvalidArgument : Code::kOk);
      }
      const Status ended = writer->epoch_end(0, 0);
      ASSERT_TRUE(ended.ok()) << ended.to_string();
      ASSERT_TRUE(writer->close().ok());
    });
    const auto reader = Reader::open(device, "/dir", {}).value();
    EXPECT_EQ(reader->count(0).value(), 18u * static_cast<uint64_t>(ranks));
    EXPECT_EQ(reader->get(key_of(8), 0)->front().bytes, large);
    EXPECT_EQ(reader->get(key_of(7), 0).status().code(), Code::kNotFound);
    const VerifyReport report = verify_directory(*reader, 10);
    EXPECT_TRUE(report.problems.empty()) << report.problems[0].to_string();
  }
}

TEST(Partitioner, AnotherFunctionUnderTheSameNameIsRefused) {
  io::MemoryDevice device;
  write_epoch(device, 4, 1, {"digit-1", by_digit, nullptr}, "a");
  const auto reader = Reader::open(device, "/dir", {}).value();
  const Status status = reader->set_partitioner({"digit-1", everything_to_the_last, nullptr});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("digit-1"));
  expect_all(*reader, {"a"});
}

TEST(Partitioner, RepairMakesADamagedIndexAnew) {
  io::MemoryDevice device;
  const Partitioner partitioner{"digit-1", by_digit, nullptr};
  write_epoch(device, 3, 2, partitioner, "a");
  write_epoch(device, 3, 1, partitioner, "b");
  ASSERT_TRUE(device.remove(index_log_path("/dir", {1, PartitionNumber(1)})).ok());
  EXPECT_EQ(Reader::open(device, "/dir", {}).value()->get(key_of(4), 0).status().code(), Code::kCorruption);
  const auto report = repair_directory(device, "/dir", {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->indexes_rebuilt, 1U);
  EXPECT_TRUE(report->lost.empty());
  auto reader = Reader::open(device, "/dir", {}).value();
  expect_all(*reader, {"a", "b"});
  ASSERT_TRUE(reader->set_partitioner(partitioner).ok());
  expect_all(*reader, {"a", "b"});
  EXPECT_TRUE(verify_directory(*reader, 10).problems.empty());
}

// The name is lost, and nothing else: all partitions are asked.
TEST(Partitioner, RepairMakesALostManifestAnew) {
  for (const bool by_hash_first : {false, true}) {
    io::MemoryDevice device;
    const Partitioner partitioner{"digit-1", by_digit, nullptr};
    if (by_hash_first) write_epoch(device, 2, 1, {}, "a");
    write_epoch(device, 3, 2, partitioner, "b");
    for (uint32_t job = 0; job <= 2; ++job) {
      for (const std::string& path :
           {manifest_path("/dir"), generation_path("/dir", job), epoch_log_path("/dir", job)})
        static_cast<void>(device.remove(path));
    }
    const auto report = repair_directory(device, "/dir", {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->lost_parts, 0u);
    EXPECT_THAT(report->lost, testing::Contains(HasSubstr(
                                  fmt::format("name of the partitioner of job {}", by_hash_first ? 2 : 1))));
    auto reader = Reader::open(device, "/dir", {}).value();
    EXPECT_EQ(reader->manifest().jobs.back().ranks, 3);
    EXPECT_EQ(reader->manifest().jobs.back().ways, 2u);
    const auto values = by_hash_first ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"b"};
    expect_all(*reader, values);
    ASSERT_TRUE(reader->set_partitioner(partitioner).ok());
    expect_all(*reader, values);
    EXPECT_TRUE(verify_directory(*reader, 10).problems.empty());
    write_epoch(device, 2, 1, {}, "c");  // the lock was given back
  }
}

TEST(Partitioner, NamesAndFunctionsGoTogetherOnAllRanks) {
  EXPECT_TRUE(Partitioner().check().ok());
  EXPECT_TRUE((Partitioner{"a", by_digit, nullptr}.check().ok()));
  for (const Partitioner& wrong : {Partitioner{"a", nullptr, nullptr}, Partitioner{"hash", by_digit, nullptr},
                                   Partitioner{"", by_digit, nullptr}, Partitioner{"a b", by_digit, nullptr},
                                   Partitioner{std::string(65, 'a'), by_digit, nullptr}}) {
    EXPECT_EQ(wrong.check().code(), Code::kInvalidArgument) << wrong.name;
  }
  io::MemoryDevice device;
  std::atomic<int> refused{0};
  run_ranks(3, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 6 * kMiB;
    if (job.rank() == 2) options.partitioner = {"digit-1", by_digit, nullptr};
    const auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    EXPECT_EQ(writer.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(writer.status().message(), HasSubstr("rank 2 with imd.partitioner=\"digit-1\""));
    ++refused;
  });
  EXPECT_EQ(refused.load(), 3);
}

}  // namespace
}  // namespace swale::imd::partitioner_test
