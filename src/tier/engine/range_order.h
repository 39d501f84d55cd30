// RangeOrder: overlapping requests happen one after the other, in the order in which they came.
//
// A write holds its range from its begin until its data stands where reads find it; a truncate or unlink
// needs its file for itself. Who cannot begin is blocked, and looked at again when a range or a file becomes
// free.
//
// Invariants: (1) held ranges of a file do not overlap; (2) FileState::held and FileState::blocked count what
// is here.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tier/engine/held_ranges.h"
#include "tier/engine/shared.h"

namespace swale::tier {

class RangeOrder {
 public:
  explicit RangeOrder(Shared* shared) : shared_(*shared) {}

  // Whether an op that came before stands in the way of this one. Of those that are blocked, only the ones
  // before `op` are looked at (all of them, for one that is not there yet).
  bool conflicts(const Op& op) const;
  bool blocked_before(const Op& op) const;

  // A write holds its range, if nobody does.
  bool hold(OpIndex write) {
    const Op& op = shared_.ops[write];
    if (!held_.add_if_free(write, op.file, op.offset, op.end())) return false;
    ++shared_.files[op.file].held;
    return true;
  }
  void release(OpIndex write) {
    shared_.files[shared_.ops[write].file].held -= held_.remove(write);
    retry_later();
  }
  // The range of `old` is held by a write of the same range.
  void replace(OpIndex old, OpIndex by);
  // Who holds a part of the range, in order of the ranges; valid until the next call.
  const std::vector<OpIndex>& holders(FileIndex file, uint64_t from, uint64_t to) {
    held_.find(file, from, to, &found_);
    return found_;
  }

  void block(OpIndex op);
  size_t blocked() const { return blocked_.size(); }
  OpIndex blocked_at(size_t i) const { return blocked_[i]; }
  void unblock(size_t i);
  // Ends those of the file.
  void refuse_blocked(FileIndex file, Code code);
  // Some of the blocked may begin.
  void retry_later() {
    if (!blocked_.empty()) retry_ = true;
  }
  bool retry() const { return retry_; }
  void begin_retry() { retry_ = false; }

 private:
  Shared& shared_;
  HeldRanges held_;  // by op
  std::vector<OpIndex> found_;
  std::deque<OpIndex> blocked_;
  bool retry_ = false;
};

}  // namespace swale::tier
