// Later jobs while parts of earlier ones still live: a job is stopped at any event, or some of its ranks are
// killed and the others continue. Another job takes the directory over, also while the first one commits;
// then the first one wakes. No epoch that either was told is committed may be lost or changed, and the
// directory must be intact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "imd/format/generation.h"
#include "io/memory_device.h"
#include "sim/checker.h"
#include "sim/cluster.h"
#include "sim/test_seeds.h"

namespace swale::sim::remains_test {
namespace {

constexpr char kDirectory[] = "/run";
constexpr uint64_t kToTheEnd = 2'000'000;
constexpr size_t kProbes = 20;

ClusterParams job_of(uint64_t seed, uint64_t number) {
  Rng rng(seed * 31 + number);
  ClusterParams params;
  params.seed = seed * 100 + number;
  params.job_id = seed * 100 + number;
  params.ranks = static_cast<int32_t>(1 + rng.below(4));
  params.ways = static_cast<uint32_t>(1 + rng.below(2));
  params.epochs = static_cast<uint32_t>(2 + rng.below(3));
  params.overlap = rng.below(2) == 0;
  params.records_per_epoch = 60 + rng.below(200);
  params.extrema = seed % 2 == 0;
  params.layout = layout_of_seed(seed);
  params.workload.large_values = seed % 3 == 0;
  return params;
}

struct Counts {
  uint64_t takeovers = 0;
  uint64_t refused = 0;  // times the first job was told that it must not commit
  uint64_t kept = 0;     // epochs of the first job that the second found
  uint64_t epochs = 0;   // read back whole in the end
};

// The first job runs `stop_at` events; then the second one opens, and both run in turns of random length.
// Returns what is wrong.
std::vector<std::string> take_over(uint64_t seed, uint64_t stop_at, bool kill_one, Counts* counts) {
  io::MemoryDevice disk;
  Rng rng(seed ^ stop_at);
  auto first = Cluster::open(job_of(seed, 1), disk, kDirectory).value();
  first->run(stop_at);
  if (kill_one) first->kill(static_cast<net::Rank>(rng.below(static_cast<uint64_t>(job_of(seed, 1).ranks))));
  auto second = Cluster::open(job_of(seed, 2), disk, kDirectory).value();
  bool more = true;
  while (more) {
    more = second->run(1 + rng.below(60));
    if (rng.below(3) != 0) more = first->run(1 + rng.below(60)) || more;
  }
  first->run(kToTheEnd);
  const ClusterOutcome a = first->outcome();
  const ClusterOutcome b = second->outcome();
  std::vector<std::string> problems;
  for (const ClusterOutcome* outcome : {&a, &b}) {
    for (const RankOutcome& rank : outcome->ranks) {
      const bool dead = kill_one && outcome == &a;
      if (!rank.finished && !dead) problems.push_back("a rank waits for ever");
      if (outcome == &b && !rank.failure.ok())
        problems.push_back("the second job failed: " + rank.failure.to_string());
    }
  }
  // Epochs that the first job was promised must be among those that the second one continued.
  if (promised(a) > b.first_epoch)
    problems.push_back(
        fmt::format("{} epochs were promised, the next job found {}", promised(a), b.first_epoch));
  Model model = a.model;
  model.erase(model.lower_bound(b.first_epoch), model.end());
  model.insert(b.model.begin(), b.model.end());
  for (std::string& problem : check_directory(disk, kDirectory, model, promised(b), kProbes))
    problems.push_back(std::move(problem));
  ++counts->takeovers;
  counts->kept += b.first_epoch;
  counts->epochs += promised(b);
  counts->refused += std::any_of(a.ranks.begin(), a.ranks.end(), [](const RankOutcome& rank) {
    return rank.failure.message().find("opened the directory after this one") != std::string_view::npos;
  });
  return problems;
}

// The library warns of every lock that it takes over.
struct Remains : testing::Test {
  Remains() { set_log_level(LogLevel::kOff); }
  ~Remains() override { set_log_level(LogLevel::kWarn); }
};

TEST_F(Remains, AJobThatWakesAfterAnotherTookOverHarmsNothing) {
  Counts counts;
  for (uint64_t seed = 1; seed <= seeds(150); ++seed) {
    Rng rng(seed);
    const uint64_t stop_at = rng.below(1 + rng.below(4000));
    for (const std::string& problem : take_over(seed, stop_at, seed % 4 == 0, &counts))
      ADD_FAILURE() << "seed " << seed << " stopped at event " << stop_at << ": " << problem;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.refused, counts.takeovers / 10);
  EXPECT_GT(counts.kept, counts.takeovers / 8) << "some first jobs had committed epochs";
  std::printf(
      "%llu takeovers, %llu jobs refused, %llu epochs of first jobs kept, %llu epochs read back whole\n",
      static_cast<unsigned long long>(counts.takeovers), static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.kept), static_cast<unsigned long long>(counts.epochs));
}

// The same schedule, stopped at each of its events, which include all moments of a commit.
TEST_F(Remains, AJobMayBeStoppedAtAnyMomentOfItsCommits) {
  Counts counts;
  for (uint64_t stop_at = 0; stop_at < 600; ++stop_at) {
    for (const std::string& problem : take_over(1, stop_at * 4, false, &counts))
      ADD_FAILURE() << "stopped at event " << stop_at * 4 << ": " << problem;
    ASSERT_FALSE(HasFailure());
  }
  std::printf("%llu moments, %llu epochs of first jobs kept\n",
              static_cast<unsigned long long>(counts.takeovers),
              static_cast<unsigned long long>(counts.kept));
}

// Canary: a successor that continues from what it read before its claim can lose an epoch; the checker
// notices it.
TEST(RemainsCanary, ALogThatWasReadBeforeTheClaimLosesEpochs) {
  uint64_t seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    io::MemoryDevice disk;
    const ClusterParams params = job_of(seed, 1);
    auto first = Cluster::open(params, disk, kDirectory).value();
    const imd::Manifest early = imd::load_manifest(disk, kDirectory).value();
    first->run(kToTheEnd);
    const ClusterOutcome a = first->outcome();
    const uint32_t number = imd::claim_job(disk, kDirectory).value();
    const imd::Manifest next = imd::next_generation(early, {number, "00000000000000aa", 1, 1, "hash"});
    ASSERT_TRUE(imd::write_generation(disk, kDirectory, next, early.continues).ok());
    seen += check_directory(disk, kDirectory, a.model, promised(a), kProbes).empty() ? 0 : 1;
  }
  EXPECT_EQ(seen, 20u);
}

}  // namespace
}  // namespace swale::sim::remains_test
