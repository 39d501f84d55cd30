// A model of shuffling on two machines that we do not have: Trinity (deltafs-scaling-2018,
// deltafs-streaming-2020 section 5) and the second machine of the 2020 paper (section 4.2). It says how long
// an epoch takes to reach storage, and how long a cold query takes, for a method that is described by what it
// moves and stores for a record.
//
// Constants. They follow from values that the papers print, through the papers' own method: shuffle_model.cc
// derives each (docs/design/shuffle-model.md). They were fixed and committed before a method of ours ran on
// the model; shuffle_model_test.cc pins them, and that the papers' method gives the papers' printed values.
// Frames and latencies of machines are the same for all methods.
//
// What is modelled. Storage, the network of a node, and the network threads of the ranks work at the same
// time; the slowest one decides. Where a method gathers records in memtables, storage gets them memtable by
// memtable, the first two a quarter and a half of one; after the last one a tail is written. Processor time
// of records is not modelled: at these rates it is a tenth of a core.
//
// Threads: free functions.
#pragma once

#include <cstdint>
#include <vector>

namespace swale::sim {

struct ShuffleMachine {
  int32_t ranks_per_node = 32;
  double storage_bytes_per_s = 0;  // a node's share of the storage
  double storage_use = 1;          // of which indexing while writing reaches this part
  double frame_s = 0;  // a frame between nodes: of the sender's and the receiver's network threads, half each
  double local_frame_s = 0;        // the same within a node
  double latency_s = 0;            // between nodes
  double wire_bytes_per_s_64 = 0;  // of a node among 64, each way, all to all
  double wire_exponent = 0;        // by which it falls with the number of nodes

  double wire_bytes_per_s(int32_t nodes) const;
};

ShuffleMachine trinity();
ShuffleMachine second_machine();

enum class ShuffleMethod : int32_t { kBase, kIndirect, kLossy };
inline constexpr const char* kShuffleMethodNames[] = {"base", "indirect", "lossy"};

// What a method does with one record, and with the epoch of one rank.
struct ShuffleLoad {
  double data_bytes = 0;    // key and value
  double stored_bytes = 0;  // all that is written for it
  double wire_bytes = 0;    // on the way between two nodes, heads included
  double frame_bytes = 32 * 1024;
  bool three_hop = true;
  double memtable_records = 0;  // that come before any is written; 0: each is written as it comes
  double early_bytes = 0;  // of stored_bytes: written by the application itself, before the record is sent
  double tail_bytes = 0;   // of a rank: written after its last record has come
};

struct ShuffleJob {
  int32_t nodes = 1;
  int32_t ranks_per_node = 32;
  double records_per_rank = 0;
};

struct ShuffleTime {
  double plain_s = 0;  // to write the data alone, without a method
  double storage_s = 0;
  double wire_s = 0;
  double thread_s = 0;  // of the busiest rank's network thread
  double total_s = 0;
  double slowdown() const { return total_s / plain_s - 1; }
};
ShuffleTime shuffle_time(const ShuffleMachine& machine, const ShuffleJob& job, const ShuffleLoad& load);

// The papers' method: 32 KiB frames, all values as printed or derived from what is printed.
ShuffleLoad papers_load(ShuffleMethod method, double key_bytes, double value_bytes);
// Of a rank's send buffers, as 2018 Fig. 5c and 2020 Fig. 15 count them: a frame for each rank that it sends
// to.
double papers_buffer_bytes(int32_t nodes, int32_t ranks_per_node, bool three_hop);

// -- Queries, cold, on the file system behind the machine

struct QueryStorage {
  double read_s = 0;            // a small read that waits for the one before
  double bytes_per_s = 0;       // of one large read
  double scan_bytes_per_s = 0;  // all cores together; 0: not known
};
QueryStorage trinity_storage();
QueryStorage second_storage();

struct QueryLoad {
  double reads = 0;  // that wait for one another
  double bytes = 0;
};
double query_s(const QueryStorage& storage, const QueryLoad& load);
// One key of one epoch, in a partition of 7.8 M records.
QueryLoad papers_query(ShuffleMethod method);
// A trajectory of so many epochs of 16 M particles each.
QueryLoad papers_trajectory(int32_t epochs);

// -- What the papers print, and what their method gives on the model

struct PrintedValue {
  const char* place;  // in the papers
  const char* what;
  const char* unit;
  double printed = 0;
  double modelled = 0;
  bool at_most = false;  // the paper prints a bound

  bool hit() const;
};
// Every printed value from which a constant follows, or that checks one. Of these machines: tests give wrong
// ones.
std::vector<PrintedValue> printed_values(const ShuffleMachine& first, const ShuffleMachine& second,
                                         const QueryStorage& first_storage,
                                         const QueryStorage& other_storage);

}  // namespace swale::sim
