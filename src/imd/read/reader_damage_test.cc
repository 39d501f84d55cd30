// Damage: whatever happens to the files, a reader answers what was written or says what is wrong and where;
// never anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::imd::reader_damage_test {
namespace {

using test::Model;
using test::numbered_records;
using test::TestDirectory;
using test::text_key;
using testing::HasSubstr;

constexpr uint64_t kKeys = 120;

// In memory, and on a real file system through the page cache, mapped and not.
enum class Where { kMemory, kRead, kMapped };

class DamageTest : public testing::TestWithParam<Where> {
 protected:
  DamageTest()
      : device_(GetParam() == Where::kMemory ? static_cast<io::Device&>(memory_) : posix_),
        dir_(GetParam() == Where::kMemory ? std::string("/dir")
                                          : testing::TempDir() + fmt::format("swale-damage-{}-{}", getpid(),
                                                                             static_cast<int>(GetParam()))),
        aside_(dir_ + ".aside"),
        written_(device_, dir_) {
    Rng rng(11);
    written_.begin_job(2, 2);
    written_.write_epoch(numbered_records(rng, 600, kKeys, 60),
                         {.records_per_run = 100, .runs_per_segment = 2});
    written_.begin_job(3);
    written_.write_epoch(numbered_records(rng, 600, kKeys, 0, true), {.records_per_run = 200});
    for (const LogId log : written_.manifest.logs()) {
      paths_.push_back(data_log_path(dir_, log));
      paths_.push_back(index_log_path(dir_, log));
    }
    paths_.push_back(epoch_log_path(dir_, 2));
    options_.map = GetParam() == Where::kMapped ? ReaderOptions::Map::kAuto : ReaderOptions::Map::kNever;
  }
  ~DamageTest() override {
    std::error_code ignored;
    if (GetParam() != Where::kMemory) std::filesystem::remove_all(dir_, ignored);
  }

  std::unique_ptr<io::File> open(const std::string& path) {
    return device_.open(path, io::OpenMode::kReadWrite).value();
  }
  void flip(const std::string& path, uint64_t at, int bit) {
    auto file = open(path);
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
    byte = static_cast<char>(byte ^ 1 << bit);
    ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
  }
  uint64_t size(const std::string& path) { return *open(path)->size(); }

  // Asks for a few keys and scans. Returns the first failure; adds to wrong_ for every wrong answer.
  Status probe(Rng& rng) {
    auto reader = Reader::open(device_, dir_, options_);
    if (!reader.ok()) return reader.status();
    Status failure;
    const auto note = [&](const Status& status) {
      if (failure.ok()) failure = status;
    };
    for (int i = 0; i < 4; ++i) {
      const uint32_t epoch = static_cast<uint32_t>(rng.below(2));
      const uint64_t number = rng.below(kKeys + 20);
      const std::string key = epoch == 0 ? text_key(number) : fmt::format("{:08}", number);
      const auto model = written_.models[epoch].find(key);
      const bool there = model != written_.models[epoch].end();
      const auto values = (*reader)->get(key, epoch);
      if (values.ok()) {
        std::vector<std::string> bytes;
        for (const Value& value : *values) bytes.push_back(value.bytes);
        wrong_ += there && bytes == model->second ? 0 : 1;
      } else if (values.status().code() == Code::kNotFound) {
        wrong_ += there ? 1 : 0;
      } else {
        note(values.status());
      }
    }
    Model scanned[2];
    const Status status = (*reader)->scan(Reader::kAllEpochs, [&](uint32_t epoch, Bytes key, Bytes value) {
      scanned[epoch][std::string(key)].emplace_back(value);
      return true;
    });
    if (status.ok()) {
      wrong_ += scanned[0] == written_.models[0] && scanned[1] == written_.models[1] ? 0 : 1;
    } else {
      note(status);
    }
    return failure;
  }

