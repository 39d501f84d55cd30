// Settled: which sequence numbers are settled: acknowledged, failed, or never given to a record of the log.
// Record headers say how far that goes, so that recovery can tell a record that was torn while it was written
// from one that was damaged after its acknowledgement.
//
// Threads: one at a time. Cost: appends mostly end in the order in which they began, which takes no search;
// others take a search and a move in an array as long as a queue is deep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace swale::tier {

class Settled {
 public:
  // A record's append begins; sequences rise.
  void begin(uint64_t sequence) {
    if (open_.size() == open_.capacity() && 2 * first_ > open_.size()) {
      open_.erase(open_.begin(), open_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
    open_.push_back(sequence);
  }
  // It is settled. Does nothing for a sequence that is not open.
  void end(uint64_t sequence) {
    if (!all() && open_[first_] == sequence) {
      ++first_;
      return;
    }
    const auto at = std::lower_bound(open_.begin() + static_cast<ptrdiff_t>(first_), open_.end(), sequence);
    if (at != open_.end() && *at == sequence) open_.erase(at);
  }
  // All sequences up to this one are settled. `last`: the highest given out.
  uint64_t through(uint64_t last) const { return all() ? last : open_[first_] - 1; }
  bool all() const { return first_ == open_.size(); }

 private:
  std::vector<uint64_t> open_;  // rising; the first first_ of them are settled
  size_t first_ = 0;
};

}  // namespace swale::tier
