// Jobs over TCP, by UCX and by TLS, whose ranks live in network namespaces of their own, and one of which is
// cut off from the others at every stage: the others are told who within the silence deadline, nobody hangs,
// and what was committed is whole.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "net/fabric/interfaces.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"
#include "tests/faults/network.h"

namespace swale::faults::link_faults_test {
namespace {

constexpr Seconds kPatience(180);
constexpr Seconds kSilence(5);  // net.silence_deadline_s
constexpr Seconds kClose(10);   // net.close_deadline_s
constexpr Seconds kSlow(7);     // worth a line
constexpr int kEpochs = 4;

struct Case {
  std::string stage;
  Network::Cut how;
  int size;
  int victim;
  bool tls = false;

  std::string name() const {
    return fmt::format("rank {} of {} cut off at \"{}\", {}, by {}", victim, size, stage,
                       how == Network::Cut::kSilent ? "silently" : "its link down", tls ? "TLS" : "UCX");
  }
};

// SWALE_FAULT_ROUNDS multiplies the cases (make test-long), SWALE_FAULT_STAGE leaves one stage alone.
std::vector<Case> cases() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  const char* only = std::getenv("SWALE_FAULT_STAGE");
  const int rounds = factor != nullptr ? std::atoi(factor) : 1;
  std::vector<Case> all;
  for (int round = 0; round < rounds; ++round) {
    int number = round;
    // After the job has met and before the directory is opened; in an epoch; before its end; after it; while
    // closing the directory; while closing the job.
    for (const std::string stage : {"joined", "append 1", "end 1", "ended 1", "closing", "leaving"}) {
      for (const Network::Cut how : {Network::Cut::kSilent, Network::Cut::kLinkDown}) {
        // In the first one the ranks are connecting, which has most to go wrong: it is tried twice.
        for (int time = 0; time < (stage == "joined" ? 2 : 1); ++time, ++number) {
          const int size = 2 + number % 2;
          for (const bool tls : {false, true})
            if (only == nullptr || stage == only) all.push_back({stage, how, size, (number / 2) % size, tls});
        }
      }
    }
  }
  return all;
}

struct Tally {
  std::atomic<int> cuts{0}, told{0};
  std::atomic<int> told_another{0};  // name: see "Known limits" in docs/reliability.md
  std::mutex mutex;
  Seconds longest{0};  // from the cut to the last survivor's news
};

// Until the last epoch is committed each survivor needs the victim, and so has to be told, by name and in
// time. Closing it does without a rank that has nothing left to lose: it may be told or not, but it must not
// hang.
void judge_survivors(const Case& of, const Launcher& job, Seconds cut, Tally* tally) {
  const bool closing = of.stage == "closing" || of.stage == "leaving";
  for (int rank = 0; rank < of.size; ++rank) {
    const Line* failed = job.end(rank).find("failed");
    EXPECT_EQ(job.end(rank).signal, 0) << of.name() << "\n" << job.describe();
    EXPECT_EQ(job.end(rank).find("leaks"), nullptr) << of.name() << "\n" << job.describe();
    EXPECT_LT(job.end(rank).time - cut, kSilence + kClose + kMargin) << of.name() << "\n" << job.describe();
    if (closing && failed == nullptr) continue;
    ASSERT_NE(failed, nullptr) << of.name() << "\n" << job.describe();
    if (rank == of.victim) continue;  // to it all others are silent, and it may name any of them
    ++tally->told;
    if (failed->text.find(fmt::format("rank {}", of.victim)) == std::string::npos) {
      ++tally->told_another;
      fmt::print("{}: rank {}: {}\n", of.name(), rank, failed->text);
    }
    EXPECT_LT(failed->time - cut, kSilence + kMargin) << of.name() << "\n" << job.describe();
    if (failed->time - cut > kSilence + kSlow) fmt::print("{}: slow\n{}", of.name(), job.describe());
    const std::lock_guard lock(tally->mutex);
    tally->longest = std::max(tally->longest, failed->time - cut);
  }
}

void run_case(const Case& of, Tally* tally) {
  std::string why;
  const std::unique_ptr<Network> network = Network::make(of.size, &why);
  ASSERT_NE(network, nullptr) << why;
  const JobFiles files;
  LaunchParams params = files.job(of.size, kEpochs, 2000);
  params.by_tcp = !of.tls;
  params.by_tls = of.tls;
  params.environment.push_back("UCX_NET_DEVICES=eth0");
  params.environment[1] = fmt::format("SWALE_NET_SILENCE_DEADLINE_S={}", kSilence.count());
  params.environment[3] = fmt::format("SWALE_NET_CLOSE_DEADLINE_S={}", kClose.count());
  params.held = of.victim;
  params.hold = of.stage;
  for (int rank = 0; rank < of.size; ++rank) params.before.push_back(network->enter(rank));
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_line(of.victim, of.stage, kPatience)) << of.name() << "\n" << job.describe();
  ASSERT_TRUE(network->cut(of.victim, of.how));
  const Seconds cut = job.now();
  job.go_on(of.victim);
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << of.name() << ": somebody hangs\n" << job.describe();
  ++tally->cuts;
  judge_survivors(of, job, cut, tally);
  const int64_t promised = promised_epochs(job);
  for (const std::string& problem : check_job_files(files.path(), promised))
    ADD_FAILURE() << of.name() << ": " << problem << "\n" << job.describe();
  Launcher later(files.job(2, 1, 500));
  EXPECT_TRUE(later.wait_for_ends(kPatience)) << of.name() << ": the later job hangs\n" << later.describe();
  for (const std::string& problem : check_job_files(files.path(), promised + 1))
    ADD_FAILURE() << of.name() << ", after the later job: " << problem;
}

