#include "sim/meta_cluster.h"

#include <gtest/gtest.h>

#include "sim/test_seeds.h"

namespace swale::sim::meta_cluster_test {
namespace {

// The shards of production, on the devices whose power goes.
MetaClusterParams with_shards(uint64_t seed) {
  MetaClusterParams params;
  params.seed = seed;
  params.open_shard = [seed](io::Device& device, uint32_t server, meta::LoggedTable* table) {
    meta::ShardOptions options;
    options.directory = "store";
    options.shard = server;
    options.table = table;
    options.table_bytes_min =
        seed % 2 == 0 ? 500 : kMiB;  // checkpoints of the attributes again and again, or none
    options.write_buffer_entries = 64;
    options.compression_buffer_bytes = 16 << 10;
    return meta::Shard::open(device, options);
  };
  return params;
}

TEST(MetaCluster, AnswersAreRightWithLostMessagesAndKilledServers) {
  MetaClusterOutcome all;
  for (uint64_t seed = 1; seed <= 60 * seeds(1); ++seed) {
    MetaClusterParams params = with_shards(seed);
    params.servers = 1 + static_cast<uint32_t>(seed % 7);
    const MetaClusterOutcome outcome = run_meta_cluster(params);
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    all.operations += outcome.operations;
    all.cells_checked += outcome.cells_checked;
    all.lost += outcome.lost;
    all.killed += outcome.killed;
    all.duplicates += outcome.duplicates;
    all.winners += outcome.winners;
  }
  std::printf(
      "%lu operations, %lu cells checked, %lu messages lost, %lu servers killed, %lu retries known again, "
      "%lu winners\n",
      static_cast<unsigned long>(all.operations), static_cast<unsigned long>(all.cells_checked),
      static_cast<unsigned long>(all.lost), static_cast<unsigned long>(all.killed),
      static_cast<unsigned long>(all.duplicates), static_cast<unsigned long>(all.winners));
  EXPECT_GT(all.killed, 20u);
  EXPECT_GT(all.duplicates, 10u);
  EXPECT_GT(all.winners, 10u);
}

TEST(MetaCluster, TheSameSeedIsTheSameRun) {
  const MetaClusterOutcome first = run_meta_cluster(with_shards(5));
  const MetaClusterOutcome second = run_meta_cluster(with_shards(5));
  EXPECT_EQ(first.lost, second.lost);
  EXPECT_EQ(first.cells_checked, second.cells_checked);
}

TEST(MetaCluster, CanaryAPutThatIsRepeatedWithoutItsNameIsSeen) {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    MetaClusterParams params = with_shards(seed);
    params.canary = MetaClusterParams::Canary::kRepeatPut;
    seen += !run_meta_cluster(params).problem.empty();
  }
  EXPECT_GT(seen, 5);
}

TEST(MetaCluster, CanaryACommitThatWritesNothingIsSeen) {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MetaClusterParams params = with_shards(seed);
    params.canary = MetaClusterParams::Canary::kForgetCommit;
    params.kills = 10;
    seen += !run_meta_cluster(params).problem.empty();
  }
  EXPECT_GT(seen, 5);
}

}  // namespace
}  // namespace swale::sim::meta_cluster_test
