// Whole jobs of processes whose ranks are killed or stopped. SWALE_FAULT_ROUNDS multiplies the cases (make
// test-long).
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/rng.h"
#include "base/testing/test_shared_memory.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::job_faults_test {
namespace {

constexpr Seconds kPatience(120);  // for what must happen: hanging is a failure, being slow is not
constexpr int kEpochs = 5;
constexpr uint64_t kRecords = 3000;

// A dead rank is silent, and in closing it is missing.
constexpr Seconds kToldOfDeath = std::max(kSilenceDeadline, kCloseDeadline) + kMargin;

// Where a test sets shorter deadlines than JobFiles::job does.
constexpr Seconds kShortDeadline(5);

struct Stage {
  const char* name;
  const char* hold;   // the victim waits here, or
  const char* after;  // is hit at a random time after it has said this
};
constexpr Stage kStages[] = {
    {"after open", "open", nullptr},
    {"in the middle of appends", "append 1", nullptr},
    {"before an epoch's end", "end 1", nullptr},
    {"within an epoch's end", nullptr, "end 1"},
    {"after an epoch's end", "ended 1", nullptr},
    {"while closing", nullptr, "closing"},
};

struct Case {
  Stage stage;
  int size;
  int victim;
  bool tcp;
  uint64_t seed;
  bool three_hop = false;  // the ranks are on two nodes, by what they are told: they talk by TLS
  bool tls = false;        // directly

  // The known case in which a survivor may name another rank than the one that stopped: it stopped within a
  // send through shared memory, and one of its peers is deaf since (docs/reliability.md, "Known limits").
  bool may_make_a_peer_deaf() const { return !tcp && !tls && !three_hop && stage.hold == nullptr; }

  std::string name() const {
    return fmt::format("{} of {} ranks{}, {}, {} (seed {})", victim, size, three_hop ? " by three hops" : "",
                       tcp                ? "TCP"
                       : tls || three_hop ? "TLS"
                                          : "shared memory",
                       stage.name, seed);
  }
};

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 0;
  for (uint64_t round = 0; round < rounds(); ++round) {
    for (const Stage& stage : kStages) {
      all.push_back({stage, 1, 0, false, ++seed});
      for (const int size : {2, 4}) {
        if (rounds() == 1 && size == 4 && seed % 2 == 0) continue;
        const int victim = static_cast<int>(Rng(seed).below(static_cast<uint64_t>(size)));
        for (const bool tcp : {false, true}) all.push_back({stage, size, victim, tcp, ++seed});
      }
      all.push_back({stage, 3, static_cast<int>(seed % 3), false, ++seed, false, true});
      ++seed;
      all.push_back({stage, 4, static_cast<int>(Rng(seed).below(4)), seed % 2 == 0, seed, true});
    }
  }
  return all;
}

// UCX makes a segment, fills and maps it, and only then takes its name away: a rank that is killed in between
// leaves the name (docs/reliability.md, Known limits). A quarter of the kills may do so; nothing else may be
// left.
void expect_no_memory_left(const std::set<std::string>& before, int kills) {
  std::set<std::string> left = test::shared_memory_left();
  std::erase_if(left, [&](const std::string& name) { return before.contains(name); });
  const auto named = static_cast<int>(std::erase_if(
      left, [](const std::string& name) { return name.find("/ucx_shm_posix_") != std::string::npos; }));
  EXPECT_EQ(left, std::set<std::string>());
  EXPECT_LE(named, kills / 4) << "segments of UCX";
  if (named != 0) fmt::print("{} segments of UCX left by {} kills\n", named, kills);
}

void for_each_case(const std::vector<Case>& all, const std::function<void(const Case&)>& run) {
  in_parallel(all.size(), [&](size_t i) { run(all[i]); });
}

// Records go by three hops, and rank r is told that it is on node nodes[r].
void route_by_three_hops(const std::string& nodes, LaunchParams* params) {
  params->environment.push_back("SWALE_NET_ROUTE=three-hop");
  for (const char node : nodes)
    params->before.push_back({"/usr/bin/env", fmt::format("SWALE_JOB_NODE={}", node)});
}

constexpr const char* kFormats[] = {"base", "indirect", "lossy"};

