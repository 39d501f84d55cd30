// The n-th write or sync of a real writer process goes wrong, for every n (failing_calls.c). EINTR and short writes must
// not show; after EIO and ENOSPC the writer says so, what was committed is whole, and a later job goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults {
namespace {

constexpr Seconds kPatience(120);
constexpr int kEpochs = 2;
constexpr uint64_t kRecords = 400;

LaunchParams params_of(const JobFiles& files, const std::string& kind, uint64_t at) {
  LaunchParams params = files.job(1, kEpochs, kRecords);
  for (const std::string& change :
       {std::string("SWALE_IO_ENGINE=threads"), std::string("LD_PRELOAD=" FAILING_CALLS),
        "FAULT_KIND=" + kind, "FAULT_AT=" + std::to_string(at), "FAULT_UNDER=" + files.path(),
        "FAULT_COUNT=" + files.scratch() + "/count"})
    params.environment.push_back(change);
  return params;
}

uint64_t calls_of_a_good_run() {
  const JobFiles files;
  Launcher job(params_of(files, "eio", 0));
  EXPECT_TRUE(job.wait_for_ends(kPatience));
  EXPECT_EQ(job.end(0).status, 0) << job.describe();
  uint64_t calls = 0;
  std::ifstream(files.scratch() + "/count") >> calls;
  return calls;
}

struct Tally {
  std::atomic<uint64_t> points{0}, told{0}, unharmed{0}, epochs{0};
};

void expect_failure_is_told(const JobFiles& files, const Launcher& job, const std::string& name,
                            const std::string& code, Tally* tally) {
  const Line* failed = job.end(0).find("failed");
  if (failed == nullptr) {
    // A call whose failure does no harm: everything that was promised is there.
    EXPECT_EQ(promised_epochs(job), kEpochs) << name << job.describe();
    ++tally->unharmed;
    return;
  }
  ++tally->told;
  EXPECT_EQ(failed->text.rfind("failed " + code, 0), 0u) << name << ": " << failed->text;
  EXPECT_NE(failed->text.find(files.path()), std::string::npos) << name << ": " << failed->text;
}

void run_point(const std::string& kind, uint64_t at, Tally* tally) {
  const std::string name = fmt::format("{} at call {}", kind, at);
  const JobFiles files;
  Launcher job(params_of(files, kind, at));
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << name << ": hangs\n" << job.describe();
  ASSERT_EQ(job.end(0).signal, 0) << name;
  EXPECT_EQ(job.end(0).find("leaks"), nullptr) << name << job.describe();
  ++tally->points;
  if (kind == "eintr" || kind == "short") {
    EXPECT_EQ(job.end(0).status, 0) << name << job.describe();
  } else {
    expect_failure_is_told(files, job, name, kind == "eio" ? "input/output error" : "no space", tally);
  }
  int64_t promised = promised_epochs(job);
  for (const std::string& problem : check_job_files(files.path(), promised))
    ADD_FAILURE() << name << ": " << problem;
  tally->epochs += static_cast<uint64_t>(promised);
  Launcher later(files.job(1, 1, kRecords));
  ASSERT_TRUE(later.wait_for_ends(kPatience)) << name;
  EXPECT_EQ(later.end(0).status, 0) << name << ": the later job\n" << later.describe();
  for (const std::string& problem : check_job_files(files.path(), promised + 1))
    ADD_FAILURE() << name << ", after the later job: " << problem;
}

TEST(FailingCalls, EveryWriteAndSyncOfAWriter) {
  const uint64_t calls = calls_of_a_good_run();
  ASSERT_GT(calls, 15u);
  for (const std::string kind : {"eio", "enospc", "eintr", "short"}) {
    Tally tally;
    in_parallel(calls, [&](size_t i) { run_point(kind, i + 1, &tally); });
    EXPECT_EQ(tally.points, calls);
    fmt::print("{}: {} points, {} told, {} without harm, {} committed epochs read back whole\n", kind,
               tally.points.load(), tally.told.load(), tally.unharmed.load(), tally.epochs.load());
    // Canary: the calls are met at all.
    EXPECT_TRUE(kind == "eintr" || kind == "short" || tally.told > calls / 2) << kind;
  }
}

}  // namespace
}  // namespace swale::faults
