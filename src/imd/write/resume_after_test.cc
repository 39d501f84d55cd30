// WriterOptions::resume_after: epochs behind a step are dropped whole or not at all, whenever the machine
// stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/rng.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::resume_after_test {
namespace {

constexpr char kDir[] = "/dir";
constexpr int kEpochs = 4;  // of steps 0, 10, 20, 30

WriterOptions options_of(std::optional<int64_t> resume_after = {}) {
  WriterOptions options;
  options.memory_bytes = 4 * kMiB;
  options.resume_after = resume_after;
  options.schema = run::Schema::parse("number:u8", "number").value();
  return options;
}

// Opens with `ranks` ranks and appends one epoch for each step; the worst of what the ranks return.
Status write(io::Device& device, int32_t ranks, const std::vector<int64_t>& steps,
             std::optional<int64_t> resume_after = {}) {
  std::vector<Status> outcomes(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](net::Job& job) {
    Status& outcome = outcomes[static_cast<size_t>(job.rank())];
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options_of(resume_after));
    outcome = writer.status();
    if (!writer.ok()) return;
    for (const int64_t step : steps) {
      for (int i = 0; i < 40 && outcome.ok(); ++i) {
        outcome =
            (*writer)->append(fmt::format("{}/{}", job.rank(), i), fmt::format("{:08}", step * 100 + i));
      }
      if (outcome.ok()) outcome = (*writer)->epoch_end(step, static_cast<double>(step));
    }
    const Status closed = (*writer)->close();
    if (outcome.ok()) outcome = closed;
  });
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return {};
}

struct Found {
  std::vector<int64_t> steps;
  std::vector<Status> problems;
};

Found look(io::Device& device) {
  Found found;
  const auto reader = Reader::open(device, kDir, {});
  if (!reader.ok()) return {{}, {reader.status()}};
  for (const EpochEntry& epoch : (*reader)->manifest().epochs) found.steps.push_back(epoch.step);
  found.problems = verify_directory(**reader, 10).problems;
  return found;
}

TEST(ResumeAfter, DropsTheFirstEpochOfAGreaterStepAndAllBehindIt) {
  for (const auto& [step, left] : {std::pair<int64_t, size_t>{-1, 0}, {0, 1}, {15, 2}, {20, 3}, {30, 4}}) {
    for (const int32_t ranks : {1, 3, 5}) {
      io::MemoryDevice device;
      ASSERT_TRUE(write(device, 3, {0, 10, 20, 30}).ok());
      const Status status = write(device, ranks, {100}, step);
      ASSERT_TRUE(status.ok()) << status.to_string();
      // What was dropped stays dead in partitions that the smaller job did not touch, for a larger one too.
      ASSERT_TRUE(write(device, 4, {200}).ok());
      const Found found = look(device);
      EXPECT_EQ(found.steps.size(), left + 2);
      EXPECT_EQ(found.problems.size(), 0u) << found.problems.front().to_string();
      const auto reader = Reader::open(device, kDir, {}).value();
      EXPECT_EQ(reader->get("2/7", 0).ok(), left > 0 || ranks > 2);
    }
  }
}

