// LargePages: whether memory for a log is asked for in pages of 2 MiB, which one fault maps, or in small
// ones.
//
// A large page is cleared at once: where the memory is there, 4 MiB take a fifth of the time that small pages
// take, the writer's faults included. Where a virtual machine's host has to find it first, or the kernel to
// move others' pages, they take several times as long, while programs wait. So the time decides.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace swale::fs {

class LargePages {
 public:
  static constexpr uint32_t kWaitsMax = 64;  // slots of small pages, after one that was not worth it

  // The next slot's are there (WarmPages): their time tells nothing of others'.
  void are_there() { are_there_ = true; }
  // Asks once for each slot. The first one is small: it tells what to compare with.
  bool wanted() {
    if (are_there_) return true;
    if (small_ns_ == 0) return false;
    if (waits_ == 0) return true;
    --waits_;
    return false;
  }
  void made_small(Nanos took) { small_ns_ = took > 0 ? took : 1; }
  // `found`: there were some. A writer's faults cost as much again as small pages do here.
  void made_large(Nanos took, bool found) {
    if (!are_there_ && (!found || took > 2 * small_ns_)) waits_ = kWaitsMax;
    are_there_ = false;
  }

 private:
  Nanos small_ns_ = 0;  // of the last slot
  uint32_t waits_ = 0;
  bool are_there_ = false;
};

}  // namespace swale::fs