  io::MemoryDevice memory_;
  io::PosixDevice posix_;
  io::Device& device_;
  const std::string dir_;
  const std::string aside_;
  TestDirectory written_;
  ReaderOptions options_;
  std::vector<std::string> paths_;
  int wrong_ = 0;
};
INSTANTIATE_TEST_SUITE_P(, DamageTest, testing::Values(Where::kMemory, Where::kRead, Where::kMapped),
                         [](const auto& where) {
                           return where.param == Where::kMemory ? "Memory"
                                  : where.param == Where::kRead ? "Read"
                                                                : "Mapped";
                         });

TEST_P(DamageTest, RandomFlipsGiveTheTruthOrAnErrorThatNamesTheFile) {
  Rng rng(12);
  const int flips = GetParam() == Where::kMemory ? 2'000 : 300;
  int told = 0;
  for (int i = 0; i < flips; ++i) {
    const std::string& path = paths_[rng.below(paths_.size())];
    const uint64_t at = rng.below(size(path));
    const int bit = static_cast<int>(rng.below(8));
    flip(path, at, bit);
    const Status failure = probe(rng);
    ASSERT_EQ(wrong_, 0) << path << " offset " << at << " bit " << bit;
    if (!failure.ok()) {
      ++told;
      ASSERT_TRUE(failure.code() == Code::kCorruption || failure.code() == Code::kUnsupported)
          << failure.to_string();
      ASSERT_THAT(std::string(failure.message()), HasSubstr(path)) << at;
    }
    flip(path, at, bit);
  }
  EXPECT_GT(told, flips / 3) << "of " << flips << " flips";
  RecordProperty("flips", flips);
  RecordProperty("errors", told);
}

// Verify sees every flip in what queries and scans depend on: all data blocks, all slices, the manifest.
TEST_P(DamageTest, VerifyFindsEveryFlipThatAnybodyCouldMeet) {
  Rng rng(13);
  int missed = 0;
  const int flips = GetParam() == Where::kMemory ? 500 : 100;
  for (int i = 0; i < flips; ++i) {
    const std::string& path = paths_[rng.below(paths_.size())];
    const uint64_t at = rng.below(size(path));
    flip(path, at, 3);
    auto reader = Reader::open(device_, dir_, options_);
    const bool found = !reader.ok() || !verify_directory(**reader, 5).problems.empty();
    if (!found) {
      ++missed;
      EXPECT_THAT(path, HasSubstr(".index"))
          << at << ": only dead bytes and padding of index logs are unchecked";
      for (int probes = 0; probes < 5; ++probes) EXPECT_TRUE(probe(rng).ok()) << path << " " << at;
    }
    flip(path, at, 3);
  }
  EXPECT_EQ(wrong_, 0);
  EXPECT_LT(missed, flips / 2);
}

// The canary: a wrong value written with a right checksum is caught by the comparison with the model, so the
// tests above can fail; and verify sees it by the digest.
TEST_P(DamageTest, AValueChangedWithAllChecksumsRightIsSeenByModelAndDigest) {
  io::MemoryDevice other;
  TestDirectory forged(other, dir_);
  Rng rng(11);
  forged.begin_job(2, 2);
  auto records = numbered_records(rng, 600, kKeys, 60);
  const auto longer = [](const auto& record) { return record.second.size() > 3; };
  std::find_if(records.begin(), records.end(), longer)->second[1] ^= 1;
  forged.write_epoch(records, {.records_per_run = 100, .runs_per_segment = 2});
  forged.manifest.epochs[0].digest = written_.manifest.epochs[0].digest;
  forged.commit();
  auto reader = Reader::open(other, dir_, {});
  Model scanned;
  ASSERT_TRUE((*reader)
                  ->scan(0,
                         [&](uint32_t, Bytes key, Bytes value) {
                           scanned[std::string(key)].emplace_back(value);
                           return true;
                         })
                  .ok());
  EXPECT_NE(scanned, written_.models[0]);
  const auto report = verify_directory(**reader, 5);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(std::string(report.problems[0].message()), HasSubstr("digest"));
}

TEST_P(DamageTest, AMissingFileIsDamageNotAMissingKey) {
  Rng rng(14);
  for (const std::string& path : paths_) {
    ASSERT_TRUE(device_.rename(path, aside_).ok());
    auto reader = Reader::open(device_, dir_, options_);
    if (path == epoch_log_path(dir_, 2)) {
      EXPECT_EQ(reader.status().code(), Code::kCorruption);
      EXPECT_THAT(std::string(reader.status().message()), HasSubstr(path));
    } else {
      const Status status = (*reader)->scan(Reader::kAllEpochs, [](auto&&...) { return true; });
      EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_THAT(std::string(status.message()), HasSubstr(path));
      const auto report = verify_directory(**reader, 5);
      ASSERT_EQ(report.problems.size(), 1u);
      EXPECT_THAT(std::string(report.problems[0].message()), HasSubstr(path));
      int bad = 0;
      for (uint64_t i = 0; i < kKeys; ++i) {
        bad += (*reader)->get(text_key(i), Reader::kAllEpochs).status().code() == Code::kCorruption ? 1 : 0;
      }
      EXPECT_GT(bad, 0);
    }
    ASSERT_TRUE(device_.rename(aside_, path).ok());
  }
}

TEST_P(DamageTest, ATruncatedFileIsNamed) {
  Rng rng(15);
  for (const std::string& path : paths_) {
    const uint64_t whole = size(path);
    std::string content = *io::read_file(device_, path, 64 * kMiB);
    for (const uint64_t left :
         {uint64_t{0}, uint64_t{1}, uint64_t{4096}, whole / 2, whole - 4096, whole - 1}) {
      if (left >= whole) continue;
      ASSERT_TRUE(open(path)->truncate(left).ok());
      auto reader = Reader::open(device_, dir_, options_);
      if (path == epoch_log_path(dir_, 2) && left == whole - 1) {  // one copy of the last record is whole
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_FALSE(verify_directory(**reader, 5).problems.empty());
        ASSERT_TRUE(open(path)->pwrite(0, content).ok());
        continue;
      }
      const Status status =
          reader.ok() ? (*reader)->scan(Reader::kAllEpochs, [](auto&&...) { return true; }) : reader.status();
      EXPECT_EQ(status.code(), Code::kCorruption) << path << " cut to " << left << ": " << status.to_string();
      EXPECT_THAT(std::string(status.message()), HasSubstr(path));
      if (reader.ok()) {
        EXPECT_FALSE(verify_directory(**reader, 5).problems.empty());
      }
      ASSERT_TRUE(open(path)->pwrite(0, content).ok());
    }
  }
  EXPECT_TRUE(probe(rng).ok());
}

TEST_P(DamageTest, APromisedEpochThatIsNotThereIsNamedWithBothFiles) {
  written_.manifest.epochs[1].epoch_id ^= 1;
  written_.commit();
  auto reader = Reader::open(device_, dir_, options_);
  const Status status = (*reader)->get(text_key(1), Reader::kAllEpochs).status();
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_THAT(std::string(status.message()), HasSubstr("part-00000"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("swale.json"));
}

TEST_P(DamageTest, FilesOfTwoPartitionsCannotBeExchanged) {
  for (const auto path : {data_log_path, index_log_path}) {
    const auto swap = [&] {
      ASSERT_TRUE(device_.rename(path(dir_, {1, PartitionNumber(0)}), aside_).ok());
      ASSERT_TRUE(
          device_.rename(path(dir_, {1, PartitionNumber(1)}), path(dir_, {1, PartitionNumber(0)})).ok());
      ASSERT_TRUE(device_.rename(aside_, path(dir_, {1, PartitionNumber(1)})).ok());
    };
    swap();
    auto reader = Reader::open(device_, dir_, options_);
    EXPECT_EQ((*reader)->scan(0, [](auto&&...) { return true; }).code(), Code::kCorruption);
    swap();
  }
}

TEST_P(DamageTest, VerifyGoesOnBehindDamageAndStopsAtItsLimit) {
  const std::string path = data_log_path(dir_, {1, PartitionNumber(0)});
  const uint64_t blocks = size(path) / 4096;
  ASSERT_GE(blocks, 4u);
  flip(path, 100, 0);                       // the header block of the first run
  flip(path, (blocks - 1) * 4096 + 50, 0);  // the last block
  flip(data_log_path(dir_, {2, PartitionNumber(2)}), 77, 0);
  auto reader = Reader::open(device_, dir_, options_);
  const auto report = verify_directory(**reader, 100);
  std::string all;
  for (const Status& problem : report.problems) all += problem.to_string() + "\n";
  EXPECT_THAT(all, HasSubstr(path + ": offset 0"));
  EXPECT_THAT(all, HasSubstr(fmt::format("{}: offset {}", path, (blocks - 1) * 4096)));
  EXPECT_THAT(all, HasSubstr(data_log_path(dir_, {2, PartitionNumber(2)})));
  EXPECT_GE(report.problems.size(), 3u);
  EXPECT_LT(report.problems.size(), 20u);
  EXPECT_GT(report.records, 400u) << "undamaged runs are still checked";
  EXPECT_EQ(verify_directory(**reader, 2).problems.size(), 2u);
}

TEST_P(DamageTest, VerifyTellsItsProgressToTheEnd) {
  auto reader =
      Reader::open(device_, dir_, {.reads_in_flight_max = 4, .scan_chunk_bytes = 8192, .map = options_.map});
  uint64_t last = 0;
  uint64_t total = 0;
  const auto report = verify_directory(**reader, 5, [&](uint64_t done_bytes, uint64_t total_bytes) {
    EXPECT_GE(done_bytes, last);
    last = done_bytes;
    total = total_bytes;
  });
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(last, total);
  EXPECT_EQ(report.bytes_checked, total);
  EXPECT_EQ(report.partitions, 3u);
  EXPECT_EQ(report.epochs, 2u);
}

TEST_P(DamageTest, AFailedReadIsPassedOnFromEveryCall) {
  Rng rng(16);
  int failed = 0;
  for (uint64_t call = 1;; ++call) {
    io::FaultDevice faulty(device_);
    faulty.inject({.action = io::FaultAction::kFail,
                   .kind = {},
                   .path_part = {},
                   .nth = call,
                   .from_then_on = false,
                   .status = error(Code::kIoError, Scope::kFile, "injected"),
                   .position = 0});
    auto reader = Reader::open(faulty, dir_, options_);
    const auto values = reader.ok() ? (*reader)->get(text_key(1), Reader::kAllEpochs)
                                    : Result<std::vector<Value>>(reader.status());
    if (faulty.faults() == 0) break;
    // The first one is OpeningAhead's, which fails alone.
    EXPECT_EQ(values.status().code(), call == 1 ? Code::kOk : Code::kIoError) << call;
    ++failed;
    ASSERT_LT(call, 100u);
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
}  // namespace swale::imd::reader_damage_test
