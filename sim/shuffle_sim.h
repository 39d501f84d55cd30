// A whole job writing one epoch, on one thread: the shipped WriterCore, Appender and SourceHome of every
// rank, on the clock, the network and the storage of a ShuffleMachine. Time is the result; faults are the
// business of sim/cluster.h.
//
// A frame takes half of its time from the sender's network thread, passes the sender's node and the
// receiver's node, each at the bandwidth of a node, and takes the other half from the receiver's. A frame
// without payload (a credit) takes no thread. What is written queues at the storage of its 32 nodes. Tasks of
// the partition take no time. The directory is not opened, and nothing is read: storage keeps nothing.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/write/memory_plan.h"
#include "sim/shuffle_model.h"

namespace swale::sim {

// Of the frames: their time and the latency become `share` of what they are. With frames of that share of 32
// KiB, a byte costs what it costs.
ShuffleMachine scaled(ShuffleMachine machine, double share);

struct ShuffleSimParams {
  ShuffleMachine machine;
  ShuffleMethod method = ShuffleMethod::kBase;
  int32_t nodes = 2;
  int32_t ranks_per_node = 32;
  uint64_t records_per_rank = 4096;  // keys of 8 bytes
  size_t value_bytes = 56;
  bool three_hop = true;
  size_t frame_bytes = kKiB;
  size_t memtable_bytes = 128 * kKiB;
  std::optional<imd::MemoryPlan> memory = {};  // instead of the least one; of its frames none are taken
};

struct ShuffleSimResult {
  double total_s = 0;  // until all is durable
  double records = 0;
  double data_bytes = 0;
  double stored_bytes = 0;
  double index_bytes = 0;    // of them, index and tables
  double early_bytes = 0;    // of them, by the application itself: values that stay with it
  double wire_bytes = 0;     // between nodes, all frames with their heads
  double remote_frames = 0;  // with data
  double local_frames = 0;
  double other_frames = 0;      // messages and credits
  double thread_busy_mean = 0;  // part of the time
  double events = 0;
};

// A failure of any rank, or what the job waits for if nothing goes on.
Result<ShuffleSimResult> run_shuffle(const ShuffleSimParams& params);

// What the model is told of a run: bytes a record as they were counted, and what stands in a memtable.
ShuffleLoad load_of(const ShuffleSimParams& params, const ShuffleSimResult& result);
ShuffleJob job_of(const ShuffleSimParams& params);

// Records of `data_bytes` that fit into a memtable.
double memtable_records(size_t arena_bytes, size_t data_bytes);

}  // namespace swale::sim
