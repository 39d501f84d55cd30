// Dues: which background work of a shard is due, and what keeps it from being done.
//
//   nothing due -> due -> running -> nothing due
//                   ^        └ failed for lack of space or memory: blocked, until something asks for a retry
//
// Threads: the shard's.
// Invariants: one work runs at a time; a blocked shard runs none without a retry.
#pragma once

#include <cassert>

#include "base/status.h"

namespace swale::meta {

class Dues {
 public:
  bool may_begin() const { return !running_ && (blocked_.ok() || retry_); }
  void begin() {
    assert(!running_);
    running_ = true;
    retry_ = false;
  }
  void end() {
    assert(running_);
    running_ = false;
  }
  bool running() const { return running_; }
  // The last work has failed, and another attempt may succeed; or a work has succeeded.
  void block(const Status& why) { blocked_ = why, retry_ = false; }
  void unblock() { blocked_ = {}; }
  const Status& blocked() const { return blocked_; }
  void retry() { retry_ = true; }

  bool freeze = false;      // the write buffer, before the next work
  bool checkpoint = false;  // when there is no buffer to flush
  bool merge_all = false;   // by the next checkpoint: most rows are dead
  bool settling = false;    // until the next put: buffers that are not used are given back
  // a checkpoint waits until no record of the table is in a group that is not durable
  bool records_wait = false;
  void want_checkpoint() { freeze = checkpoint = true; }

 private:
  bool running_ = false;
  bool retry_ = false;
  Status blocked_;
};

}  // namespace swale::meta
