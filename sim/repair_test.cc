// Repair after dead jobs and concurrently with living ones: a job is stopped or killed at any event, repair
// runs and may be killed as well, the job wakes. Committed epochs stay intact, every recovered record was
// appended, and the next job can continue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "imd/read/reader.h"
#include "io/memory_device.h"
#include "sim/checker.h"
#include "sim/cluster.h"
#include "sim/repair_run.h"
#include "sim/test_seeds.h"

namespace swale::sim::repair_test {
namespace {

constexpr char kDirectory[] = "/run";
constexpr uint64_t kToTheEnd = 2'000'000;
constexpr size_t kProbes = 20;

ClusterParams job_of(uint64_t seed, uint64_t number) {
  Rng rng(seed * 37 + number);
  ClusterParams params;
  params.seed = seed * 100 + number;
  params.job_id = seed * 100 + number;
  params.ranks = static_cast<int32_t>(1 + rng.below(4));
  params.epochs = static_cast<uint32_t>(1 + rng.below(3));
  params.overlap = rng.chance(1, 2);
  params.records_per_epoch = 60 + rng.below(200);
  params.extrema = seed % 2 == 0;
  params.layout = layout_of_seed(seed);
  params.workload.large_values = seed % 3 == 0;
  // Some fill their memtables, so that runs of open epochs are on the disk.
  if (seed % 4 == 1) params.records_per_epoch = 30'000 * static_cast<uint64_t>(params.ranks);
  return params;
}

// For an epoch that repair has recovered in part: removes the missing records from the model. Returns whether
// every recovered record was appended at least as often.
bool keep_what_is_there(imd::Reader& reader, uint32_t epoch, Model* model) {
  Model::mapped_type found;
  bool known = true;
  Model::mapped_type& appended = (*model)[epoch];
  const Status scanned = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    const auto writers = appended.find(std::string(key));
    if (writers == appended.end()) return known = false;
    for (auto& [writer, values] : writers->second) {
      const auto place = std::find(values.begin(), values.end(), value);
      if (place == values.end()) continue;
      values.erase(place);
      found[std::string(key)][writer].emplace_back(value);
      return true;
    }
    return known = false;
  });
  appended = std::move(found);
  return scanned.ok() && known;
}

struct Counts {
  uint64_t repairs = 0;
  uint64_t killed = 0;
  uint64_t busy = 0;
  uint64_t recovered = 0;  // epochs, in part
  uint64_t whole = 0;      // epochs that were committed
};

// Checks the directory after the job and repair; sets the model to its content.
std::vector<std::string> check_repaired(io::Device& disk, Model* model, uint32_t epochs_promised,
                                        Counts* counts) {
  std::vector<std::string> problems;
  uint32_t whole = 0;
  {
    const auto reader = imd::Reader::open(disk, kDirectory, {});
    if (!reader.ok()) return {reader.status().to_string()};
    const auto& epochs = (*reader)->manifest().epochs;
    for (uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
      if (epochs[epoch].recovered != imd::Recovered::kPartial) {
        ++whole;
        continue;
      }
      ++counts->recovered;
      if (!keep_what_is_there(**reader, epoch, model))
        problems.push_back(fmt::format("epoch {}: what was recovered was not appended", epoch));
    }
  }
  counts->whole += whole;
  for (std::string& problem : check_directory(disk, kDirectory, *model, epochs_promised, kProbes))
    problems.push_back(std::move(problem));
  if (whole < epochs_promised)
    problems.push_back(fmt::format("{} epochs are whole, {} were promised", whole, epochs_promised));
  return problems;
}

// The job stops at an event: it is dead, or it sleeps and wakes after repair. Repair may be killed once.
std::vector<std::string> stop_and_repair(uint64_t seed, bool wakes, bool kill_repair, Counts* counts) {
  io::MemoryDevice disk;
  Rng rng(seed * 3 + (wakes ? 1 : 0) + (kill_repair ? 7 : 0));
  const ClusterParams params = job_of(seed, 1);
  auto job = Cluster::open(params, disk, kDirectory).value();
  job->run(rng.below(1 + rng.below(4000)));
  if (!wakes) {
    for (net::Rank rank = 0; rank < params.ranks; ++rank) job->kill(rank);
  }
  if (kill_repair) {
    RepairRun first(seed + 5000, disk, kDirectory);
    first.run(rng.below(100));
    counts->killed += first.outcome() ? 0 : 1;
  }
  RepairRun repair(seed + 9000, disk, kDirectory);
  repair.run(kToTheEnd);
  std::vector<std::string> problems;
  if (!repair.outcome()) return {"repair waits for ever"};
  if (!repair.outcome()->ok()) problems.push_back("repair: " + repair.outcome()->status().to_string());
  ++counts->repairs;
  if (wakes) job->run(kToTheEnd);
  const ClusterOutcome outcome = job->outcome();
  Model model = outcome.model;
  for (std::string& problem : check_repaired(disk, &model, promised(outcome), counts))
    problems.push_back(std::move(problem));
  const Result<ClusterOutcome> next = run_cluster(job_of(seed, 2), disk, kDirectory);
  if (!next.ok()) return {"the next job: " + next.status().to_string()};
  model.erase(model.lower_bound(next->first_epoch), model.end());
  for (const auto& [epoch, records] : next->model) model[epoch] = records;
  for (std::string& problem : check_directory(disk, kDirectory, model, promised(*next), kProbes))
    problems.push_back("after the next job: " + std::move(problem));
  return problems;
}