LaunchParams params_of(const Case& of, const JobFiles& files) {
  LaunchParams params = files.job(of.size, kEpochs, kRecords);
  if (of.three_hop) route_by_three_hops(of.seed % 3 == 0 ? "abbb" : "abab", &params);
  params.by_tcp = of.tcp;
  params.by_tls = of.tls;
  params.environment.push_back(fmt::format("SWALE_IMD_FORMAT={}", kFormats[of.seed % 3]));
  if (of.stage.hold != nullptr) {
    params.held = of.victim;
    params.hold = of.stage.hold;
  }
  return params;
}

bool reach_stage(const Case& of, Launcher* job) {
  const bool reached =
      job->wait_for_line(of.victim, of.stage.hold != nullptr ? of.stage.hold : of.stage.after, kPatience);
  Rng rng(of.seed);
  if (of.stage.hold == nullptr) job->watch(Seconds(static_cast<double>(rng.below(20'000)) / 1e6));
  return reached;
}

struct Tally {
  std::atomic<int> cases{0}, told{0}, at_close_deadline{0}, victim_was_done{0}, epochs{0}, named_another{0};
};

// It may have nothing more to say that the others need: within its last epoch's end its part may be durable
// and the others know of the commit before it does. Before, no rank can have ended that epoch.
bool may_be_done(const RankEnd& victim) { return victim.find(fmt::format("end {}", kEpochs - 1)) != nullptr; }

// At the deadline of closing it is one of a list: "for ranks 0 2 to close it too".
bool names(const Line& failed, int rank) {
  const bool listed = failed.text.find("net.close_deadline_s") != std::string::npos &&
                      failed.text.find(fmt::format(" {} ", rank)) != std::string::npos;
  return listed || failed.text.find(fmt::format("rank {}", rank)) != std::string::npos;
}

bool wrote_all(const RankEnd& rank) { return rank.find(fmt::format("ended {}", kEpochs - 1)) != nullptr; }

// Every survivor has been told of the victim, or had nothing more to hear from it and wrote all.
void judge_survivors(const Case& of, const Launcher& job, Seconds struck, Tally* tally) {
  for (int rank = 0; rank < of.size; ++rank) {
    if (rank == of.victim) continue;
    const Line* failed = job.end(rank).find("failed");
    if (failed == nullptr) {
      EXPECT_TRUE(may_be_done(job.end(of.victim)) && wrote_all(job.end(rank)))
          << of.name() << ": rank " << rank << "\n"
          << job.describe();
      continue;
    }
    ++tally->told;
    EXPECT_TRUE(names(*failed, of.victim)) << of.name() << ": rank " << rank << ": " << failed->text;
    EXPECT_LT(failed->time - struck, kToldOfDeath) << of.name() << "\n" << job.describe();
    EXPECT_EQ(job.end(rank).find("leaks"), nullptr) << of.name() << "\n" << job.describe();
    EXPECT_EQ(job.end(rank).signal, 0) << of.name() << "\n" << job.describe();
    if (job.end(rank).find("failed deadline exceeded") != nullptr) ++tally->at_close_deadline;
  }
}

// A later job of another size takes the directory over and appends to it.
void judge_directory(const Case& of, const JobFiles& files, const Launcher& job, Tally* tally) {
  int64_t promised = promised_epochs(job);
  for (const std::string& problem : check_job_files(files.path(), promised))
    ADD_FAILURE() << of.name() << ": " << problem << "\n" << job.describe();
  tally->epochs += static_cast<int>(promised);
  Launcher later(files.job(1 + (of.size + static_cast<int>(of.seed)) % 3, 1, 500));
  EXPECT_TRUE(later.wait_for_ends(kPatience)) << of.name() << ": the later job hangs\n" << later.describe();
  for (int rank = 0; rank < later.size(); ++rank)
    EXPECT_EQ(later.end(rank).status, 0) << of.name() << ": the later job\n" << later.describe();
  for (const std::string& problem : check_job_files(files.path(), promised + 1))
    ADD_FAILURE() << of.name() << ", after the later job: " << problem;
}

TEST(JobFaults, AKillAtAnyStageKeepsWhatWasCommittedAndIsToldToTheOthers) {
  Tally tally;
  const std::set<std::string> before = test::shared_memory_left();
  for_each_case(cases(), [&](const Case& of) {
    const JobFiles files;
    Launcher job(params_of(of, files));
    if (!reach_stage(of, &job)) {
      ADD_FAILURE() << of.name() << ": the stage was not reached\n" << job.describe();
      return;
    }
    job.send_signal(of.victim, SIGKILL);
    const Seconds struck = job.now();
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << of.name() << ": somebody hangs\n" << job.describe();
    ++tally.cases;
    if (job.end(of.victim).signal != SIGKILL) ++tally.victim_was_done;
    judge_survivors(of, job, struck, &tally);
    judge_directory(of, files, job, &tally);
  });
  expect_no_memory_left(before, tally.cases);
  fmt::print(
      "{} kills ({} came too late), {} survivors told, {} left at the close deadline, {} epochs read back "
      "whole\n",
      tally.cases.load(), tally.victim_was_done.load(), tally.told.load(), tally.at_close_deadline.load(),
      tally.epochs.load());
}

// Nodes of equal and unequal rank counts, and placements in blocks and in turn; through shared memory and
// TCP.
TEST(JobFaults, RecordsThatGoByThreeHopsAreAllThere) {
  const char* const nodes[] = {"aabb", "abab", "abbbc", "aaa"};
  in_parallel(8, [&](size_t i) {
    const std::string placement = nodes[i / 2];
    const JobFiles files;
    LaunchParams params = files.job(static_cast<int>(placement.size()), kEpochs, kRecords);
    route_by_three_hops(placement, &params);
    params.environment.push_back(fmt::format("SWALE_IMD_FORMAT={}", kFormats[i % 3]));
    params.by_tcp = i % 2 == 1;
    Launcher job(params);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << placement << ": somebody hangs\n" << job.describe();
    for (int rank = 0; rank < job.size(); ++rank)
      EXPECT_EQ(job.end(rank).status, 0) << placement << "\n" << job.describe();
    EXPECT_EQ(promised_epochs(job), kEpochs) << placement;
    for (const std::string& problem : check_job_files(files.path(), kEpochs))
      ADD_FAILURE() << placement << ": " << problem;
  });
}

TEST(JobFaults, RanksThatAreToRouteDifferentlyAreTold) {
  const JobFiles files;
  LaunchParams params = files.job(2, 1, 100);
  params.before = {{"/usr/bin/env", "SWALE_NET_ROUTE=direct"}, {"/usr/bin/env", "SWALE_NET_ROUTE=three-hop"}};
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < 2; ++rank) {
    const Line* failed = job.end(rank).find("failed");
    ASSERT_NE(failed, nullptr) << job.describe();
    EXPECT_NE(failed->text.find("net.route"), std::string::npos) << failed->text;
  }
}

TEST(JobFaults, AKillOfAllRanksLeavesNothingThatBlocksTheNextJob) {
  std::atomic<int> kills = 0;
  const std::set<std::string> before = test::shared_memory_left();
  in_parallel(4 * rounds(), [&](size_t i) {
    const uint64_t seed = i + 1;
    const Case of{kStages[3], 2 + static_cast<int>(seed % 2), 0, false, seed};
    const JobFiles files;
    Launcher job(params_of(of, files));
    ASSERT_TRUE(reach_stage(of, &job)) << job.describe();
    for (int rank = 0; rank < of.size; ++rank) job.send_signal(rank, SIGKILL);
    ASSERT_TRUE(job.wait_for_ends(kPatience));
    Tally tally;
    judge_directory(of, files, job, &tally);
    kills += of.size;
  });
  expect_no_memory_left(before, kills);
  fmt::print("{} ranks killed\n", kills.load());
}

// Ranks that meet, open a directory that a crash has left behind, take it over and cut off its tails. One
// dies while they meet, which the rendezvous deadline ends, or while they open, which is noticed like any
// death.
TEST(JobFaults, AKillWhileOpeningAfterACrashLeavesADirectoryThatTheNextJobOpens) {
  std::atomic<int> kills{0}, told{0}, named{0};
  in_parallel(8 * rounds(), [&](size_t i) {
    const uint64_t seed = i + 1;
    const Case of{kStages[1], 1 + static_cast<int>(seed % 3), 0, false, seed};
    const JobFiles files;
    Launcher crashed(params_of(of, files));
    ASSERT_TRUE(reach_stage(of, &crashed)) << crashed.describe();
    for (int rank = 0; rank < of.size; ++rank) crashed.send_signal(rank, SIGKILL);
    ASSERT_TRUE(crashed.wait_for_ends(kPatience));
    const int64_t promised = promised_epochs(crashed);

    Rng rng(seed);
    LaunchParams params = files.job(2, 1, kRecords);
    const bool meeting = seed % 2 == 0;
    if (meeting) params.environment[0] = fmt::format("SWALE_JOB_JOIN_DEADLINE_S={}", kShortDeadline.count());
    const int victim = static_cast<int>(rng.below(2));
    params.held = victim;
    params.hold = "open";
    Launcher opening(params);
    if (!meeting) {
      ASSERT_TRUE(opening.wait_for_line(victim, "joined", kPatience)) << opening.describe();
    }
    opening.watch(Seconds(static_cast<double>(rng.below(meeting ? 80'000 : 20'000)) / 1e6));
    opening.send_signal(victim, SIGKILL);
    const Seconds killed = opening.now();
    ASSERT_TRUE(opening.wait_for_ends(kPatience)) << "seed " << seed << ": somebody hangs\n"
                                                  << opening.describe();
    ++kills;
    EXPECT_EQ(opening.end(1 - victim).signal, 0) << opening.describe();
    const Line* failed = opening.end(1 - victim).find("failed");
    ASSERT_NE(failed, nullptr) << "seed " << seed << "\n" << opening.describe();
    EXPECT_LT(failed->time - killed, (meeting ? kShortDeadline : kSilenceDeadline) + kMargin)
        << "seed " << seed << "\n"
        << opening.describe();
    ++told;
    // Those who meet in the rendezvous directory list who is missing: "for 1 of 2 ranks to give …: 1; …", and
    // say so if the kill came before it had looked in: "…: 1 (never seen); …".
    const auto says = [&](const std::string& words) { return failed->text.find(words) != std::string::npos; };
    const bool names = says(fmt::format("rank {}", victim)) || says(fmt::format(": {};", victim)) ||
                       says(fmt::format(": {} (never seen);", victim));
    EXPECT_TRUE(names) << "seed " << seed << ": " << failed->text;
    named += names ? 1 : 0;
    for (const std::string& problem : check_job_files(files.path(), promised))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    Tally tally;
    judge_directory(of, files, crashed, &tally);
  });
  fmt::print("{} kills while opening, {} others told, {} of them by name\n", kills.load(), told.load(),
             named.load());
}

// A stopped rank is named. What it was doing when it was stopped may have made one peer deaf (transport.md),
// which then names another; that is counted, and the directory is whole all the same.
TEST(JobFaults, AStoppedRankIsNamedWithinTheDeadline) {
  Tally tally;
  std::vector<Case> all;
  for (uint64_t seed = 1; seed <= 6 * rounds(); ++seed)
    all.push_back({kStages[1 + seed % 3], seed % 2 == 0 ? 2 : 3, static_cast<int>(seed % 2), seed % 6 == 3,
                   seed, false, seed % 6 >= 4});
  for_each_case(all, [&](const Case& of) {
    const JobFiles files;
    LaunchParams params = params_of(of, files);
    params.environment[1] = fmt::format("SWALE_NET_SILENCE_DEADLINE_S={}", kShortDeadline.count());
    Launcher job(params);
    ASSERT_TRUE(reach_stage(of, &job)) << job.describe();
    job.send_signal(of.victim, SIGSTOP);
    const Seconds struck = job.now();
    if (of.stage.hold != nullptr) job.go_on(of.victim);
    ASSERT_TRUE(job.wait_for_ends(kPatience, of.victim)) << of.name() << ": somebody hangs\n"
                                                         << job.describe();
    ++tally.cases;
    for (int rank = 0; rank < of.size; ++rank) {
      if (rank == of.victim) continue;
      const Line* failed = job.end(rank).find("failed");
      if (failed == nullptr) {
        EXPECT_TRUE(may_be_done(job.end(of.victim)) && wrote_all(job.end(rank)))
            << of.name() << ": rank " << rank << "\n"
            << job.describe();
        continue;
      }
      ++tally.told;
      EXPECT_LT(failed->time - struck, std::max(kShortDeadline, kCloseDeadline) + kMargin)
          << of.name() << "\n"
          << job.describe();
      if (names(*failed, of.victim)) continue;
      EXPECT_TRUE(of.may_make_a_peer_deaf()) << of.name() << ": rank " << rank << ": " << failed->text;
      ++tally.named_another;
    }
    const int64_t promised = promised_epochs(job);
    job.send_signal(of.victim, SIGCONT);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << of.name() << ": the one that was stopped hangs\n"
                                              << job.describe();
    EXPECT_TRUE(wrote_all(job.end(of.victim)) || job.end(of.victim).find("failed") != nullptr)
        << of.name() << "\n"
        << job.describe();
    for (const std::string& problem : check_job_files(files.path(), promised))
      ADD_FAILURE() << of.name() << problem;
  });
  EXPECT_LE(tally.named_another * 4, tally.told);
  fmt::print("{} ranks stopped, {} others told, {} of them of another rank\n", tally.cases.load(),
             tally.told.load(), tally.named_another.load());
}

// The application of one rank computes for longer than the silence deadline, between two epochs and within
// one.
TEST(JobFaults, ASlowRankIsNotDeclaredDead) {
  const char* holds[] = {"append 1", "ended 1"};
  in_parallel(4, [&](size_t i) {
    const char* hold = holds[i % 2];
    const JobFiles files;
    LaunchParams params = files.job(3, kEpochs, kRecords);
    params.by_tls = i >= 2;
    params.environment[1] = fmt::format("SWALE_NET_SILENCE_DEADLINE_S={}", kShortDeadline.count());
    params.held = 1;
    params.hold = hold;
    Launcher job(params);
    ASSERT_TRUE(job.wait_for_line(1, hold, kPatience)) << job.describe();
    job.watch(kShortDeadline + Seconds(1));
    job.go_on(1);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.end(rank).status, 0) << job.describe();
    for (const std::string& problem : check_job_files(files.path(), kEpochs)) ADD_FAILURE() << problem;
  });
}

// Silence, closing, collective calls.
constexpr Seconds kImpatience(5);

enum class Way { kSharedMemory, kTcp, kTls };  // how the ranks talk

LaunchParams impatient_job(const JobFiles& files, int size, Way way, const char* hold) {
  LaunchParams params = files.job(size, kEpochs, kRecords);
  params.environment[1] = fmt::format("SWALE_NET_SILENCE_DEADLINE_S={}", kImpatience.count());
  params.environment[3] = fmt::format("SWALE_NET_CLOSE_DEADLINE_S={}", kImpatience.count());
  params.environment.push_back(fmt::format("SWALE_JOB_COLLECTIVE_DEADLINE_S={}", kImpatience.count()));
  params.by_tcp = way == Way::kTcp;
  params.by_tls = way == Way::kTls;
  params.held = size - 1;
  params.hold = hold;
  return params;
}
constexpr Seconds kStopped(11);  // more than twice each of them

// A whole job that is suspended (by its scheduler, with its machine) while its ranks wait for one of them: a
// deadline counts only time in which its own process ran, so when the job goes on nobody is blamed, and it
// ends as if nothing had been.
TEST(JobFaults, AJobThatStandsStillAsAWholeBlamesNobody) {
  const char* holds[] = {"joined", "append 1", "closing", "leaving"};
  std::atomic<int> jobs{0};
  in_parallel(12 * rounds(), [&](size_t i) {
    const char* hold = holds[i % 4];
    const int size = 2 + static_cast<int>(i % 2);
    const JobFiles files;
    Launcher job(impatient_job(files, size, static_cast<Way>(i / 4 % 3), hold));
    ASSERT_TRUE(job.wait_for_line(size - 1, hold, kPatience)) << job.describe();
    job.watch(Seconds(0.5));  // until the others wait for it
    for (int rank = 0; rank < size; ++rank) job.send_signal(rank, SIGSTOP);
    job.watch(kStopped);
    for (int rank = 0; rank < size; ++rank) job.send_signal(rank, SIGCONT);
    job.go_on(size - 1);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << hold << ": somebody hangs\n" << job.describe();
    for (int rank = 0; rank < size; ++rank)
      EXPECT_EQ(job.end(rank).status, 0) << "stopped at \"" << hold << "\"\n" << job.describe();
    for (const std::string& problem : check_job_files(files.path(), kEpochs))
      ADD_FAILURE() << "stopped at \"" << hold << "\": " << problem;
    ++jobs;
  });
  fmt::print("{} jobs stood still for {:g} s with deadlines of {:g} s\n", jobs.load(), kStopped.count(),
             kImpatience.count());
}

// One rank alone is stopped for so long while all are closing the job: the others end at their deadline and
// name it. When it wakes they have gone, of which it is told or which it does not mind: it needs nothing from
// them any more.
TEST(JobFaults, ARankThatIsStoppedWhileAllCloseIsNamedAndEndsWhenItWakes) {
  std::atomic<int> told{0};
  in_parallel(6 * rounds(), [&](size_t i) {
    const int size = 2 + static_cast<int>(i % 2);
    const JobFiles files;
    Launcher job(impatient_job(files, size, static_cast<Way>(i / 2 % 3), "leaving"));
    ASSERT_TRUE(job.wait_for_line(size - 1, "leaving", kPatience)) << job.describe();
    job.send_signal(size - 1, SIGSTOP);
    const Seconds struck = job.now();
    ASSERT_TRUE(job.wait_for_ends(kPatience, size - 1)) << "somebody hangs\n" << job.describe();
    job.watch(kStopped - (job.now() - struck));
    job.send_signal(size - 1, SIGCONT);
    job.go_on(size - 1);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << "the one that was stopped hangs\n" << job.describe();
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(job.end(rank).signal, 0) << job.describe();
      EXPECT_EQ(job.end(rank).find("leaks"), nullptr) << job.describe();
      if (rank == size - 1) continue;
      const Line* failed = job.end(rank).find("failed");
      ASSERT_NE(failed, nullptr) << job.describe();
      const bool listed =
          failed->text.find(fmt::format("ranks {} to close it too", size - 1)) != std::string::npos;
      EXPECT_TRUE(listed || failed->text.find(fmt::format("rank {} (host", size - 1)) != std::string::npos)
          << failed->text;
      EXPECT_LT(failed->time - struck, kImpatience + kMargin) << job.describe();
      ++told;
    }
    for (const std::string& problem : check_job_files(files.path(), kEpochs)) ADD_FAILURE() << problem;
  });
  fmt::print("{} told of a rank that was stopped while all closed\n", told.load());
}

// Jobs of one process, one after the other and three at a time: none of them leaves a descriptor, a thread or
// memory.
TEST(JobFaults, ManyJobsOfOneProcessLeaveNothing) {
  std::atomic<int> jobs{0};
  const std::set<std::string> before = test::shared_memory_left();
  in_parallel(3, [&](size_t way) {  // shared memory, UCX over TCP, TLS
    const JobFiles files;
    LaunchParams params = files.job(2, 2, 500);
    params.program = MANY_JOBS;
    params.by_tcp = way == 1;
    params.by_tls = way == 2;
    Launcher job(params);
    ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(job.end(rank).status, 0) << job.describe();
      const Line* done = job.end(rank).find("jobs ");
      ASSERT_NE(done, nullptr) << job.describe();
      jobs += std::stoi(done->text.substr(5));
    }
  });
  expect_no_memory_left(before, 0);
  EXPECT_EQ(jobs, 6 * 7);
  fmt::print("{} jobs in 6 processes\n", jobs.load());
}