bool networks_are_possible(std::string* why) { return Network::make(1, why) != nullptr; }

TEST(LinkFaults, ARankThatIsCutOffIsNamedToTheOthersWithinTheDeadline) {
  std::string why;
  if (!networks_are_possible(&why)) GTEST_SKIP() << why;
  Tally tally;
  const std::vector<Case> all = cases();
  in_parallel(all.size(), [&](size_t i) { run_case(all[i], &tally); });
  EXPECT_EQ(tally.cuts, static_cast<int>(all.size()));
  // The known case of another rank's name: UCX's connect() may block the thread that sends heartbeats.
  const char* connecting = std::getenv("UCX_TCP_CONN_NB");
  const bool may_block = connecting != nullptr && connecting[0] == 'n';
  EXPECT_LE(tally.told_another, may_block ? tally.told / 4 : 0);
  fmt::print(
      "{} cuts, {} others told, {} of them another rank's name, the last after {:.1f} s (silence deadline "
      "{:g} s)\n",
      tally.cuts.load(), tally.told.load(), tally.told_another.load(), tally.longest.count(),
      kSilence.count());
}

// The kernel says a moment late that a link runs: a rank that is opened meanwhile must not listen where only
// its own node reaches it. In a child, for a network of its own.
TEST(LinkFaults, ALinkThatIsUpIsUsedBeforeItRuns) {
  std::string why;
  if (!networks_are_possible(&why)) GTEST_SKIP() << why;
  const pid_t child = ::fork();
  if (child == 0) {
    const char* const set_up =
        "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && ip link add name port0 type veth peer name eth0 && "
        "ip addr add 10.77.0.1/24 dev eth0 && ip link set eth0 up";
    if (::unshare(CLONE_NEWNET) != 0 || std::system(set_up) != 0) ::_exit(1);
    ::unsetenv("UCX_NET_DEVICES");
    const auto found = net::addresses_in_use();
    if (!found.ok() || found->empty()) ::_exit(2);
    for (const net::InterfaceAddress& each : *found)
      if (each.interface != "eth0" || each.running) ::_exit(3);
    ::_exit(0);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0) << "1: no network; 2: no address; 3: another one (exit status " << WEXITSTATUS(state)
                      << ")";
}

// Canaries: the same jobs succeed when nothing is cut, and a cut is one.
TEST(LinkFaultsCanary, WithoutACutTheJobSucceedsAndACutIsFelt) {
  std::string why;
  const std::unique_ptr<Network> network = Network::make(2, &why);
  if (network == nullptr) GTEST_SKIP() << why;
  EXPECT_TRUE(network->reaches(0, 1));
  const JobFiles files;
  LaunchParams params = files.job(2, 2, 1000);
  params.by_tcp = true;
  params.environment.push_back("UCX_NET_DEVICES=eth0");
  for (int rank = 0; rank < 2; ++rank) params.before.push_back(network->enter(rank));
  Launcher job(params);
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(job.end(rank).status, 0) << job.describe();
  ASSERT_TRUE(network->cut(1, Network::Cut::kSilent));
  EXPECT_FALSE(network->reaches(0, 1));
}

}  // namespace
}  // namespace swale::faults::link_faults_test
