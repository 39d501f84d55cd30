// Files that nodes share, in real processes, of which one is killed, and then all: each read shows what was
// committed before it, and what was committed is there when all are started again (share_ranks.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/faults/rank_job.h"

namespace swale::faults::share_ranks_test {
namespace {

constexpr Seconds kPatience(300);

LaunchParams job_of(const Scratch& scratch, const std::string& mode, int nodes) {
  return job_by_tls(SHARE_RANKS, scratch, mode, nodes);
}

// One node is killed in the middle of its work, and when another one has missed it, all.
void kill_a_job(const Scratch& scratch, int nodes) {
  Launcher job(job_of(scratch, "write", nodes));
  for (int rank = 0; rank < nodes; ++rank)
    ASSERT_TRUE(job.wait_for_line(rank, "made 20", kPatience)) << job.describe();
  job.send_signal(1, SIGKILL);
  ASSERT_TRUE(job.wait_for_line(0, "gone: ", kPatience)) << job.describe();
  const std::string gone = job.end(0).find("gone: ")->text;
  EXPECT_THAT(gone, testing::HasSubstr("file "));
  EXPECT_THAT(gone, testing::HasSubstr("node 1"));
  for (int rank = 0; rank < nodes; ++rank)
    if (rank != 1) job.send_signal(rank, SIGKILL);
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < nodes; ++rank) EXPECT_EQ(job.end(rank).find("wrong"), nullptr) << job.describe();
}

class ShareRanks : public testing::TestWithParam<int> {};

TEST_P(ShareRanks, ReadsShowWhatWasCommittedAlsoAfterAKilledNodeAndAKilledJob) {
  const Scratch scratch("share-ranks");
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, GetParam()));
  Launcher job(job_of(scratch, "check", GetParam()));
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < GetParam(); ++rank)
    EXPECT_NE(job.end(rank).find("done"), nullptr) << "rank " << rank << "\n" << job.describe();
  EXPECT_NE(job.end(0).find("checked"), nullptr) << job.describe();
}
INSTANTIATE_TEST_SUITE_P(Nodes, ShareRanks, testing::Values(2, 4));

TEST(ShareRanksCanary, ACommitThatIsLostIsSeen) {
  const Scratch scratch("share-ranks");
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, 2));
  std::ofstream(scratch.path() + "/notes.0", std::ios::app) << "? 1 249\n= 1 249\n";
  Launcher job(job_of(scratch, "check", 2));
  EXPECT_TRUE(job.wait_for_line(0, "wrong: file 1: node 0", kPatience)) << job.describe();
}

TEST(ShareRanksCanary, ACommitThatDoesNotWaitIsSeen) {
  const Scratch scratch("share-ranks");
  Launcher job(job_of(scratch, "hasty", 2));
  EXPECT_TRUE(job.wait_for_ends(kPatience, 1)) << job.describe();
  EXPECT_NE(job.end(0).find("wrong: file"), nullptr) << job.describe();
}

}  // namespace
}  // namespace swale::faults::share_ranks_test
