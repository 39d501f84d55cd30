// Jobs with values of more than 64 KiB, which stay in their writers' value logs, and whose ranks are killed:
// what was committed is whole, and what a dead job left in a value log harms nobody. SWALE_FAULT_ROUNDS
// multiplies the cases.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::large_faults_test {
namespace {

constexpr Seconds kPatience(120);
constexpr int kEpochs = 3;
constexpr uint64_t kRecords = 2000;
constexpr JobContents kLarge{.large = true};

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

LaunchParams large_job(const JobFiles& files, int size, int epochs, uint64_t records) {
  LaunchParams params = files.job(size, epochs, records);
  params.environment.push_back("SWALE_FAULT_LARGE=1");
  return params;
}

void expect_whole(const JobFiles& files, int64_t epochs, const std::string& of) {
  for (const std::string& problem : check_job_files(files.path(), epochs, kLarge))
    ADD_FAILURE() << of << ": " << problem;
}

// A later job that goes on behind what was committed.
void append_epoch(const JobFiles& files, int size, int64_t promised, const std::string& of) {
  Launcher later(large_job(files, size, 1, 500));
  ASSERT_TRUE(later.wait_for_ends(kPatience)) << of << ": the later job hangs\n" << later.describe();
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(later.end(rank).status, 0) << of << ": the later job\n" << later.describe();
  expect_whole(files, promised + 1, of + ", after the later job");
}

std::string value_log(const JobFiles& files, int writer) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(files.path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with(fmt::format("part-{:06d}.j", writer)) && name.ends_with(".values"))
      return entry.path();
  }
  return "";
}

struct Dumped {
  int status = -1;
  int damaged = 0;
  std::map<std::string, int> values;  // by the id of the epoch that they were written in
};

Dumped dump(const std::string& path) {
  Dumped dumped;
  FILE* output = ::popen(fmt::format("{} dump --json {} 2>/dev/null", SWALE_COMMAND, path).c_str(), "r");
  std::array<char, 4096> line;
  while (output != nullptr && std::fgets(line.data(), line.size(), output) != nullptr) {
    const auto said = nlohmann::json::parse(line.data());
    if (said["what"] == "value") {
      ++dumped.values[said["epoch_id"]];
    } else {
      dumped.damaged += said["what"] == "DAMAGE" ? 1 : 0;
    }
  }
  if (output != nullptr) dumped.status = ::pclose(output);
  return dumped;
}

