// The tree of a job in real processes, of which one is killed, and then all: what was answered is there when
// the tree is opened again (names_ranks.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/faults/launcher.h"

namespace swale::faults::names_ranks_test {
namespace {

constexpr Seconds kPatience(300);
constexpr int kNodes = 3;

class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "swale-names-ranks-XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

LaunchParams job_of(const Scratch& scratch, const std::string& mode) {
  LaunchParams params;
  params.size = kNodes;
  params.program = NAMES_RANKS;
  params.arguments = {scratch.path() + "/tree", mode, scratch.path() + "/notes"};
  params.job_id = "names-ranks-" + mode;
  params.rendezvous = scratch.path() + "/rendezvous-" + mode;
  params.by_tls = true;
  std::filesystem::create_directories(params.rendezvous);
  std::filesystem::permissions(params.rendezvous, std::filesystem::perms::owner_all);
  return params;
}

// One node is killed in the middle of its work, and when another one has missed it, all.
void kill_a_job(const Scratch& scratch) {
  Launcher job(job_of(scratch, "write"));
  for (int rank = 0; rank < kNodes; ++rank)
    ASSERT_TRUE(job.wait_for_line(rank, "made 50", kPatience)) << job.describe();
  job.send_signal(1, SIGKILL);
  ASSERT_TRUE(job.wait_for_line(0, "gone: ", kPatience)) << job.describe();
  EXPECT_THAT(job.end(0).find("gone: ")->text, testing::HasSubstr("at server "));
  for (const int rank : {0, 2}) job.send_signal(rank, SIGKILL);
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < kNodes; ++rank) EXPECT_EQ(job.end(rank).find("wrong"), nullptr) << job.describe();
}

TEST(NamesRanks, WhatWasAnsweredSurvivesAKilledNodeAndAKilledJob) {
  const Scratch scratch;
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch));
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < kNodes; ++rank)
    EXPECT_NE(job.end(rank).find("done"), nullptr) << "rank " << rank << "\n" << job.describe();
  EXPECT_NE(job.end(0).find("checked"), nullptr) << job.describe();
}

TEST(NamesRanks, CanaryAnAnswerThatIsLostIsSeen) {
  const Scratch scratch;
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch));
  std::ofstream(scratch.path() + "/notes.0", std::ios::app) << "=+0-99\n";
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_line(0, "wrong: 0-99 is not there", kPatience)) << job.describe();
}

}  // namespace
}  // namespace swale::faults::names_ranks_test