TEST(ResumeAfter, RefusesWhatItCannotTell) {
  Manifest manifest;
  manifest.jobs.push_back({1, "00000000000000aa", 1, 1, "hash"});
  manifest.epochs.push_back({.epoch_id = 1, .step = kStepUnknown, .recovered = Recovered::kWhole});
  EXPECT_EQ(manifest.drop_after(5).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(manifest.epochs.size(), 1u);
  manifest.epochs[0].recovered = Recovered::kPartial;
  EXPECT_EQ(manifest.drop_after(5).value(), 1u);
  EXPECT_TRUE(manifest.epochs.empty());
}

// Rank 1 cannot make its logs: the opening fails on all ranks.
TEST(ResumeAfter, ADirectoryThatCannotBeOpenedLosesNothing) {
  io::MemoryDevice memory;
  ASSERT_TRUE(write(memory, 2, {0, 10, 20, 30}).ok());
  io::FaultDevice device(memory);
  device.inject({.kind = io::CallKind::kOpen, .path_part = "part-000001.j0002.index"});
  const Status status = write(device, 2, {}, 10);
  EXPECT_EQ(status.code(), Code::kIoError) << status.to_string();
  EXPECT_EQ(device.faults(), 1u);
  const Found found = look(memory);
  EXPECT_EQ(found.steps.size(), static_cast<size_t>(kEpochs)) << "the manifest and the logs are as they were";
  EXPECT_TRUE(found.problems.empty());
  const std::vector<std::string> names = memory.list("/dir/p000").value();
  for (const std::string& name : names)
    EXPECT_EQ(name.find(".j0002."), std::string::npos) << name << " was left behind";
}

// The n-th call fails, for every n: until the new generation has its manifest nothing is dropped, and the job
// is told in any case.
TEST(ResumeAfter, AFailureAtAnyCallDropsNothingBeforeTheOpenIsCertain) {
  int kept = 0, dropped = 0;
  for (uint64_t n = 1;; ++n) {
    io::MemoryDevice memory;
    ASSERT_TRUE(write(memory, 2, {0, 10, 20, 30}).ok());
    io::FaultDevice device(memory);
    device.inject({.nth = n});
    std::atomic<bool> replaced{false};
    device.set_hook([&](const io::Call& call) {
      if (call.kind == io::CallKind::kRename && call.path.ends_with("jobs/0002/manifest.json.tmp"))
        replaced = true;
      return Status();
    });
    const Status status = write(device, 2, {}, 10);
    if (device.faults() == 0) break;
    const Found found = look(memory);
    EXPECT_TRUE(found.problems.empty()) << "call " << n;
    if (!replaced) {
      EXPECT_EQ(found.steps.size(), static_cast<size_t>(kEpochs))
          << "call " << n << ": " << status.to_string();
      EXPECT_FALSE(status.ok()) << "call " << n;
    }
    ++(found.steps.size() == kEpochs ? kept : dropped);
  }
  EXPECT_GT(kept, 20);
  fmt::print("{} failures before anything was dropped, {} after\n", kept, dropped);
}

// The machine stops at the n-th call, for every n.
TEST(ResumeAfter, ACrashAtAnyCallLeavesTheOldEpochsOrTheNewOnes) {
  uint64_t points = 0;
  uint64_t old_ones = 0;
  for (const io::CrashMode mode : {io::CrashMode::kDropAll, io::CrashMode::kTearPages}) {
    for (uint64_t n = 1;; ++n, ++points) {
      io::MemoryDevice memory;
      ASSERT_TRUE(write(memory, 2, {0, 10, 20, 30}).ok());
      io::FaultDevice device(memory);
      device.inject({.nth = n, .from_then_on = true});
      const Status status = write(device, 2, {}, 10);
      Rng rng(n);
      memory.crash(rng, mode);
      const Found found = look(memory);
      ASSERT_TRUE(found.problems.empty()) << "call " << n << ": " << found.problems.front().to_string();
      const bool old = found.steps.size() == kEpochs;
      ASSERT_TRUE(old || (found.steps == std::vector<int64_t>{0, 10})) << "call " << n;
      ASSERT_FALSE(old && status.ok()) << "call " << n;
      old_ones += old ? 1 : 0;
      if (device.faults() == 0) break;
    }
  }
  EXPECT_GT(old_ones, 0u);
  fmt::print("visited {} crashes, {} of them before the drop\n", points, old_ones);
}

// Canary: a disk that forgets the replacement of swale.json must be noticed by the test above's checks.
TEST(ResumeAfter, CanaryAReplacementThatIsNotDurableIsNoticed) {
  io::MemoryDevice memory;
  ASSERT_TRUE(write(memory, 2, {0, 10, 20, 30}).ok());
  io::FaultDevice device(memory);
  device.inject(
      {.action = io::FaultAction::kDrop, .kind = io::CallKind::kSyncDirectory, .from_then_on = true});
  ASSERT_TRUE(write(device, 2, {40, 50, 60}, 10).ok());
  Rng rng(1);
  memory.crash(rng, io::CrashMode::kDropAll);
  EXPECT_NE(look(memory).steps, (std::vector<int64_t>{0, 10, 40, 50, 60}));
}

}  // namespace
}  // namespace swale::imd::resume_after_test
