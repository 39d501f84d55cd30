// Shared: what all parts of an engine work on: its files, its requests, the segments of its log, and what
// goes out of it. What a single part needs to remember stands in that part.
//
// Threads: one at a time.
#pragma once

#include "base/clock.h"
#include "tier/engine/engine_stats.h"
#include "tier/engine/files.h"
#include "tier/engine/ops.h"
#include "tier/engine/outbox.h"
#include "tier/log/log_space.h"
#include "tier/policy/options.h"

namespace swale::tier {

struct Shared {
  explicit Shared(const Options& wanted) : options(wanted), log(wanted) {}
  Shared(const Shared&) = delete;

  bool swale() const { return options.policy == Policy::kSwale; }
  bool page_cache() const { return options.durability == Durability::kPageCache; }
  // When a sync begins that a write waits for.
  Nanos sync_due() const {
    return options.durability == Durability::kGroupCommit ? now + options.group_commit_ns : now;
  }

  size_t map_bytes() const {
    size_t bytes = log.index_bytes();
    for (const FileState& file : files) bytes += file.map.memory_bytes();
    return bytes;
  }

  const Options options;
  Nanos now = 0;  // the sum of all steps ahead
  Outbox outbox;
  Files files;
  Ops ops{&files, &outbox};
  LogSpace log;
  Stats stats;  // what was done; how it stands is added when somebody asks
  // What pump has to look at. A part that changes something sets these; they may be true without need.
  bool segments_changed = false;
  bool rare_work = false;  // what few requests have to do with: barriers, syncs, losses, the end of the log
};

}  // namespace swale::tier
