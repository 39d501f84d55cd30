// The tree of a job on several nodes, in real processes, of which one is killed while files are drained, and
// then all: what was committed comes to the backing when they are started again (tree_ranks.cc).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/faults/launcher.h"

namespace swale::faults::tree_ranks_test {
namespace {

constexpr Seconds kPatience(300);
constexpr int kNodes = 3;

class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "swale-tree-ranks-XXXXXX").string();
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
  params.program = TREE_RANKS;
  params.arguments = {scratch.path() + "/nodes", mode, scratch.path() + "/notes"};
  params.job_id = "tree-ranks-" + mode;
  params.rendezvous = scratch.path() + "/rendezvous-" + mode;
  params.by_tls = true;
  std::filesystem::create_directories(params.rendezvous);
  std::filesystem::permissions(params.rendezvous, std::filesystem::perms::owner_all);
  return params;
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
    const Scratch scratch;
    ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, dead, 20 + 10 * dead));
    Launcher job(job_of(scratch, "check"));
    EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
    for (int rank = 0; rank < kNodes; ++rank)
      EXPECT_NE(job.end(rank).find("done"), nullptr) << "node " << dead << " was killed\n" << job.describe();
    EXPECT_NE(job.end(0).find("checked"), nullptr) << job.describe();
  }
}

TEST(TreeRanks, CanaryACommitThatIsLostIsSeen) {
  const Scratch scratch;
  ASSERT_NO_FATAL_FAILURE(kill_a_job(scratch, 1, 20));
  std::ofstream(scratch.path() + "/notes.0", std::ios::app) << "? 0 251\n= 0 251\n";
  Launcher job(job_of(scratch, "check"));
  EXPECT_TRUE(job.wait_for_line(0, "wrong: node 0", kPatience)) << job.describe();
}

}  // namespace
}  // namespace swale::faults::tree_ranks_test
