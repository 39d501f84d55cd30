#include "bench/ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "bench/arguments.h"

namespace swale::bench {
namespace {

struct Shared {
  RankBarrier barrier;
  RankReport reports[kRanksMax];
};

void set_environment(int rank, int ranks, const std::string& rendezvous) {
  if (ranks == 1) return;
  ::setenv("SWALE_JOB_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("SWALE_JOB_SIZE", std::to_string(ranks).c_str(), 1);
  ::setenv("SWALE_JOB_ID", fmt::format("bench-{}", ::getppid()).c_str(), 1);
  ::setenv("SWALE_JOB_RENDEZVOUS", rendezvous.c_str(), 1);
}

// Waits for all; when one has failed, ends the others, which may be waiting for it.
void wait_for(std::vector<pid_t> children) {
  bool failed = false;
  while (!children.empty()) {
    int status = 0;
    const pid_t child = ::wait(&status);
    if (child < 0) die("wait");
    std::erase(children, child);
    if (status != 0 && !failed) {
      failed = true;
      for (const pid_t other : children) ::kill(other, SIGKILL);
    }
  }
  if (failed) die("a rank failed");
}

}  // namespace

void RankBarrier::init(int ranks) {
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(&barrier_, &attributes, static_cast<unsigned>(ranks));
}

void RankBarrier::wait() { ::pthread_barrier_wait(&barrier_); }

double RanksReport::wall_s() const {
  double begin = ranks.front().begin_s;
  double end = 0;
  for (const RankReport& rank : ranks) {
    begin = std::min(begin, rank.begin_s);
    end = std::max(end, rank.end_s);
  }
  return end - begin;
}

Cpu RanksReport::cpu_between() const {
  Cpu sum;
  for (const RankReport& rank : ranks) {
    sum.user_s += rank.cpu.user_s;
    sum.system_s += rank.cpu.system_s;
  }
  return sum;
}

uint64_t RanksReport::memory_bytes_max() const {
  uint64_t most = 0;
  for (const RankReport& rank : ranks) most = std::max(most, rank.memory_bytes);
  return most;
}

double RanksReport::sum(size_t figure) const {
  double total = 0;
  for (const RankReport& rank : ranks) total += rank.frame_s[figure];
  return total;
}

RanksReport run_ranks(int ranks, const RankFn& fn) {
  if (ranks < 1 || ranks > kRanksMax) die(fmt::format("{} ranks: expected 1 to {}", ranks, kRanksMax));
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory");
  auto* shared = new (memory) Shared;
  shared->barrier.init(ranks);
  const std::string rendezvous =
      (std::filesystem::temp_directory_path() / fmt::format("swale-bench-{}", ::getpid())).string();
  const Cpu before = cpu_of(RUSAGE_CHILDREN);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) die("fork");
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      set_environment(rank, ranks, rendezvous);
      fn(rank, shared->reports[rank], shared->barrier);
      ::_exit(0);
    }
    children.push_back(child);
  }
  wait_for(std::move(children));
  RanksReport report;
  report.cpu = cpu_of(RUSAGE_CHILDREN) - before;
  report.ranks.assign(shared->reports, shared->reports + ranks);
  remove_all(rendezvous);
  ::munmap(memory, sizeof(Shared));
  return report;
}

}  // namespace swale::bench
