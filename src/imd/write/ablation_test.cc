// What make bench-imd-ablation switches off: the directory is the same without it.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/coding.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/limited_device.h"
#include "io/memory_device.h"

namespace swale::imd::ablation_test {
namespace {

constexpr uint32_t kEpochs = 3;
constexpr uint64_t kRecords = 60'000;  // of each rank and epoch: several memtables

std::string key_of(uint64_t number) {
  std::string key;
  append_u64(&key, number);
  return key;
}

uint64_t metric(const Writer& writer, const std::string& name) {
  for (const Metric& metric : writer.metrics()) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

struct Shape {
  int32_t ranks;
  uint32_t ways;
  Ablation ablation;
};

// Returns how long progress threads waited for room.
uint64_t write_and_check(const Shape& shape) {
  io::MemoryDevice memory;
  io::LimitedDevice device(memory, 40'000'000);  // slower than the records come
  std::atomic<uint64_t> waited = 0;
  run_ranks(shape.ranks, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 4 * kMiB;
    options.ways = shape.ways;
    options.ablation = shape.ablation;
    auto opened = Writer::open(job, device, "/dir", Writer::Create::kExclusive, options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    Writer& writer = **opened;
    for (uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (uint64_t i = 0; i < kRecords; ++i) {
        const Status appended = writer.append(key_of(static_cast<uint64_t>(job.rank()) * kRecords + i),
                                              std::string(40, static_cast<char>('a' + epoch)));
        ASSERT_TRUE(appended.ok()) << appended.to_string();
      }
      ASSERT_TRUE(writer.epoch_end_wait().ok());
      ASSERT_TRUE(writer.epoch_end_begin(epoch, 0).ok());
    }
    ASSERT_TRUE(writer.epoch_end_wait().ok());
    waited += metric(writer, "progress_waited");
    EXPECT_TRUE(writer.close().ok());
  });
  auto reader = Reader::open(memory, "/dir", {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  const VerifyReport report = verify_directory(**reader, 10);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_EQ(report.records, kEpochs * kRecords * static_cast<uint64_t>(shape.ranks));
  return waited;
}

TEST(Ablation, WithTheDeliveryQueueTheProgressThreadNeverWaits) {
  EXPECT_EQ(write_and_check({3, 1, {}}), 0u);
}

TEST(Ablation, WithoutItTheProgressThreadWaitsAndTheDirectoryIsTheSame) {
  for (const uint32_t ways : {1u, 2u}) {
    EXPECT_GT(write_and_check({3, ways, {Ablation::Delivery::kWait, 0}}), 0u);
  }
}

TEST(Ablation, SortingAndWritingInTurnsGivesTheSameDirectory) {
  for (const int32_t ranks : {1, 2}) {
    for (const uint32_t ways : {1u, 3u}) write_and_check({ranks, ways, {Ablation::Delivery::kQueue, 1}});
  }
}

}  // namespace
}  // namespace swale::imd::ablation_test
