#include "sim/names_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/test_seeds.h"

namespace swale::sim::names_cluster_test {
namespace {

void add(const NamesClusterOutcome& from, NamesClusterOutcome* to) {
  to->operations += from.operations, to->changed += from.changed, to->refused += from.refused;
  to->listed += from.listed, to->lost += from.lost, to->doubled += from.doubled, to->killed += from.killed;
  for (const auto& [what, count] : from.visited) to->visited[what] += count;
  for (const auto& [what, count] : from.answers) to->answers[what] += count;
}

void print(const char* what, const NamesClusterOutcome& all) {
  std::printf(
      "%s: %lu operations, %lu changes, %lu refused, %lu listings; %lu messages lost, %lu doubled, "
      "%lu servers killed\n",
      what, static_cast<unsigned long>(all.operations), static_cast<unsigned long>(all.changed),
      static_cast<unsigned long>(all.refused), static_cast<unsigned long>(all.listed),
      static_cast<unsigned long>(all.lost), static_cast<unsigned long>(all.doubled),
      static_cast<unsigned long>(all.killed));
  for (const auto& [answer, count] : all.answers)
    std::printf("  %8lu %s\n", static_cast<unsigned long>(count), answer.c_str());
}

TEST(NamesCluster, AnswersAreThoseOfATreeWithLostAndDoubledMessagesAndKilledServers) {
  NamesClusterOutcome all;
  for (uint64_t seed = 1; seed <= 100 * seeds(1); ++seed) {
    NamesClusterParams params;
    params.seed = seed;
    params.servers = seed % 5 == 0 ? 1 + static_cast<uint32_t>(seed % 3) : 4;
    params.power = seed % 2 == 0;
    const NamesClusterOutcome outcome = run_names_cluster(params);
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    add(outcome, &all);
  }
  print("names", all);
  EXPECT_GT(all.killed, 100u);
  for (const char* const answer : {"create", "create: EEXIST", "mkdir", "unlink", "rmdir", "rmdir: ENOTEMPTY",
                                   "rename", "rename: EINVAL", "rename: ENOTEMPTY", "rename: EEXIST"})
    EXPECT_GT(all.answers[answer], 0u) << answer;
}

TEST(NamesCluster, TheSameSeedIsTheSameRun) {
  NamesClusterParams params;
  params.seed = 5;
  const NamesClusterOutcome first = run_names_cluster(params);
  const NamesClusterOutcome second = run_names_cluster(params);
  EXPECT_EQ(first.points, second.points);
  EXPECT_EQ(first.answers, second.answers);
}

// Runs in which a server is killed, at every point of a run in turn. `seen`: in how many something was wrong.
struct KillRuns {
  uint64_t runs = 0, seen = 0;
  std::string problem;
  NamesClusterOutcome points;  // of the runs without a kill
};

KillRuns kill_at_every_point(uint64_t first, uint64_t seed_count, NamesClusterParams::Canary canary) {
  KillRuns all;
  NamesClusterParams params;
  params.operations = 9;
  params.lose_per_mille = params.double_per_mille = 0;
  params.kills = 0;
  params.canary = canary;
  for (params.seed = first; params.seed < first + seed_count; ++params.seed) {
    params.power = params.seed % 2 == 0;
    params.kill_at = 0;
    const NamesClusterOutcome whole = run_names_cluster(params);
    add(whole, &all.points);
    for (params.kill_at = 1; params.kill_at <= whole.points; ++params.kill_at) {
      const NamesClusterOutcome outcome = run_names_cluster(params);
      EXPECT_LE(outcome.killed, 1u);
      ++all.runs;
      if (outcome.problem.empty()) continue;
      ++all.seen;
      all.problem = "seed " + std::to_string(params.seed) + ", killed at point " +
                    std::to_string(params.kill_at) + ": " + outcome.problem;
    }
  }
  return all;
}

TEST(NamesCluster, AKillAtEveryWriteAndMessageLosesNothing) {
  KillRuns all = kill_at_every_point(9, 8 * seeds(1), NamesClusterParams::Canary::kNone);
  EXPECT_EQ(all.seen, 0u) << all.problem;
  std::printf("%lu runs, each with a server killed at another point:\n",
              static_cast<unsigned long>(all.runs));
  for (const auto& [what, count] : all.points.visited)
    std::printf("  %8lu %s\n", static_cast<unsigned long>(count), what.c_str());
  for (const char* const what :
       {"lock: before it is handled", "decide: after it is handled", "remove: after it is handled",
        "leave: before it is handled", "drop: before it is handled", "set parent: before it is handled",
        "group: in the middle of its write", "group: after its write"})
    EXPECT_GT(all.points.visited[what], 0u) << what;
}

// Killed when the source's record is durable and the target's server has not heard of it.
TEST(NamesCluster, CanaryARenameWithoutAnIntentIsSeen) {
  const KillRuns all = kill_at_every_point(1, 8, NamesClusterParams::Canary::kNoIntents);
  std::printf("%lu of %lu runs, such as %s\n", static_cast<unsigned long>(all.seen),
              static_cast<unsigned long>(all.runs), all.problem.c_str());
  EXPECT_GT(all.seen, 5u);
}

uint64_t seen(NamesClusterParams::Canary canary) {
  uint64_t seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    NamesClusterParams params;
    params.seed = seed;
    params.kills = 10;
    params.power = canary != NamesClusterParams::Canary::kUnsynced;
    params.canary = canary;
    // Somebody must look up just what another node is renaming.
    if (canary == NamesClusterParams::Canary::kUntold) params.operations = 200;
    const std::string problem = run_names_cluster(params).problem;
    if (!problem.empty() && ++seen == 1) std::printf("such as %s\n", problem.c_str());
  }
  return seen;
}

TEST(NamesCluster, CanaryAReusedIdIsSeen) { EXPECT_GT(seen(NamesClusterParams::Canary::kReusedId), 5u); }

TEST(NamesCluster, CanaryADirectoryThatSomeNodesStillRememberIsSeen) {
  EXPECT_GT(seen(NamesClusterParams::Canary::kUntold), 5u);
}

TEST(NamesCluster, CanaryAPowerFailureAfterAWrittenAnswerIsSeen) {
  EXPECT_GT(seen(NamesClusterParams::Canary::kUnsynced), 5u);
}

TEST(NamesCluster, CanaryARemovalThatDoesNotAskAllServersIsSeen) {
  EXPECT_GT(seen(NamesClusterParams::Canary::kUnaskedServer), 5u);
}

}  // namespace
}  // namespace swale::sim::names_cluster_test