// Canaries: what must be noticed.
TEST(JobFaultsCanary, ARankThatHangsIsNoticedAndKilled) {
  const JobFiles files;
  LaunchParams params = files.job(1, 1, 10);
  params.held = 0;
  params.hold = "open";
  pid_t pid = -1;
  {
    Launcher job(params);
    pid = job.pid(0);
    EXPECT_FALSE(job.wait_for_ends(Seconds(1)));
    EXPECT_FALSE(job.wait_for_line(0, "closed", Seconds(0.1)));
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(JobFaultsCanary, ASanitizersReportIsNoticed) {
  for (const std::string report :
       {"WARNING: ThreadSanitizer: data race", "a.cc:1:2: runtime error: overflow"}) {
    LaunchParams params;
    params.program = "/bin/sh";
    params.arguments = {"-c", fmt::format("echo '{}' >&2", report)};
    const auto run = [&] { EXPECT_TRUE(Launcher(params).wait_for_ends(kPatience)); };
    EXPECT_NONFATAL_FAILURE(run(), report);
  }
}

TEST(JobFaultsCanary, ADescriptorThatIsLeftOpenIsNoticed) {
  const JobFiles files;
  LaunchParams params = files.job(1, 1, 10);
  params.environment.push_back("SWALE_FAULT_LEAK=1");
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_ends(kPatience));
  EXPECT_NE(job.end(0).find("leaks 1 descriptors, 0 threads"), nullptr) << job.describe();
  EXPECT_EQ(job.end(0).status, 1);
}

TEST(JobFaultsCanary, AMissingRecordAndAMissingEpochAreNoticed) {
  const JobFiles files;
  Launcher job(files.job(2, 1, 100));
  ASSERT_TRUE(job.wait_for_ends(kPatience));
  EXPECT_TRUE(check_job_files(files.path(), 1).empty());
  EXPECT_FALSE(check_job_files(files.path(), 2).empty());
  EXPECT_FALSE(check_job_files(files.path(), 1, {.records_more = 1}).empty());
}

}  // namespace
}  // namespace swale::faults::job_faults_test
