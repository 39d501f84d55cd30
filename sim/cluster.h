// Cluster: a whole job writing a massive directory, on one thread, from one seed.
//
// Drives the product's own opening (lock, takeover, claims, agreement), WriterCore, Appender, PartitionFiles
// and Committer of every rank with a simulated clock, a simulated fabric and one shared device. Every action
// (a frame's flight, a task's work, an I/O, the application's next record) takes a random time drawn from the
// seed. So a seed is a schedule that replays exactly; another seed is another interleaving. A fault names the
// number of the frame or I/O that it hits.
//
// Fault model: a link delivers in order; on request it loses, duplicates, alters or swaps the n-th frame of
// the run. A rank can be killed at a given time, also while it opens; its peers notice missing heartbeats.
// Storage can fail the n-th request. `run` can stop at the n-th event, which is a crash of the whole machine
// (call MemoryDevice::crash next).
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
#include "net/fabric/transport.h"
#include "run/layout.h"
#include "sim/fabric.h"
#include "sim/workload.h"

namespace swale::sim {

struct Faults {
  std::vector<FrameFaultPlan> frames;
  int64_t io_number = -1;  // this storage request fails with io_status
  Status io_status;
  net::Rank killed = -1;
  Nanos kill_time = 0;              // after the end of the opening, or
  bool kill_in_opening = false;     // if true, after its beginning
  uint64_t events_max = 5'000'000;  // crash of the machine; the default only ends schedules that hang
};

struct ClusterParams;
// The network of a cluster: Fabric, or another kind.
using MakeFabric = std::function<std::unique_ptr<Fabric>(const ClusterParams& params, EventQueue& events,
                                                         Fabric::Arrive arrive, Fabric::Lose lose)>;
// Of clusters that say nothing else: a test program can run all its schedules over another fabric.
MakeFabric& default_fabric();

struct ClusterParams {
  uint64_t seed = 1;
  MakeFabric fabric = default_fabric();
  uint64_t job_id = 0x10b;  // different for every job on one directory
  int32_t ranks = 3;
  uint32_t ways = 1;
  size_t memory_bytes = 4 * kMiB;
  size_t frame_bytes = 32 * kKiB;
  uint16_t window = 2;
  std::vector<int32_t> ranks_per_node = {};  // not empty: records go by three hops; `ranks` is their sum
  bool tiny_hops = false;                    // the least frames that there can be
  net::Rank slow = -1;                       // its storage takes a thousand times as long
  uint32_t epochs = 3;
  bool overlap = false;               // the application fills the next epoch while the last one ends
  uint64_t records_per_epoch = 2000;  // over all ranks
  Nanos silence_deadline = seconds(5);
  std::optional<int64_t> resume_after = {};
  bool extrema = false;  // a schema with indexed fields
  run::Layout layout;    // for a directory that this job makes
  WorkloadParams workload;
  Faults faults;
};

// Half of all seeds have a layout that differs from the default in some choices; two thirds have another
// format.
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
  bool finished = false;  // has ended and closed all epochs, or has failed: waits for nothing
  Nanos finish_time = 0;
};

struct ClusterOutcome {
  std::vector<RankOutcome> ranks;
  EpochNumber first_epoch = {};  // of this job; earlier epochs existed before
  uint64_t events = 0;
  uint64_t data_frames = 0;
  uint64_t control_frames = 0;
  uint64_t own_frames = 0;
  uint64_t io_requests = 0;
  Nanos time = 0;
  // For the checker: what the application appended in epochs that were attempted, committed or not: by epoch,
  // key → values in an order that respects each writer's order.
  Model model;
};

// The number of epochs that the directory must have according to what the job's ranks were told.
uint32_t promised(const ClusterOutcome& outcome);

class Simulation;

// One job that runs step by step, so that other jobs can run on the same disk in between: like a machine
// whose processes are stopped and continued.
class Cluster {
 public:
  // Opens `directory` as run_cluster does.
  static Result<std::unique_ptr<Cluster>> open(const ClusterParams& params, io::Device& device,
                                               const std::string& directory);
  ~Cluster();

  // Runs at most so many further events. False: none is left.
  bool run(uint64_t events);
  // Kills a rank now.
  void kill(net::Rank rank);
  ClusterOutcome outcome() const;

 private:
  explicit Cluster(std::unique_ptr<Simulation> simulation);
  std::unique_ptr<Simulation> simulation_;
};

// Writes `directory` on `device`: makes it if it is missing, else opens it as a later job and appends. A
// failure means that the cluster could not start.
Result<ClusterOutcome> run_cluster(const ClusterParams& params, io::Device& device,
                                   const std::string& directory);

}  // namespace swale::sim
