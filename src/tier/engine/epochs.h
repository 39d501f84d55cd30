// Epochs: counts what is unfinished by the epoch in which it began, so that a sync can wait for all that came
// before it.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace swale::tier {

class Epochs {
 public:
  uint32_t enter() {
    ++open_;
    return newest_;
  }
  void leave(uint32_t epoch) {
    if (epoch == newest_) {
      --open_;
    } else {
      --closed_[epoch - first_];
      forget();
    }
  }
  // Closes the epoch: finished(it) once all that came before has left.
  uint32_t close() {
    closed_.push_back(std::exchange(open_, 0));
    const uint32_t epoch = newest_++;
    forget();
    return epoch;
  }
  bool finished(uint32_t epoch) const { return static_cast<int32_t>(epoch - first_) < 0; }
  bool idle() const { return open_ == 0 && closed_.empty(); }

 private:
  void forget() {
    const auto end = std::find_if(closed_.begin(), closed_.end(), [](uint32_t count) { return count > 0; });
    first_ += static_cast<uint32_t>(end - closed_.begin());
    closed_.erase(closed_.begin(), end);
  }

  uint32_t open_ = 0;  // of the newest epoch
  uint32_t newest_ = 0;
  uint32_t first_ = 0;            // the oldest that is not finished
  std::vector<uint32_t> closed_;  // of those from the oldest to the one before the newest
};

}  // namespace swale::tier
