#include "sim/shuffle_model.h"

#include <algorithm>
#include <cmath>

namespace swale::sim {
namespace {

// Heads of a record on the papers' wire: not printed; taken to be those of ours.
constexpr double kPapersHeadBytes = 5;
constexpr double kPapersPointerBytes = 12;   // 2020, section 4.2
constexpr double kPapersRankBytes = 4;       // beside the key of a KID pair; not printed
constexpr double kPapersTableBytes = 2.304;  // a key: 18 MB for 7.8125 M
// Index, filters and padding of a record in their runs, from the slowdowns of indirect and lossy, 2.8 to 1
// (2020 Fig. 13a): (x + 12) / (x + 2.304) = 2.8. It is 4.8 % of 64 bytes.
constexpr double kPapersIndexBytes = 3.083;
// What a query reads of them: follows from the latency of base.
constexpr double kPapersIndexReadBytes = 16.67e6 / 7.8125e6;
constexpr double kPapersPartitions = 1.88;  // that a query of lossy probes

// What the network thread of the busiest rank has of a frame of each rank. By three hops a rank takes part as
// source and as destination, and as a representative, of which a node may have fewer than ranks: a few nodes
// have few pairs.
double frame_time(const ShuffleMachine& machine, const ShuffleJob& job, bool three_hop) {
  const double remote = 1 - 1.0 / job.nodes;
  const double of_node = (1 - remote) * machine.local_frame_s;
  if (!three_hop || job.nodes == 1) return remote * machine.frame_s + of_node;
  const double mean_links = static_cast<double>(job.nodes - 1) / job.ranks_per_node;
  const double busiest = std::ceil(mean_links) / mean_links;
  return remote * (busiest * (machine.frame_s + machine.local_frame_s) + machine.local_frame_s) + of_node;
}

// When the last memtable is written, if records come evenly until shuffle_s and writing them all takes
// write_s.
double written_s(double shuffle_s, double write_s, double records, const ShuffleLoad& load) {
  if (load.memtable_records <= 0) return shuffle_s;
  double come = 0, free_at = 0;
  for (double part = 0.25; come < records; part = std::min(1.0, 2 * part)) {
    const double some = std::min(records - come, part * load.memtable_records);
    come += some;
    free_at = std::max(free_at, shuffle_s * come / records) + write_s * some / records;
  }
  return free_at;
}

}  // namespace

double ShuffleMachine::wire_bytes_per_s(int32_t nodes) const {
  return wire_bytes_per_s_64 * std::pow(64.0 / std::max(nodes, 2), wire_exponent);
}

// Where each number comes from. "Assumed": not printed, and decides nothing.
//   storage            printed: 5.3 GB/s for 32 nodes of 32 ranks
//   storage_use        10 % of slowdown where storage decides (2018 Fig. 12b), of which index and padding are
//                      6.4 %
//   frame_s            2018 Fig. 5a: frames of 1 KB reach about 30 % of the storage's bandwidth. 30 % of a
//                      rank's 5.18 MB/s are 1.55 MB/s of particles, of which a frame has 927 bytes; at 32
//                      nodes 1 in 32 stays in its node
//   local_frame_s      a tenth; assumed
//   latency_s          assumed
//   wire_bytes_per_s   135.4 MB/s at 4,096 nodes: 35 % at 131,072 ranks (2018 Fig. 12b), where 53 bytes a
//                      particle take 1.35 times as long as 48 bytes to storage
//   wire_exponent      20 % to 35 % for the last two runs (2020 Fig. 17b), taken to have 2,048 and 4,096
//                      nodes: how many ranks the last but one had is not printed
ShuffleMachine trinity() {
  return {.ranks_per_node = 32,
          .storage_bytes_per_s = 5.3e9 / 32,
          .storage_use = 0.9675,
          .frame_s = 614.5e-6,
          .local_frame_s = 61.45e-6,
          .latency_s = 20e-6,
          .wire_bytes_per_s_64 = 274.6e6,
          .wire_exponent = 0.17};
}

// Frames and latency: 2020 section 4.2, "about 4x more expensive in latency and 3x in bandwidth". Storage:
// base is slowed down 3.3 times as much as lossy (2020 Fig. 13a), by its network: 1.278 times the plain time.
ShuffleMachine second_machine() {
  ShuffleMachine machine = trinity();
  machine.ranks_per_node = 64;
  machine.storage_bytes_per_s = 110.2e6;
  machine.storage_use = 1;
  machine.frame_s *= 4;
  machine.local_frame_s *= 4;
  machine.latency_s *= 4;
  machine.wire_bytes_per_s_64 /= 3;
  return machine;
}

ShuffleTime shuffle_time(const ShuffleMachine& machine, const ShuffleJob& job, const ShuffleLoad& load) {
  const double records = job.records_per_rank;
  const double remote = 1 - 1.0 / job.nodes;  // of the records
  const double storage_per_rank = machine.storage_bytes_per_s / job.ranks_per_node;
  const double frames = records * load.wire_bytes / load.frame_bytes;
  ShuffleTime time;
  time.plain_s = records * load.data_bytes / storage_per_rank;
  time.storage_s = records * load.stored_bytes / storage_per_rank / machine.storage_use;
  time.wire_s = records * load.wire_bytes * remote * job.ranks_per_node / machine.wire_bytes_per_s(job.nodes);
  time.thread_s = frames * frame_time(machine, job, load.three_hop);
  const double shuffle_s = std::max(time.wire_s, time.thread_s);
  const double tail_s = load.tail_bytes / storage_per_rank / machine.storage_use;
  const double early_s = records * load.early_bytes / storage_per_rank / machine.storage_use;
  const double write_s = time.storage_s - early_s - tail_s;
  time.total_s = std::max(time.storage_s, written_s(shuffle_s, write_s, records, load) + tail_s);
  return time;
}

ShuffleLoad papers_load(ShuffleMethod method, double key_bytes, double value_bytes) {
  ShuffleLoad load;
  load.data_bytes = key_bytes + value_bytes;
  load.stored_bytes = load.data_bytes + kPapersIndexBytes;
  switch (method) {
    case ShuffleMethod::kBase:
      load.wire_bytes = load.data_bytes + kPapersHeadBytes;
      break;
    case ShuffleMethod::kIndirect:
      load.wire_bytes = key_bytes + kPapersPointerBytes + kPapersHeadBytes;
      load.stored_bytes += kPapersPointerBytes;
      break;
    case ShuffleMethod::kLossy:
      load.wire_bytes = key_bytes + kPapersRankBytes + kPapersHeadBytes;
      load.stored_bytes += kPapersTableBytes;
      break;
  }
  return load;
}

double papers_buffer_bytes(int32_t nodes, int32_t ranks_per_node, bool three_hop) {
  const double frame = 32 * 1024;
  const double local = ranks_per_node - 1;
  if (!three_hop) return frame * (static_cast<double>(nodes) * ranks_per_node - 1);
  return frame * (local + std::ceil(static_cast<double>(nodes - 1) / ranks_per_node));
}

// A small read: 2020 Fig. 13b, where one read more is 190 ms against 250. A large one: base takes 190 ms, two
// reads and the index log; lossy 440 ms, 18 MB of table and 0.88 partitions in vain. So the index log has
// 16.7 MB, 3.3 % of the data.
QueryStorage second_storage() { return {.read_s = 0.060, .bytes_per_s = 238.1e6, .scan_bytes_per_s = 0}; }

// A small read: the second machine's. Large ones: about 300 ms for a trajectory (2020 Fig. 17a) of five
// epochs of 16 M particles. The scan: 1,740 times that, for 524,288 M particles of 48 bytes and five epochs.
QueryStorage trinity_storage() { return {.read_s = 0.060, .bytes_per_s = 948e6, .scan_bytes_per_s = 241e9}; }

double query_s(const QueryStorage& storage, const QueryLoad& load) {
  return load.reads * storage.read_s + load.bytes / storage.bytes_per_s;
}

// The index log as a whole, then the data. A partition that has not the key takes its index log alone.
QueryLoad papers_query(ShuffleMethod method) {
  const double keys = 7.8125e6;
  const double index = keys * kPapersIndexReadBytes;
  switch (method) {
    case ShuffleMethod::kBase:
      return {2, index};
    case ShuffleMethod::kIndirect:
      return {3, index};
    case ShuffleMethod::kLossy:
      break;
  }
  const double in_vain = kPapersPartitions - 1;
  return {3 + in_vain, keys * kPapersTableBytes + index * (1 + in_vain)};
}

QueryLoad papers_trajectory(int32_t epochs) { return {2, 16e6 * kPapersIndexReadBytes * epochs}; }

bool PrintedValue::hit() const {
  return at_most ? modelled <= printed : std::abs(modelled / printed - 1) <= 0.01;
}

std::vector<PrintedValue> printed_values(const ShuffleMachine& first, const ShuffleMachine& second,
                                         const QueryStorage& first_storage,
                                         const QueryStorage& other_storage) {
  const auto second_slowdown = [&](ShuffleMethod method) {
    return shuffle_time(second, {64, 64, 7.8125e6}, papers_load(method, 8, 56)).slowdown();
  };
  const auto trinity_slowdown = [&](int32_t nodes) {
    return shuffle_time(first, {nodes, 32, 16e6}, papers_load(ShuffleMethod::kBase, 8, 40)).slowdown();
  };
  ShuffleLoad small = papers_load(ShuffleMethod::kBase, 8, 40);
  small.frame_bytes = 1024;
  small.three_hop = false;
  const ShuffleTime slow = shuffle_time(first, {32, 32, 16e6}, small);
  const double lossy = second_slowdown(ShuffleMethod::kLossy);
  const double trajectory = query_s(first_storage, papers_trajectory(5));
  const double scan = 524'288e6 * 48 * 5 / first_storage.scan_bytes_per_s;
  const auto query_ms = [&](ShuffleMethod method) {
    return 1e3 * query_s(other_storage, papers_query(method));
  };
  return {
      {"2018 Fig. 5a", "part of the storage's bandwidth with frames of 1 KB", "", 0.30,
       slow.plain_s / slow.total_s},
      {"2018 Fig. 5c, 2020 Fig. 15", "send buffers by three hops, 8,192 nodes of 32 ranks", "MB", 16,
       papers_buffer_bytes(8192, 32, true) / 1e6, true},
      {"2018 Fig. 12b, 2020 Fig. 17b", "slowdown of jobs that storage limits", "", 0.10,
       trinity_slowdown(1024)},
      {"2020 Fig. 17b", "slowdown of the last run but one, here 65,536 ranks", "", 0.20,
       trinity_slowdown(2048)},
      {"2018 Fig. 12b, 2020 Fig. 17b", "slowdown at 131,072 ranks", "", 0.35, trinity_slowdown(4096)},
      {"2020 Fig. 13a", "slowdown of base over that of lossy", "", 3.3,
       second_slowdown(ShuffleMethod::kBase) / lossy},
      {"2020 Fig. 13a", "slowdown of indirect over that of lossy", "", 2.8,
       second_slowdown(ShuffleMethod::kIndirect) / lossy},
      {"2020 Fig. 13b", "median query, base", "ms", 190, query_ms(ShuffleMethod::kBase)},
      {"2020 Fig. 13b", "median query, indirect", "ms", 250, query_ms(ShuffleMethod::kIndirect)},
      {"2020 Fig. 13b", "median query, lossy", "ms", 440, query_ms(ShuffleMethod::kLossy)},
      {"2020 Fig. 17a", "query of a trajectory", "ms", 300, 1e3 * trajectory},
      {"2018 Fig. 12a", "query of a trajectory, a bound", "ms", 500, 1e3 * trajectory, true},
      {"2018 Fig. 12a, 2020 Fig. 17a", "speed-up over the scan by all cores, 524,288 M particles", "", 1740,
       scan / trajectory},
  };
}

}  // namespace swale::sim
