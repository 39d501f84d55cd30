// The tree of a job on several nodes, in real processes, of which one is killed while files are drained, and
// then all: what was committed comes to the backing when they are started again (tree_ranks.cc).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/faults/rank_job.h"

namespace swale::faults::tree_ranks_test {
namespace {

constexpr Seconds kPatience(300);
constexpr int kNodes = 3;

LaunchParams job_of(const Scratch& scratch, const std::string& mode) {
  return job_by_tls(TREE_RANKS, scratch, mode, kNodes);
}

// `dead`: killed first, at about its n-th round.
void kill_a_job(const Scratch& scratch, int dead, int round) {
  Launcher job(job_of(scratch, "write"));
  for (int rank = 0; rank < kNodes; ++rank)
    ASSERT_TRUE(job.wait_for_line(rank, "made 10", kPatience)) << job.describe();
  ASSERT_TRUE(job.wait_for_line(dead, "made " + std::to_string(round), kPatience)) << job.describe();
  job.send_signal(dead, SIGKILL);
  const int other = dead == 0 ? 1 : 0;
  ASSERT_TRUE(job.wait_for_line(other, "made 120", kPatience)) << job.describe();
  if (dead == 0) {  // the root of the file
    EXPECT_NE(job.end(other).find("gone: "), nullptr) << job.describe();
  }
  // Of others a drain misses only what they have last.
  for (const Line& each : job.end(other).lines)
    if (dead != 0 && each.text.starts_with("lost: ")) {
      EXPECT_THAT(each.text,
                  testing::HasSubstr(fmt::format("node {} has its bytes from {} to", dead, 100 * dead)));
    }
  for (int rank = 0; rank < kNodes; ++rank)
    if (rank != dead) job.send_signal(rank, SIGKILL);
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < kNodes; ++rank)
    EXPECT_EQ(job.end(rank).find("failed"), nullptr) << job.describe();
}

TEST(TreeRanks, WhatWasCommittedComesToTheBackingAfterAKilledNodeAndAKilledJob) {
  for (int dead = 0; dead < kNodes; ++dead) {
    const Scratch scratch("tree-ranks");
    ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, dead, 20 + 10 * dead));
    Launcher job(job_of(scratch, "check"));
    EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
    for (int rank = 0; rank < kNodes; ++rank)
      EXPECT_NE(job.end(rank).find("done"), nullptr) << "node " << dead << " was killed\n" << job.describe();
    EXPECT_NE(job.end(0).find("checked"), nullptr) << job.describe();
  }
}

TEST(TreeRanks, CanaryACommitThatIsLostIsSeen) {
  const Scratch scratch("tree-ranks");
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, 1, 20));
  std::ofstream(scratch.path() + "/notes.0", std::ios::app) << "? 0 251\n= 0 251\n";
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_line(0, "wrong: node 0", kPatience)) << job.describe();
}

}  // namespace
}  // namespace swale::faults::tree_ranks_test
