// `swale repair` after real kills: beside nothing else that lives, on what all ranks of a killed job have
// left, with its newest manifests lost besides. SWALE_FAULT_ROUNDS multiplies the cases (make test-long).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/rng.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::repair_faults_test {
namespace {

constexpr Seconds kPatience(120);
constexpr int kEpochs = 4;
constexpr uint64_t kRecords = 3000;

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

// Its exit status.
int repair(const std::string& path) {
  const int status =
      std::system(fmt::format("{} repair {} > {}/../said 2>&1", SWALE_COMMAND, path, path).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct Stage {
  const char* line;  // of the victim, after which the kill comes
  bool random;       // up to 20 ms later
};
constexpr Stage kStages[] = {{"append 1", false}, {"append 2", true}, {"end 1", false},
                             {"end 2", true},     {"ended 2", true},  {"closing", true}};

enum class Loss { kNothing, kTopManifest, kCount };

struct Tally {
  std::atomic<int> kills{0}, repairs{0}, epochs{0};
};

void run_case(uint64_t seed, Tally* tally) {
  Rng rng(seed);
  const Stage& stage = kStages[seed % std::size(kStages)];
  const auto loss = static_cast<Loss>(seed / std::size(kStages) % static_cast<uint64_t>(Loss::kCount));
  const int size = 1 + static_cast<int>(seed % 3);
  constexpr const char* kFormats[] = {"base", "indirect", "lossy"};
  const std::string format = kFormats[seed / 3 % std::size(kFormats)];
  const std::string name = fmt::format("{} ranks, {}, \"{}\", seed {}", size, format, stage.line, seed);
  const JobFiles files;
  LaunchParams params = files.job(size, kEpochs, kRecords);
  params.environment.push_back("SWALE_IMD_FORMAT=" + format);
  if (!stage.random) {
    params.held = 0;
    params.hold = stage.line;
  }
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_line(0, stage.line, kPatience)) << name << "\n" << job.describe();
  if (stage.random) job.watch(Seconds(static_cast<double>(rng.below(20'000)) / 1e6));
  for (int rank = 0; rank < size; ++rank) job.send_signal(rank, SIGKILL);
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << name;
  tally->kills += size;
  const int64_t promised = promised_epochs(job);
  if (loss == Loss::kTopManifest) std::filesystem::remove(files.path() + "/swale.json");
  for (const char* time : {"first", "second"}) {
    // 1: it says what it found, such as an epoch that nobody has committed.
    EXPECT_LE(static_cast<unsigned>(repair(files.path())), 1u) << name << ", the " << time << " repair";
    ++tally->repairs;
    for (const std::string& problem : check_job_files(files.path(), promised, {.repaired = true}))
      ADD_FAILURE() << name << ", after the " << time << " repair: " << problem;
  }
  EXPECT_TRUE(std::filesystem::exists(files.path() + "/swale.json")) << name;
  tally->epochs += static_cast<int>(promised);
  Launcher later(files.job(1 + static_cast<int>(seed / 3 % 2), 1, 500));
  ASSERT_TRUE(later.wait_for_ends(kPatience)) << name << "\n" << later.describe();
  for (int rank = 0; rank < later.size(); ++rank)
    EXPECT_EQ(later.end(rank).status, 0) << name << ": the later job\n" << later.describe();
  for (const std::string& problem : check_job_files(files.path(), promised + 1, {.repaired = true}))
    ADD_FAILURE() << name << ", after the later job: " << problem;
}

TEST(RepairFaults, AfterAKillOfAllRanksNothingThatWasCommittedIsLost) {
  Tally tally;
  in_parallel(12 * rounds(), [&](size_t i) { run_case(i, &tally); });
  fmt::print("{} ranks killed, {} repairs, {} epochs read back whole\n", tally.kills.load(),
             tally.repairs.load(), tally.epochs.load());
}

// Canary: with an index gone that repair cannot make anew, because the data are gone as well, an epoch is
// missing.
TEST(RepairFaultsCanary, WhatIsLostIsNoticed) {
  const JobFiles files;
  Launcher job(files.job(2, 2, 500));
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  EXPECT_TRUE(check_job_files(files.path(), 2).empty());
  int removed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(files.path())) {
    if (entry.path().filename().string().find("part-000001") != std::string::npos)
      removed += std::filesystem::remove(entry.path()) ? 1 : 0;
  }
  ASSERT_GE(removed, 2);
  EXPECT_NE(repair(files.path()), -1);
  EXPECT_FALSE(check_job_files(files.path(), 2).empty());
}

}  // namespace
}  // namespace swale::faults::repair_faults_test
