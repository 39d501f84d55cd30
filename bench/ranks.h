// Ranks: forked processes that make up a Swale job on this machine, and what each of them measured.
//
// Every rank finds its place in the environment (SWALE_JOB_*), as one started by hand would, and meets the
// others in a rendezvous directory. One rank is a process of its own too, so that figures of one and of many
// have the same shape.
//
// Errors: die() in a rank ends the others and the program. Limits: kRanksMax ranks, kFramesMax frames.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace swale::bench {

constexpr int kRanksMax = 64;
constexpr size_t kFramesMax = 16;

// Times on one clock, so that they compare between ranks.
struct RankReport {
  double begin_s = 0;         // the directory's open begins
  double first_append_s = 0;  // it is open
  double last_epoch_end_s = 0;
  double end_s = 0;           // it is closed
  Cpu cpu;                    // from begin to end, all threads
  uint64_t memory_bytes = 0;  // peak from begin to end, above what was resident at begin
  double frame_s[kFramesMax] = {};
};

// Blocks until all ranks have come.
class RankBarrier {
 public:
  void init(int ranks);
  void wait();

 private:
  pthread_barrier_t barrier_;
};

using RankFn = std::function<void(int rank, RankReport& report, RankBarrier& barrier)>;

struct RanksReport {
  std::vector<RankReport> ranks;
  Cpu cpu;  // of all ranks, from their start to their end

  double wall_s() const;  // from the first begin to the last end
  Cpu cpu_between() const;
  uint64_t memory_bytes_max() const;
  double sum(size_t figure) const;  // over the ranks, of an element of RankReport::frame_s
};

// Forks the ranks, waits for them. To be called before the program starts any thread.
RanksReport run_ranks(int ranks, const RankFn& fn);

}  // namespace swale::bench
