// Epochs that overlap, and background threads at rest, with real threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/check/verify.h"
#include "imd/format/manifest.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd::writer_overlap_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBudget = 4 * kMiB;

std::string key_of(uint64_t number) {
  std::string key;
  append_u64(&key, number);
  return key;
}

std::unique_ptr<Writer> open_writer(net::Job& job, io::Device& device, uint32_t ways = 1) {
  WriterOptions options;
  options.memory_bytes = kBudget;
  options.ways = ways;
  auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
  EXPECT_TRUE(writer.ok()) << writer.status().to_string();
  return std::move(*writer);
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

// Keys of `epoch` with how many values each has.
std::map<std::string, int> counts_of(Reader& reader, uint32_t epoch) {
  std::map<std::string, int> counts;
  expect_ok(reader.scan(epoch, [&](uint32_t, Bytes key, Bytes) {
    ++counts[std::string(key)];
    return true;
  }));
  return counts;
}

struct Shape {
  int32_t ranks;
  uint32_t ways;
};
class Overlap : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Overlap,
                         testing::Values(Shape{1, 1}, Shape{1, 3}, Shape{2, 1}, Shape{5, 2}));

TEST_P(Overlap, WhatIsAppendedAfterTheBeginningOfTheEndBelongsToTheNextEpoch) {
  constexpr uint32_t kEpochs = 6;
  io::MemoryDevice device;
  std::mutex mutex;
  std::vector<std::map<std::string, int>> expected(kEpochs);
  run_ranks(GetParam().ranks, [&](net::Job& job) {
    const auto writer = open_writer(job, device, GetParam().ways);
    Rng rng(static_cast<uint64_t>(job.rank()) + 1);
    for (uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
      // Epochs without a record, with a few, and with several memtables.
      const uint64_t records = epoch == 2 ? 0 : epoch == 4 ? 10 : 40'000;
      std::map<std::string, int> mine;
      for (uint64_t i = 0; i < records; ++i) {
        const std::string key = key_of(rng.below(5'000));
        expect_ok(writer->append(key, std::string(40, static_cast<char>('a' + epoch))));
        ++mine[key];
      }
      expect_ok(writer->epoch_end_wait());
      expect_ok(writer->epoch_end_begin(epoch, epoch * 0.5));
      const std::lock_guard lock(mutex);
      for (const auto& [key, count] : mine) expected[epoch][key] += count;
    }
    expect_ok(writer->close());  // waits for the last one
  });
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->manifest().epochs.size(), kEpochs);
  for (uint32_t epoch = 0; epoch < kEpochs; ++epoch)
    EXPECT_EQ(counts_of(**reader, epoch), expected[epoch]) << epoch;
  for (const Status& problem : verify_directory(**reader, 10).problems) ADD_FAILURE() << problem.to_string();
}

TEST(Overlap, OneEndAtATime) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    expect_ok(writer->epoch_end_wait());  // none has begun
    expect_ok(writer->epoch_end_begin(1, 0));
    for (const Status& status : {writer->epoch_end_begin(2, 0), writer->epoch_end(2, 0)}) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("not waited for"));
    }
    expect_ok(writer->epoch_end_wait());
    expect_ok(writer->epoch_end(2, 0));
    expect_ok(writer->close());
  });
}

uint64_t data_log_bytes(io::Device& device) {
  auto file = device.open(data_log_path("/dir", {1, PartitionNumber(0)}), io::OpenMode::kRead);
  EXPECT_TRUE(file.ok());
  return *(*file)->size();
}

TEST(Pause, NothingIsWrittenUntilItMust) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    for (int way_on = 0; way_on < 2; ++way_on) {
      const uint64_t before = data_log_bytes(device);
      writer->pause();
      for (uint64_t i = 0; i < 100; ++i) expect_ok(writer->append(key_of(i), "value"));
      expect_ok(writer->epoch_end_begin(way_on, 0));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(data_log_bytes(device), before);
      if (way_on == 0) writer->resume();
      expect_ok(writer->epoch_end_wait());  // resumes if nobody has
      EXPECT_GT(data_log_bytes(device), before);
    }
    expect_ok(writer->close());
  });
}

TEST(Pause, AnAppendThatNeedsRoomGoesOn) {
  io::MemoryDevice device;
  run_ranks(1, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    writer->pause();
    for (uint64_t i = 0; i < 200'000; ++i) expect_ok(writer->append(key_of(i), std::string(40, 'x')));
    expect_ok(writer->epoch_end(0, 0));
    expect_ok(writer->close());
  });
}

TEST(Pause, RecordsOfOtherRanksAreTakenAllTheTime) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    const auto writer = open_writer(job, device);
    if (job.rank() == 1) writer->pause();
    // Several times what the sleeping rank can hold.
    for (uint64_t i = 0; job.rank() == 0 && i < 200'000; ++i)
      expect_ok(writer->append(key_of(i), std::string(40, 'x')));
    expect_ok(writer->epoch_end(0, 0));
    expect_ok(writer->close());
  });
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(*(*reader)->count(0), 200'000u);
}

}  // namespace
}  // namespace swale::imd::writer_overlap_test
