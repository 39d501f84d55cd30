// Repair between jobs that go on behind the last epoch and jobs that go back to a checkpoint
// (WriterOptions::resume_after).
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/format/epoch_log.h"
#include "imd/format/generation.h"
#include "imd/format/log_names.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/testing/test_repair.h"
#include "imd/write/writer.h"
#include "imd/write/writer_lock.h"
#include "io/memory_device.h"

namespace swale::imd::repair_restart_test {
namespace {

using test::kRepairDir;

constexpr int32_t kRanks = 2;
constexpr int kRecords = 40;  // of a rank and epoch

void append(net::Job& job, Writer& writer, const std::string& value, int records = kRecords) {
  for (int i = 0; i < records; ++i)
    ASSERT_TRUE(writer.append(fmt::format("{}/{}", job.rank(), i), value).ok());
}

// A job that opens the directory, calls `body` on each rank and closes.
void with_writer(io::Device& device, std::optional<int64_t> resume_after,
                 const std::function<void(net::Job&, Writer&)>& body) {
  WriterOptions options;
  options.memory_bytes = 4 * kMiB;
  options.steps = WriterOptions::Steps::kIncreasing;
  options.resume_after = resume_after;
  run_ranks(kRanks, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kRepairDir, Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    body(job, **writer);
    static_cast<void>((*writer)->close());
  });
}

// One epoch for each step; the values say which job and step wrote them.
void write(io::Device& device, const std::string& name, const std::vector<int64_t>& steps,
           std::optional<int64_t> resume_after = {}) {
  with_writer(device, resume_after, [&](net::Job& job, Writer& writer) {
    for (const int64_t step : steps) {
      append(job, writer, fmt::format("{} {}", name, step));
      ASSERT_TRUE(writer.epoch_end(step, 0).ok()) << step;
    }
  });
}

// Steps 0 and 10, and an epoch that its job never ended and that repair recovered.
void make_recovered(io::Device& device) {
  with_writer(device, {}, [](net::Job& job, Writer& writer) {
    for (const int64_t step : {0, 10}) {
      append(job, writer, "first");
      ASSERT_TRUE(writer.epoch_end(step, 0).ok());
    }
    append(job, writer, std::string(40, 'v'), 40'000);
  });
  const auto report = repair_directory(device, kRepairDir, {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->epochs_recovered, 1u);
}

std::vector<int64_t> steps_of(io::Device& device) {
  const auto reader = Reader::open(device, kRepairDir, {}).value();
  for (const Status& problem : verify_directory(*reader, 5).problems) ADD_FAILURE() << problem.to_string();
  std::vector<int64_t> steps;
  for (const EpochEntry& epoch : reader->manifest().epochs) steps.push_back(epoch.step);
  return steps;
}

TEST(RepairRestart, WhatWasRecoveredTakesNoLaterEpochAlong) {
  io::MemoryDevice device;
  make_recovered(device);
  write(device, "second", {20, 30, 40});
  write(device, "third", {35}, 30);
  EXPECT_EQ(steps_of(device), (std::vector<int64_t>{0, 10, kStepUnknown, 20, 30, 35}));
  write(device, "fourth", {20}, 10);
  EXPECT_EQ(steps_of(device), (std::vector<int64_t>{0, 10, 20}));
}

TEST(RepairRestart, ARepeatedStepIsNoticedBehindWhatWasRecovered) {
  io::MemoryDevice device;
  make_recovered(device);
  with_writer(device, {}, [](net::Job& job, Writer& writer) {
    append(job, writer, "second");
    for (const int64_t step : {5, 10}) EXPECT_EQ(writer.epoch_end(step, 0).code(), Code::kInvalidArgument);
    const Status ended = writer.epoch_end(11, 0);
    EXPECT_TRUE(ended.ok()) << ended.to_string();
  });
  EXPECT_EQ(steps_of(device), (std::vector<int64_t>{0, 10, kStepUnknown, 11}));
}

// Everything of epochs below `first` is of the job "first", the rest of the job "second".
void expect_epochs_of_two_jobs(io::Device& device, uint32_t first, uint32_t epochs) {
  const auto reader = Reader::open(device, kRepairDir, {}).value();
  const Manifest& manifest = reader->manifest();
  ASSERT_EQ(manifest.epochs.size(), epochs);
  for (const EpochEntry& epoch : manifest.epochs) {
    const bool of_first = epoch.epoch < first;
    if (!manifest.has_lost(epoch)) {
      EXPECT_EQ(manifest.job_of(epoch).number, of_first ? 1u : 2u) << epoch.epoch;
    }
    const Status scanned = reader->scan(epoch.epoch, [&](uint32_t, Bytes, Bytes value) {
      EXPECT_TRUE(value.starts_with(of_first ? "first" : "second")) << epoch.epoch << ": " << value;
      return true;
    });
    EXPECT_TRUE(scanned.ok() || manifest.has_lost(epoch)) << scanned.to_string();
  }
}

void overwrite(io::Device& device, const std::string& path, uint64_t offset, size_t bytes) {
  const auto file = device.open(path, io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->pwrite(offset, std::string(bytes, 'x')).ok());
}

// Ten epochs; then a job that keeps five of them, writes its own epochs 5 and 6 and dies.
test::Image resumed_and_died() {
  io::MemoryDevice device;
  write(device, "first", {0, 10, 20, 30, 40, 50, 60, 70, 80, 90});
  test::Image image;
  with_writer(device, 40, [&](net::Job& job, Writer& writer) {
    for (const int64_t step : {50, 60}) {
      append(job, writer, "second");
      ASSERT_TRUE(writer.epoch_end(step, 0).ok());
    }
    ASSERT_TRUE(job.allgather("").ok());
    if (job.rank() == 0) image = test::image_of(device);
    ASSERT_TRUE(job.allgather("").ok());
  });
  image.erase(lock_path(kRepairDir));
  return image;
}

// The logs of the first job still have its epochs 5 to 9.
TEST(RepairRestart, DroppedEpochsStayDropped) {
  const std::string log = epoch_log_path(kRepairDir, 2);
  const auto lose_log = [&](io::Device& device) { ASSERT_TRUE(device.remove(log).ok()); };
  const auto tear_header = [&](io::Device& device) { overwrite(device, log, 0, 2 * kEpochSlotBytes); };
  const auto tear_documents = [](io::Device& device) {
    overwrite(device, manifest_path(kRepairDir), 30, 1);
    overwrite(device, generation_path(kRepairDir, 2), 30, 1);
  };
  const std::vector<std::pair<const char*, std::function<void(io::Device&)>>> damages = {
      {"header", tear_header},
      {"log", lose_log},
      {"header, documents", [&](io::Device& device) { tear_header(device), tear_documents(device); }},
      {"log, documents", [&](io::Device& device) { lose_log(device), tear_documents(device); }},
      {"record, index logs",
       [&](io::Device& device) {
         overwrite(device, log, 6 * kEpochSlotBytes, kEpochSlotBytes);
         for (PartitionNumber p(0); p < kRanks; ++p)
           ASSERT_TRUE(device.remove(index_log_path(kRepairDir, {2, p})).ok());
       }},
      {"record, index logs, documents",
       [&](io::Device& device) {
         overwrite(device, log, 6 * kEpochSlotBytes, kEpochSlotBytes);
         tear_documents(device);
         for (PartitionNumber p(0); p < kRanks; ++p)
           ASSERT_TRUE(device.remove(index_log_path(kRepairDir, {2, p})).ok());
       }},
  };
  const test::Image image = resumed_and_died();
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    io::MemoryDevice device;
    test::put_back(image, device);
    damage(device);
    const auto report = repair_directory(device, kRepairDir, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    expect_epochs_of_two_jobs(device, 5, 7);
    const auto again = repair_directory(device, kRepairDir, {});
    EXPECT_TRUE(again.ok() && again->done.empty()) << "nothing is left to do";
  }
}

}  // namespace
}  // namespace swale::imd::repair_restart_test
