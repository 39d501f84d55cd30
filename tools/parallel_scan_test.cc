#include "tools/parallel_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "imd/testing/test_directory.h"
#include "io/memory_device.h"
#include "run/block.h"

namespace swale::tools::parallel_scan_test {
namespace {

class ParallelScan : public testing::Test {
 protected:
  // Two jobs of 3 and 2 ranks, two epochs each, many runs.
  ParallelScan() : directory_(device_, "dir") {
    for (const int32_t ranks : {3, 2}) {
      directory_.begin_job(ranks, 2);
      for (int epoch = 0; epoch < 2; ++epoch) {
        imd::test::Records records;
        for (uint64_t i = 0; i < 6'000; ++i)
          records.emplace_back(imd::test::text_key(i), std::string(40, static_cast<char>('a' + i % 26)));
        directory_.write_epoch(records, {.records_per_run = 400, .runs_per_segment = 3});
      }
    }
    reader_ = imd::Reader::open(device_, "dir", {}).value();
  }

  static bool line(const query::RecordView& record, std::string* out) {
    *out += fmt::format("{} {} {}\n", record.epoch, record.key, record.value);
    return true;
  }

  // What one thread gets from Reader::scan.
  std::string expected(int64_t epoch) {
    std::string text;
    EXPECT_TRUE(reader_
                    ->scan(epoch,
                           [&](uint32_t at, Bytes key, Bytes value) {
                             return line({at, 0, 0, key, value}, &text);
                           })
                    .ok());
    return text;
  }

  Result<uint64_t> scan(ScanJob job, std::string* text) {
    if (!job.format) job.format = line;
    if (job.epochs.empty()) job.epochs = {0, 1, 2, 3};
    job.write = [text](Bytes bytes) {
      *text += bytes;
      return true;
    };
    return parallel_scan(*reader_, job);
  }

  io::MemoryDevice device_;
  imd::test::TestDirectory directory_;
  std::unique_ptr<imd::Reader> reader_;
};

TEST_F(ParallelScan, WritesWhatOneThreadWouldInItsOrder) {
  size_t scans = 0;
  for (const int64_t epoch : {imd::Reader::kAllEpochs, int64_t{0}, int64_t{3}}) {
    const std::string all = expected(epoch);
    for (const unsigned threads : {1U, 2U, 5U}) {
      for (const uint64_t blocks_min : {1, 8, 1'000}) {
        std::string text;
        ScanJob job{.threads = threads, .blocks_min = blocks_min};
        if (epoch != imd::Reader::kAllEpochs) job.epochs = {static_cast<uint32_t>(epoch)};
        const auto written = scan(std::move(job), &text);
        ASSERT_TRUE(written.ok()) << written.status().to_string();
        EXPECT_EQ(*written, *reader_->count(epoch));
        EXPECT_TRUE(text == all) << epoch << " " << threads << " " << blocks_min;
        ++scans;
      }
    }
  }
  std::printf("%zu scans gave the serial output\n", scans);
}

TEST_F(ParallelScan, StopsAtTheLimitExactly) {
  const std::string all = expected(imd::Reader::kAllEpochs);
  for (const uint64_t limit : {1, 2, 399, 400, 401, 5'999, 24'000, 1'000'000}) {
    std::string text;
    const auto written = scan({.threads = 4, .limit = limit, .blocks_min = 1}, &text);
    ASSERT_TRUE(written.ok());
    EXPECT_EQ(*written, std::min<uint64_t>(limit, 24'000));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<int64_t>(*written));
    EXPECT_TRUE(all.starts_with(text));
  }
}

TEST_F(ParallelScan, WritesOnlyWhatIsWanted) {
  std::string text;
  ScanJob job{.threads = 3, .blocks_min = 1};
  job.format = [](const query::RecordView& record, std::string* out) {
    return record.key == "key-17" && line(record, out);
  };
  ASSERT_EQ(scan(job, &text).value(), 4U);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST_F(ParallelScan, DamageComesBehindAllThatPrecedesIt) {
  const std::string all = expected(imd::Reader::kAllEpochs);
  const std::string path = imd::data_log_path("dir", {1, PartitionNumber(1)});
  const auto file = device_.open(path, io::OpenMode::kReadWrite).value();
  const uint64_t size = file->size().value();
  size_t damaged = 0;
  for (uint64_t offset = 100; offset < size; offset += size / 23) {
    std::string byte(1, '\0');
    ASSERT_TRUE(file->pread(offset, MutableBytes(byte.data(), 1)).ok());
    byte[0] = static_cast<char>(byte[0] ^ 1);
    ASSERT_TRUE(file->pwrite(offset, byte).ok());
    std::string serial;
    const auto one = scan({.threads = 1, .blocks_min = 1}, &serial);
    std::string text;
    const auto many = scan({.threads = 4, .blocks_min = 1}, &text);
    EXPECT_EQ(many.status().to_string(), one.status().to_string());
    EXPECT_TRUE(text == serial && all.starts_with(text)) << offset;
    damaged += many.ok() ? 0 : 1;
    byte[0] = static_cast<char>(byte[0] ^ 1);
    ASSERT_TRUE(file->pwrite(offset, byte).ok());
  }
  EXPECT_GT(damaged, 20u);
  std::printf("%zu damages were found, each behind the same output\n", damaged);
}

// The runs of a partition cannot be listed: the scan ends there for all threads, not only for the one that
// has noticed.
TEST_F(ParallelScan, APartitionThatCannotBeReadEndsTheScanForAllThreads) {
  const std::string all = expected(imd::Reader::kAllEpochs);
  ASSERT_TRUE(device_.remove(imd::data_log_path("dir", {1, PartitionNumber(1)})).ok());
  reader_ = imd::Reader::open(device_, "dir", {}).value();
  std::string serial;
  const auto one = scan({.threads = 1, .blocks_min = 1}, &serial);
  ASSERT_THAT(one.status().to_string(), testing::HasSubstr("part-000001.j0001.data"));
  ASSERT_TRUE(all.starts_with(serial) && !serial.empty());
  for (int round = 0; round < 5; ++round) {
    std::string text;
    std::atomic<bool> first = true;
    ScanJob job{.threads = 4, .blocks_min = 1};
    job.format = [&](const query::RecordView& record, std::string* out) {
      // While one thread is slow, the others come to the partition, and could pass it.
      if (first.exchange(false)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return line(record, out);
    };
    const auto many = scan(std::move(job), &text);
    ASSERT_EQ(many.status().to_string(), one.status().to_string()) << round;
    ASSERT_EQ(text.size(), serial.size()) << round;
    ASSERT_TRUE(text == serial) << round;
  }
}

// Each block in turn is damaged: what is printed is what there is, less the rest of the damaged run, and what
// is said to be missing is what is missing.
TEST_F(ParallelScan, GoesOnBehindDamageIfItIsToldTo) {
  const std::string all = expected(imd::Reader::kAllEpochs);
  std::vector<std::string> lines;
  for (size_t at = 0; at < all.size(); at = all.find('\n', at) + 1)
    lines.push_back(all.substr(at, all.find('\n', at) + 1 - at));
  const auto file =
      device_.open(imd::data_log_path("dir", {1, PartitionNumber(1)}), io::OpenMode::kReadWrite).value();
  const uint64_t size = file->size().value();
  size_t passed = 0;
  for (uint64_t offset = 100; offset < size; offset += 3 * run::kBlockBytes) {
    std::string byte(1, '\0');
    ASSERT_TRUE(file->pread(offset, MutableBytes(byte.data(), 1)).ok());
    byte[0] = static_cast<char>(byte[0] ^ 1);
    ASSERT_TRUE(file->pwrite(offset, byte).ok());
    uint64_t missing = 0;
    bool unknown = false;
    ScanJob job{.threads = 3, .blocks_min = 1};
    job.damaged = [&](const Status& cause, uint64_t records) {
      EXPECT_EQ(cause.code(), Code::kCorruption);
      missing += records;
      unknown = unknown || records == 0;
    };
    std::string text;
    const auto written = scan(std::move(job), &text);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    // What is printed is a subsequence of everything.
    size_t printed = 0;
    size_t at = 0;
    for (const std::string& line : lines) {
      if (text.compare(at, line.size(), line) != 0) continue;
      at += line.size();
      ++printed;
    }
    EXPECT_EQ(at, text.size()) << offset;
    EXPECT_EQ(printed, *written);
    EXPECT_TRUE(unknown || printed + missing == lines.size())
        << offset << ": " << printed << " + " << missing;
    EXPECT_LT(printed, lines.size()) << offset;
    EXPECT_GT(printed, lines.size() / 2) << offset;
    passed += unknown ? 0 : 1;
    byte[0] = static_cast<char>(byte[0] ^ 1);
    ASSERT_TRUE(file->pwrite(offset, byte).ok());
  }
  EXPECT_GT(passed, 10u);
}

TEST_F(ParallelScan, PiecesAreWholeRunsAndTogetherEverything) {
  for (uint32_t epoch = 0; epoch < 4; ++epoch) {
    for (uint32_t partition = 0; partition < (epoch < 2 ? 3U : 2U); ++partition) {
      const auto pieces = reader_->scan_pieces(EpochNumber(epoch), PartitionNumber(partition), 8);
      ASSERT_TRUE(pieces.ok()) << pieces.status().to_string();
      ASSERT_GT(pieces->size(), 1u);
      for (size_t i = 0; i + 1 < pieces->size(); ++i) {
        EXPECT_GE((*pieces)[i].blocks, 8u);
        EXPECT_EQ((*pieces)[i].first_block + (*pieces)[i].blocks, (*pieces)[i + 1].first_block);
      }
    }
  }
  EXPECT_EQ(reader_->scan_pieces(EpochNumber(0), PartitionNumber(3), 8).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(reader_->scan_pieces(EpochNumber(4), PartitionNumber(0), 8).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace swale::tools::parallel_scan_test
