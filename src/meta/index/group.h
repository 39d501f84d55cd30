// Group: what one record of the log makes durable and visible at once: requests that came while the group
// before it was being committed.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "meta/index/log.h"
#include "meta/index/shard.h"

namespace swale::meta {

// What a group does besides appending extents, in order.
struct StagedOperation {
  LogOperation kind = LogOperation::kRun;
  uint32_t file = 0;  // its number in the catalog
  Sequence sequence = 0;
  Run run;                  // kRun
  uint64_t size = 0;        // kTruncate, kRemove
  uint64_t generation = 0;  // the same
  Relocation relocation;    // kRelocate
};
// A file whose extents a group has: how far they reach, and the newest one's sequence.
struct StagedFile {
  uint32_t file = 0;
  uint64_t end = 0;
  Sequence first = 0, last = 0;
  uint64_t rows = 0;
};

struct Group {
  uint64_t number = 0;
  Sequence sequence_end = 0;
  size_t entries_begin = 0, entries_end = 0;  // of the active memtable
  std::vector<RequestKey> requests;
  std::vector<StagedOperation> operations;
  std::vector<StagedFile> files;
  size_t files_begin = 0;  // of `files`: those after the last truncate
  std::string records;     // of the table beside the index, each sized

  bool empty() const {
    return requests.empty() && operations.empty() && records.empty() && entries_begin == entries_end;
  }
};

}  // namespace swale::meta
