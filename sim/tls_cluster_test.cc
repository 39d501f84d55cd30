// Makes all clusters of this program talk by TLS over the simulated wire: the schedules of cluster_test.cc
// are run again, unchanged. And those that only a wire can have: a bit turned over under TLS, ranks that are
// parted, a rank that stands for a while.
#include <gtest/gtest.h>

#include "sim/node.h"
#include "sim/test_cluster_checks.h"
#include "sim/tls_fabric.h"

namespace swale::sim::tls_cluster_test {
namespace {

Wire::Counts carried;  // by the wires of all clusters

TlsNet::Params net_of(const ClusterParams& params) {
  Rng rng(params.seed * 7 + 1);
  TlsNet::Params made;
  made.ranks = params.ranks;
  made.silence_deadline = params.silence_deadline;
  made.wire.window_bytes = rng.chance(1, 2) ? 64 * kKiB : 4 * kKiB + rng.below(300 * kKiB);
  made.wire.piece_bytes_max = 1460 + rng.below(60'000);
  made.rekey_after = rng.chance(1, 4) ? 20 : 0;
  return made;
}

// Clusters whose net is changed by `change` before it is made, and by `plan` after.
MakeFabric over_tls(const std::function<void(TlsNet::Params*)>& change = {},
                    const std::function<void(TlsNet*, EventQueue*)>& plan = {}) {
  return [=](const ClusterParams& params, EventQueue& events, const Fabric::Arrive& arrive,
             const Fabric::Lose& lose) {
    TlsNet::Params net = net_of(params);
    if (change) change(&net);
    auto made = std::make_unique<TlsFabric>(events, kSecret, params.faults.frames, net, arrive, lose);
    made->count_into(&carried);
    if (plan) plan(&made->net(), &events);
    return made;
  };
}

const bool all_by_tls = [] {
  default_fabric() = over_tls();
  return true;
}();

ClusterParams params_of(uint64_t seed) {
  Rng rng(seed * 99 + 3);
  ClusterParams params;
  params.seed = seed;
  params.ranks = 2 + static_cast<int32_t>(rng.below(4));
  params.frame_bytes = 17 * kKiB;
  params.window = static_cast<uint16_t>(1 + rng.below(3));
  params.epochs = 1 + static_cast<uint32_t>(rng.below(3));
  params.records_per_epoch = 500 + rng.below(4000);
  params.workload.keys = 1 + rng.below(1000);
  params.layout = layout_of_seed(seed);
  return params;
}

struct Ends {
  uint64_t openings = 0;  // that failed
  uint64_t failed = 0;    // jobs that failed later
};

// Each job ends on all ranks, as a success or with a rank's name, and what was committed is whole.
Ends expect_ends(uint64_t count, const std::function<MakeFabric(uint64_t seed)>& fabric_of) {
  Ends ends;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    io::MemoryDevice device;
    ClusterParams params = params_of(seed);
    params.fabric = fabric_of(seed);
    const Result<ClusterOutcome> outcome = run_cluster(params, device, kDirectory);
    if (!outcome.ok()) {
      ++ends.openings;
      EXPECT_NE(outcome.status().message().find("rank "), std::string::npos)
          << "seed " << seed << ": " << outcome.status().to_string();
      continue;
    }
    bool failed = false;
    for (const RankOutcome& rank : outcome->ranks) {
      EXPECT_TRUE(rank.finished) << "seed " << seed << ": a rank waits for ever";
      if (rank.failure.ok()) continue;
      failed = true;
      EXPECT_NE(rank.failure.message().find("rank "), std::string::npos)
          << "seed " << seed << ": " << rank.failure.to_string();
    }
    ends.failed += failed ? 1 : 0;
    expect_whole(device, *outcome, seed);
    if (testing::Test::HasFailure()) break;
  }
  return ends;
}

void print(const char* what, const Ends& ends) {
  fmt::print("{}: {} openings and {} jobs failed; all wires so far: {}\n", what, ends.openings, ends.failed,
             carried.text());
}

TEST(TlsCluster, ABitThatIsTurnedOverOnTheWayIsNeverCommitted) {
  const Ends ends = expect_ends(seeds(60), [](uint64_t seed) {
    return over_tls([seed](TlsNet::Params* net) {
      net->wire.altered_piece = static_cast<int64_t>(Rng(seed * 3).below(seed % 2 == 0 ? 60 : 600));
    });
  });
  print("one bit", ends);
  EXPECT_GT(ends.openings + ends.failed, seeds(60) / 4);
}

TEST(TlsCluster, RanksThatArePartedForGoodFailTheEpochEverywhere) {
  const Ends ends = expect_ends(seeds(40), [](uint64_t seed) {
    return over_tls({}, [seed](TlsNet* net, EventQueue* events) {
      events->at(static_cast<Nanos>(Rng(seed).below(5'000'000)),
                 [net] { net->wire().part(0, 1, seconds(1'000'000)); });
    });
  });
  print("parted for good", ends);
  EXPECT_GT(ends.openings + ends.failed, seeds(40) / 2);
}

TEST(TlsCluster, ARankThatStandsForLessThanTheDeadlineFailsNothing) {
  const Ends ends = expect_ends(seeds(40), [](uint64_t seed) {
    return over_tls({}, [seed](TlsNet* net, EventQueue* events) {
      const auto when = static_cast<Nanos>(Rng(seed).below(5'000'000));
      events->at(when, [net, events] { net->stop(1, events->now() + seconds(2)); });
    });
  });
  print("stopped", ends);
  EXPECT_EQ(ends.openings + ends.failed, 0u);
}

TEST(TlsCluster, ARankThatStandsForLongerIsNamed) {
  const Ends ends = expect_ends(seeds(40), [](uint64_t seed) {
    return over_tls({}, [seed](TlsNet* net, EventQueue* events) {
      const auto when = static_cast<Nanos>(Rng(seed).below(2'000'000));
      events->at(when, [net, events] { net->stop(1, events->now() + seconds(60)); });
    });
  });
  print("stopped for long", ends);
  EXPECT_GT(ends.openings + ends.failed, seeds(40) / 2);
}

TEST(TlsCluster, AllThisWasCarriedByTls) {
  fmt::print("all wires: {}\n", carried.text());
  EXPECT_TRUE(all_by_tls);
  EXPECT_GT(carried.pieces, 1000u);
}

}  // namespace
}  // namespace swale::sim::tls_cluster_test
