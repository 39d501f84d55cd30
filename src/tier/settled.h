// Settled: which sequence numbers are settled: acknowledged, failed, or never given to a record of the log. Record headers
// say how far that goes, so that recovery can tell a record that was torn while it was written from one that was damaged
// after its acknowledgement.
//
// Threads: one at a time. Cost: as many appends are under way as a queue is deep; a search and a move in a short array.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace swale::tier {

class Settled {
 public:
  // A record's append begins; sequences rise.
  void begin(uint64_t sequence) { open_.push_back(sequence); }
  // It is settled. Does nothing for a sequence that is not open.
  void end(uint64_t sequence) {
    const auto at = std::lower_bound(open_.begin(), open_.end(), sequence);
    if (at != open_.end() && *at == sequence) open_.erase(at);
  }
  // All sequences up to this one are settled. `last`: the highest given out.
  uint64_t through(uint64_t last) const { return open_.empty() ? last : open_.front() - 1; }
  bool all() const { return open_.empty(); }

 private:
  std::vector<uint64_t> open_;  // rising
};

}  // namespace swale::tier
