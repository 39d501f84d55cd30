// The tree of a job in real processes, of which one is killed, and then all: what was answered is there when
// the tree is opened again (names_ranks.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/faults/rank_job.h"

namespace swale::faults::names_ranks_test {
namespace {

constexpr Seconds kPatience(300);
constexpr int kNodes = 3;

LaunchParams job_of(const Scratch& scratch, const std::string& mode) {
  return job_by_tls(NAMES_RANKS, scratch, mode, kNodes);
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
  const Scratch scratch("names-ranks");
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch));
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < kNodes; ++rank)
    EXPECT_NE(job.end(rank).find("done"), nullptr) << "rank " << rank << "\n" << job.describe();
  EXPECT_NE(job.end(0).find("checked"), nullptr) << job.describe();
}

TEST(NamesRanks, CanaryAnAnswerThatIsLostIsSeen) {
  const Scratch scratch("names-ranks");
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch));
  std::ofstream(scratch.path() + "/notes.0", std::ios::app) << "=+0-99\n";
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_line(0, "wrong: 0-99 is not there", kPatience)) << job.describe();
}

}  // namespace
}  // namespace swale::faults::names_ranks_test