TEST(LargeFaults, AKillAtAnyStageKeepsTheLargeValuesThatWereCommitted) {
  struct Stage {
    const char* hold;   // the victim waits here, or
    const char* after;  // is hit at a random time after it has said this
  };
  constexpr Stage kStages[] = {{"open", nullptr},   {"append 1", nullptr}, {nullptr, "append 1"},
                               {"end 1", nullptr},  {nullptr, "end 1"},    {"ended 1", nullptr},
                               {nullptr, "closing"}};
  constexpr size_t kShapes = 2;
  constexpr const char* kFormats[] = {"base", "indirect", "lossy"};
  constexpr size_t kCases = std::size(kStages) * kShapes * std::size(kFormats);
  std::atomic<int> kills{0}, epochs{0};
  in_parallel(kCases * rounds(), [&](size_t i) {
    const Stage& stage = kStages[i % std::size(kStages)];
    Rng rng(i + 1);
    const int size = i / std::size(kStages) % kShapes == 0 ? 1 : 3;
    const std::string format = kFormats[i / std::size(kStages) / kShapes % std::size(kFormats)];
    const int victim = static_cast<int>(rng.below(static_cast<uint64_t>(size)));
    const char* where = stage.hold != nullptr ? stage.hold : stage.after;
    const std::string of = fmt::format("{} of {} ranks, {} \"{}\"{} (case {})", victim, size,
                                       stage.hold ? "at" : "after", where, ", " + format, i);
    const JobFiles files;
    LaunchParams params = large_job(files, size, kEpochs, kRecords);
    params.environment.push_back("SWALE_IMD_FORMAT=" + format);
    if (stage.hold != nullptr) {
      params.held = victim;
      params.hold = stage.hold;
    }
    Launcher job(params);
    ASSERT_TRUE(job.wait_for_line(victim, where, kPatience)) << of << "\n" << job.describe();
    if (stage.hold == nullptr) job.watch(Seconds(static_cast<double>(rng.below(20'000)) / 1e6));
    job.send_signal(victim, SIGKILL);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << of << ": somebody hangs\n" << job.describe();
    ++kills;
    const int64_t promised = promised_epochs(job);
    epochs += static_cast<int>(promised);
    expect_whole(files, promised, of);
    append_epoch(files, 1 + static_cast<int>(i % 3), promised, of);
  });
  fmt::print("{} kills, {} epochs with large values read back whole\n", kills.load(), epochs.load());
}

// Entries of an epoch that was never committed: readers and verify pass over them, dump shows them, and later
// jobs, which have logs of their own, leave them where they are.
TEST(LargeFaults, EntriesOfAnEpochThatNeverCommittedAreHarmless) {
  std::atomic<int> orphans{0};
  in_parallel(2 * rounds(), [&](size_t i) {
    const std::string of = fmt::format("case {}", i);
    const JobFiles files;
    LaunchParams params = large_job(files, 2, kEpochs, kRecords);
    params.held = 1;
    params.hold = "end 1";  // all of the second epoch is appended
    Launcher crashed(params);
    ASSERT_TRUE(crashed.wait_for_line(1, "end 1", kPatience)) << crashed.describe();
    ASSERT_TRUE(crashed.wait_for_line(0, "end 1", kPatience)) << crashed.describe();
    for (int rank = 0; rank < 2; ++rank) crashed.send_signal(rank, SIGKILL);
    ASSERT_TRUE(crashed.wait_for_ends(kPatience));

    constexpr int kOfAnEpoch = (kRecords + 249) / 250;
    std::array<std::string, 2> logs;
    std::array<Dumped, 2> before;
    for (int writer = 0; writer < 2; ++writer) {
      logs[static_cast<size_t>(writer)] = value_log(files, writer);
      const Dumped& dumped = before[static_cast<size_t>(writer)] = dump(logs[static_cast<size_t>(writer)]);
      EXPECT_EQ(dumped.status, 0) << of;
      EXPECT_EQ(dumped.damaged, 0) << of;
      EXPECT_EQ(dumped.values.size(), 2u) << of << ": a committed epoch, and one that is not";
      for (const auto& [epoch, values] : dumped.values) EXPECT_EQ(values, kOfAnEpoch) << of;
      orphans += kOfAnEpoch;
    }
    expect_whole(files, 1, of);

    append_epoch(files, 1, 1, of);
    append_epoch(files, 2, 2, of);
    for (size_t writer = 0; writer < 2; ++writer) {
      const Dumped after = dump(logs[writer]);
      EXPECT_EQ(after.values, before[writer].values) << of << ": later jobs write to logs of their own";
      EXPECT_EQ(after.damaged, 0) << of;
    }
  });
  fmt::print("{} entries of epochs that never committed\n", orphans.load());
}

// Canaries: a job without large values is not taken for one with them, nor one byte of a value for another.
TEST(LargeFaultsCanary, MissingLargeValuesAndAChangedByteAreNoticed) {
  const JobFiles without;
  Launcher plain(without.job(1, 1, 500));
  ASSERT_TRUE(plain.wait_for_ends(kPatience));
  EXPECT_TRUE(check_job_files(without.path(), 1).empty());
  EXPECT_FALSE(check_job_files(without.path(), 1, kLarge).empty());

  const JobFiles with;
  Launcher large(large_job(with, 1, 1, 500));
  ASSERT_TRUE(large.wait_for_ends(kPatience));
  expect_whole(with, 1, "before");
  FILE* log = std::fopen(value_log(with, 0).c_str(), "r+");
  ASSERT_NE(log, nullptr);
  ASSERT_EQ(std::fseek(log, 100'000, SEEK_SET), 0);
  const int was = std::fgetc(log);
  ASSERT_EQ(std::fseek(log, 100'000, SEEK_SET), 0);
  std::fputc(was ^ 1, log);
  std::fclose(log);
  EXPECT_FALSE(check_job_files(with.path(), 1, kLarge).empty());
}

}  // namespace
}  // namespace swale::faults::large_faults_test
