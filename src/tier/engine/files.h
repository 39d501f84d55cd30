// Files: what an engine knows of each file, by the index that it gave.
//
// Threads: one at a time. Indices of closed files are given again.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tier/engine/epochs.h"
#include "tier/engine/extent_map.h"
#include "tier/policy/options.h"

namespace swale::tier {

using OpIndex = uint32_t;  // of a request: ops.h
inline constexpr OpIndex kNoOp = ~OpIndex{0};
inline constexpr FileIndex kNoFile = ~FileIndex{0};

// What a file's syncs have shown: sync_habits.cc.
struct SyncHabit {
  uint64_t since_bytes = 0;   // written since the last sync
  uint32_t since_writes = 0;  //
  double bytes = 0;           // between two syncs, smoothed; 0: nobody has synced it
  double writes = 0;          // the same
  double direct_ns = 0;       // what a sync took for which the backing device had to write, smoothed
  Nanos measured = 0;         // when that was found last
  bool direct = false;        // a write has gone to the backing device since the last sync
  bool sooner = false;        // the log answers the next sync sooner
  bool to_log = false;        // there is budget for all that is written until then
};

struct FileState {
  uint64_t id = 0;
  uint64_t base = 0;
  uint64_t size = 0;
  ExtentMap map;  // of the log
  Epochs epochs;
  double direct_cost = 0;    // ns a byte of direct writes, smoothed
  double modelled_cost = 0;  // the same, as the disk model says
  uint64_t slot_end = 0;     // where its last slot ended on the backing device
  SyncHabit habit;
  uint32_t held = 0;               // ranges that its writes hold
  uint64_t log_sync = 0;           // the number of the sync of the log that covers its newest record
  uint64_t syncs_started = 0;      // of the file alone, on the backing device
  uint64_t syncs_done = 0;         // one at a time
  uint32_t flushing = 0;           // pieces of flushes
  uint32_t blocked = 0;            // requests that wait for others of the file
  OpIndex barrier = kNoOp;         // a truncate or unlink that has begun
  bool flush_overwritten = false;  // something that is being flushed was; until no flush is under way
  bool no_flush = false;           // the barrier waits for flushes to end
  bool unlinked = false;
  bool sync_wanted = false;   // another one, after that under way
  Code deferred = Code::kOk;  // of a write that was lost after its acknowledgement

  // Nothing of it is in the log or under way.
  bool idle() const {
    return map.size() == 0 && held == 0 && flushing == 0 && blocked == 0 && barrier == kNoOp && epochs.idle();
  }
};

class Files {
 public:
  FileIndex open(uint64_t id, uint64_t base, uint64_t size) {
    if (free_.empty()) {
      free_.push_back(static_cast<FileIndex>(files_.size()));
      files_.emplace_back();
    }
    const FileIndex index = free_.back();
    free_.pop_back();
    FileState& file = files_[index];
    assert(file.idle());
    file.id = id;
    file.base = base;
    file.size = size;
    return index;
  }
  void close(FileIndex index) {
    assert(files_[index].idle());
    files_[index] = FileState{};
    free_.push_back(index);
  }

  FileState& operator[](FileIndex index) {
    assert(index < files_.size());
    return files_[index];
  }
  const FileState& operator[](FileIndex index) const {
    assert(index < files_.size());
    return files_[index];
  }
  // On the backing device, as far as known.
  uint64_t position(FileIndex file, uint64_t offset) const { return files_[file].base + offset; }
  size_t size() const { return files_.size(); }
  auto begin() { return files_.begin(); }
  auto end() { return files_.end(); }
  auto begin() const { return files_.begin(); }
  auto end() const { return files_.end(); }

 private:
  std::vector<FileState> files_;
  std::vector<FileIndex> free_;
};

}  // namespace swale::tier
