// StageOptions: what a stage is asked to do.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace swale::stage {

enum class Direction {
  kIn,   // to where the job runs: not synced, because it dies with the node
  kOut,  // to where it stays: durable before it counts as done
};

enum class ReadBack { kYes, kNo };
enum class Attributes {
  kAll,
  kNoUser,  // modes and times, and no attributes "user."
};

struct StageOptions {
  Direction direction = Direction::kOut;
  std::string manifest;  // or
  std::string from, to;  // whole paths, without trailing slashes
  std::string status;    // of the status file; its journal and lock stand beside it
  std::string way_back;  // a manifest of what was staged, which leads back; "": none
  ReadBack read_back = ReadBack::kYes;
  Attributes attributes = Attributes::kAll;
  uint32_t threads = 8;
  uint32_t rank = 0, ranks = 1;      // of the processes that divide the files
  uint64_t piece_bytes = 8 * kMiB;   // of a large file, which a thread copies and which is resumed
  uint64_t batch_bytes = 64 * kMiB;  // of pieces and small files that are synced together
  uint32_t batch_files = 64;         // of them: kBatchesAtOnce batches are open, by four descriptors a file
  uint64_t chunk_bytes = 4 * kMiB;   // of a read and a write: a thread's memory; huge pages
};

}  // namespace swale::stage
