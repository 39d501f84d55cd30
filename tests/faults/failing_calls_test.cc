// The n-th write or sync of a real writer process goes wrong, for every n (failing_calls.c): of one rank with
// threads for its storage, and of either of two ranks with io_uring (there nine of them, in make test-long
// every one). EINTR and short writes must not show; after EIO and ENOSPC the writer says so, the other rank
// is told, what was committed is whole, and a later job goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "io/uring_queue.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::failing_calls_test {
namespace {

constexpr Seconds kPatience(120);
constexpr int kEpochs = 2;
constexpr uint64_t kRecords = 400;
constexpr uint64_t kEvery = 100'000;  // more than there are calls

struct Writers {
  const char* engine;  // io.engine
  int ranks;
  int victim;
};

LaunchParams params_of(const Writers& of, const JobFiles& files, const std::string& kind, uint64_t at) {
  LaunchParams params = files.job(of.ranks, kEpochs, kRecords);
  for (const std::string& change :
       {fmt::format("SWALE_IO_ENGINE={}", of.engine), std::string("LD_PRELOAD=" FAILING_CALLS),
        "FAULT_KIND=" + kind, "FAULT_AT=" + std::to_string(at), "FAULT_RANK=" + std::to_string(of.victim),
        "FAULT_UNDER=" + files.path(), "FAULT_COUNT=" + files.scratch() + "/count"})
    params.environment.push_back(change);
  return params;
}

uint64_t calls_of_a_good_run(const Writers& of) {
  const JobFiles files;
  Launcher job(params_of(of, files, "eio", 0));
  EXPECT_TRUE(job.wait_for_ends(kPatience));
  for (int rank = 0; rank < of.ranks; ++rank) EXPECT_EQ(job.end(rank).status, 0) << job.describe();
  uint64_t calls = 0;
  std::ifstream(fmt::format("{}/count.{}", files.scratch(), of.victim)) >> calls;
  return calls;
}

struct Tally {
  std::atomic<uint64_t> points{0}, told{0}, unharmed{0}, epochs{0};
};

// The victim, and the other rank if the victim's failure was one of an epoch's end.
void expect_failure_is_told(const Writers& of, const JobFiles& files, const Launcher& job,
                            const std::string& name, const std::string& code, Tally* tally) {
  const Line* failed = job.end(of.victim).find("failed");
  for (int rank = 0; rank < of.ranks; ++rank) {
    const bool told = job.end(rank).find("failed") != nullptr;
    const bool wrote_all = job.end(rank).find(fmt::format("ended {}", kEpochs - 1)) != nullptr;
    EXPECT_TRUE(told || wrote_all) << name << ": rank " << rank << "\n" << job.describe();
  }
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

void run_point(const Writers& of, const std::string& kind, uint64_t at, Tally* tally) {
  const std::string name = fmt::format("{} at call {} of rank {} ({})", kind, at, of.victim, of.engine);
  const JobFiles files;
  Launcher job(params_of(of, files, kind, at));
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << name << ": hangs\n" << job.describe();
  ++tally->points;
  for (int rank = 0; rank < of.ranks; ++rank) {
    ASSERT_EQ(job.end(rank).signal, 0) << name;
    EXPECT_EQ(job.end(rank).find("leaks"), nullptr) << name << job.describe();
    if (kind != "eintr" && kind != "short") continue;
    EXPECT_EQ(job.end(rank).status, 0) << name << job.describe();
  }
  if (kind != "eintr" && kind != "short") {
    const std::string code = kind == "eio" ? "input/output error" : "no space";
    expect_failure_is_told(of, files, job, name, code, tally);
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

// `points_max` of the calls, evenly.
void run_points(const Writers& of, const std::vector<std::string>& kinds, uint64_t points_max) {
  const uint64_t calls = calls_of_a_good_run(of);
  ASSERT_GT(calls, 10u);
  const uint64_t step = (calls + points_max - 1) / points_max;
  for (const std::string& kind : kinds) {
    Tally tally;
    const uint64_t points = (calls + step - 1) / step;
    in_parallel(points, [&](size_t i) { run_point(of, kind, 1 + i * step, &tally); });
    EXPECT_EQ(tally.points, points);
    fmt::print(
        "{} of rank {} of {} ({}): {} points of {}, {} told, {} without harm, {} committed epochs read back "
        "whole\n",
        kind, of.victim, of.ranks, of.engine, tally.points.load(), calls, tally.told.load(),
        tally.unharmed.load(), tally.epochs.load());
    // Canary: the calls are met at all.
    EXPECT_TRUE(kind == "eintr" || kind == "short" || tally.told > points / 3) << kind;
  }
}

TEST(FailingCalls, EveryWriteAndSyncOfAWriter) {
  run_points({"threads", 1, 0}, {"eio", "enospc", "eintr", "short"}, kEvery);
}

TEST(FailingCalls, WritesAndSyncsOfEitherOfTwoRanksWithIoUring) {
  if (!io::UringQueue::make(1).ok()) GTEST_SKIP() << "no io_uring here";
  const uint64_t points = std::getenv("SWALE_FAULT_ROUNDS") != nullptr ? kEvery : 9;
  for (const int victim : {0, 1}) run_points({"uring", 2, victim}, {"eio", "enospc", "short"}, points);
}

}  // namespace
}  // namespace swale::faults::failing_calls_test
