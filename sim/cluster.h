// Cluster: a whole job writing a massive directory, on one thread, from one seed.
//
// Drives the product's own opening (lock, takeover, claims, agreement), WriterCore, Appender, PartitionFiles and Committer
// of every rank with a simulated clock, a simulated fabric and one shared device. Every action (a frame's flight, a task's work, an I/O, the
// application's next record) takes a random time drawn from the seed, so a seed is a schedule: it replays exactly,
// and another seed is another interleaving. Faults are planned by the number of the frame or I/O that they hit.
//
// Fault model: a link delivers in order or, if told so, loses, doubles, alters or swaps the n-th frame of the run; a
// rank can be killed at a time, also while it opens, and is then silent, which its peers find by missing heartbeats; storage fails the
// n-th request; `run` can stop at the n-th event, which is a crash of the whole machine (MemoryDevice::crash next).
// Threads: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "io/device.h"
#include "net/transport.h"
#include "run/layout.h"
#include "sim/fabric.h"
#include "sim/workload.h"

namespace swale::sim {

struct Faults {
  std::vector<FrameFaultPlan> frames;
  int64_t io_number = -1;  // this storage request fails with io_status
  Status io_status;
  net::Rank killed = -1;
  Nanos kill_time = 0;              // after the opening, or
  bool kill_in_opening = false;     // after its beginning
  uint64_t events_max = 5'000'000;  // crash of the machine; the default only ends schedules that hang
};

struct ClusterParams {
  uint64_t seed = 1;
  uint64_t job_id = 0x10b;  // every job on one directory has another
  int32_t ranks = 3;
  uint32_t ways = 1;
  size_t memory_bytes = 4 * kMiB;
  size_t frame_bytes = 32 * kKiB;
  uint16_t window = 2;
  uint32_t epochs = 3;
  bool overlap = false;               // the next epoch is filled while the last one is being ended
  uint64_t records_per_epoch = 2000;  // over all ranks
  Nanos silence_deadline = seconds(5);
  std::optional<int64_t> resume_after = {};
  bool extrema = false;  // a schema with indexed fields
  run::Layout layout;    // of a directory that this job makes
  WorkloadParams workload;
  Faults faults;
};

// Half of all seeds have another layout than the usual one, each of them some; two thirds have another format.
inline run::Layout layout_of_seed(uint64_t seed) {
  run::Layout layout;
  layout.format = static_cast<run::ShuffleFormat>(seed % 3);
  if (seed % 2 == 0) return layout;
  layout.compression = static_cast<Codec>(seed / 2 % 3);
  layout.index = static_cast<run::IndexKind>(seed / 6 % 4);
  return layout;
}

struct RankOutcome {
  uint32_t epochs_ok = 0;  // epoch ends that returned OK
  Status failure;
  bool finished = false;  // all epochs and the close, or a failure: nothing is left waiting
};

struct ClusterOutcome {
  std::vector<RankOutcome> ranks;
  uint32_t first_epoch = 0;  // of this job; those before it were there
  uint64_t events = 0;
  uint64_t data_frames = 0;
  uint64_t control_frames = 0;
  uint64_t own_frames = 0;
  uint64_t io_requests = 0;
  Nanos time = 0;
  // What the application appended in epochs that some rank saw committed (and those that were attempted), for the
  // checker: by epoch, key → values in an order that respects each writer's.
  Model model;
};

// How many epochs the directory has by what some rank of the job was told.
uint32_t promised(const ClusterOutcome& outcome);

class Simulation;

// One job that runs step by step, so that others can run on the same disk in between: what a machine does whose
// processes are stopped and woken.
class Cluster {
 public:
  // Opens `directory` as run_cluster does.
  static Result<std::unique_ptr<Cluster>> open(const ClusterParams& params, io::Device& device,
                                               const std::string& directory);
  ~Cluster();

  // Lets at most so many further events happen. False: none is left.
  bool run(uint64_t events);
  // A rank is killed now.
  void kill(net::Rank rank);
  ClusterOutcome outcome() const;

 private:
  explicit Cluster(std::unique_ptr<Simulation> simulation);
  std::unique_ptr<Simulation> simulation_;
};

// Writes `directory` on `device`: makes it if it is missing, else opens it as a later job and appends. The Status says
// that the cluster could not even start.
Result<ClusterOutcome> run_cluster(const ClusterParams& params, io::Device& device,
                                   const std::string& directory);

}  // namespace swale::sim