// The library warns of every lock that it takes over.
struct Repair : testing::Test {
  Repair() { set_log_level(LogLevel::kOff); }
  ~Repair() override { set_log_level(LogLevel::kWarn); }
};

TEST_F(Repair, WhatADeadJobCommittedStaysAndWhatItLeftIsRecovered) {
  Counts counts;
  for (uint64_t seed = 1; seed <= seeds(20); ++seed) {
    for (const std::string& problem : stop_and_repair(seed, false, seed % 2 == 0, &counts))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.recovered, 0u);
  EXPECT_GT(counts.killed, counts.repairs / 10);
  std::printf("%llu repairs after %llu that were killed: %llu epochs whole, %llu recovered in part\n",
              static_cast<unsigned long long>(counts.repairs), static_cast<unsigned long long>(counts.killed),
              static_cast<unsigned long long>(counts.whole),
              static_cast<unsigned long long>(counts.recovered));
}

TEST_F(Repair, AJobThatWakesAfterARepairHarmsNothing) {
  Counts counts;
  for (uint64_t seed = 1; seed <= seeds(12); ++seed) {
    for (const std::string& problem : stop_and_repair(seed, true, seed % 4 == 0, &counts))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    ASSERT_FALSE(HasFailure());
  }
}

// Repair without waiting is refused while a job holds the lock, and changes nothing.
TEST_F(Repair, BesideALivingJobChangesNothing) {
  Counts counts;
  for (uint64_t seed = 1; seed <= seeds(12); ++seed) {
    io::MemoryDevice disk;
    Rng rng(seed);
    auto job = Cluster::open(job_of(seed, 1), disk, kDirectory).value();
    job->run(rng.below(200));
    RepairRun repair(seed, disk, kDirectory, 0);
    while (job->run(1 + rng.below(60))) repair.run(1 + rng.below(20));
    repair.run(kToTheEnd);
    const ClusterOutcome outcome = job->outcome();
    for (const RankOutcome& rank : outcome.ranks)
      ASSERT_TRUE(rank.finished && rank.failure.ok()) << "seed " << seed << ": " << rank.failure.to_string();
    ASSERT_TRUE(repair.outcome().has_value()) << "seed " << seed;
    if (!repair.outcome()->ok()) {
      ASSERT_EQ(repair.outcome()->status().code(), Code::kBusy) << repair.outcome()->status().to_string();
      ++counts.busy;
    }
    for (const std::string& problem :
         check_directory(disk, kDirectory, outcome.model, promised(outcome), kProbes))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(counts.busy, 1u);
}

// Canary: the checker notices a record in a recovered epoch that was never appended.
TEST(RepairCanary, ARecoveredRecordThatNobodyAppendedIsSeen) {
  set_log_level(LogLevel::kOff);
  uint64_t seen = 0, recovered = 0;
  for (uint64_t seed = 1; seed <= 60 && recovered < 3; seed += 4) {
    io::MemoryDevice disk;
    auto job = Cluster::open(job_of(seed, 1), disk, kDirectory).value();
    job->run(3000);
    for (net::Rank rank = 0; rank < job_of(seed, 1).ranks; ++rank) job->kill(rank);
    RepairRun repair(seed, disk, kDirectory);
    repair.run(kToTheEnd);
    const ClusterOutcome outcome = job->outcome();
    Model model = outcome.model;
    Counts counts;
    ASSERT_TRUE(check_repaired(disk, &model, promised(outcome), &counts).empty());
    if (counts.recovered == 0) continue;
    ++recovered;
    Model less = outcome.model;  // as if one of the records that are there had never been appended
    less.rbegin()->second.erase(model.rbegin()->second.begin()->first);
    seen += check_repaired(disk, &less, promised(outcome), &counts).empty() ? 0 : 1;
  }
  set_log_level(LogLevel::kWarn);
  EXPECT_GT(recovered, 0u);
  EXPECT_EQ(seen, recovered);
}

}  // namespace
}  // namespace swale::sim::repair_test
