// Repair between jobs that go on behind the last epoch and jobs that go back to a checkpoint (WriterOptions::resume_after).
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "imd/check/repair.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/test_job.h"
#include "imd/test_repair.h"
#include "imd/write/writer.h"
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

}  // namespace
}  // namespace swale::imd::repair_restart_test
