// Costs: what the devices take, as measured: for a byte, a slot, a sync; how fast writes arrive; and who
// waits for the backing device just now (docs/design/tier.md, "What a waiter pays").
//
// Threads: one at a time. All are smoothed; 0: nothing was measured yet.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "tier/engine/elevator.h"
#include "tier/engine/shared.h"
#include "tier/policy/backing_cost.h"

namespace swale::tier {

class Costs {
 public:
  explicit Costs(Shared* shared) : shared_(*shared), backing_(shared->options.backing) {}

  // A write has come.
  void arrived(uint32_t length);
  // The backing device has written a slot.
  void slot_written(const Slot& slot, Nanos took);
  void log_synced(Nanos took) { smooth_sync(&log_sync_ns_, took); }
  // A sync for which the backing device had to write.
  // `writes`: of the file, since its last sync.
  void backing_synced(Nanos took, uint32_t writes) {
    smooth_sync(&file_sync_ns_, took);
    if (writes > 0) backing_.sync_answered(static_cast<double>(took), writes);
  }
  static void smooth_sync(double* value, Nanos sample) {
    smooth(value, static_cast<double>(sample), 1.0 / 8);
  }

  double direct() const { return direct_; }    // ns a byte
  double flush() const { return flush_; }      // the same
  double arrival() const { return arrival_; }  // ns a byte at which writes arrive when nothing holds them up
  double slot_ns() const { return slot_ns_; }
  double log_sync_ns() const { return log_sync_ns_; }
  double file_sync_ns() const { return file_sync_ns_; }
  // The page cache takes writes before the device has them: what was measured says nothing (BackingCost).
  bool hidden() const { return backing_.hidden(); }
  // The backing device needs so much longer than writers that every seek counts.
  bool overloaded() const {
    return arrival_ > 0 && direct_ > shared_.options.swale.overload_ratio * arrival_;
  }

  // A caller waits for the backing device: for a sync for which it has to write, or a read.
  void wait_begins() { ++waiting_; }
  void wait_ends() {
    assert(waiting_ > 0);
    --waiting_;
    wait_ended();
  }
  // One that nobody counted: in the modes in which writes wait for it, a sync of all files.
  void wait_ended() { quiet_from_ = shared_.now + kQuietNs; }
  bool somebody_waits() const { return waiting_ > 0; }
  // If nobody waits, nobody has for a while, from then on.
  Nanos quiet_from() const { return quiet_from_; }

 private:
  static constexpr Nanos kQuietNs = 100'000'000;

  Shared& shared_;
  BackingCost backing_;
  double direct_ = 0;
  double flush_ = 0;
  double slot_ns_ = 0;
  double log_sync_ns_ = 0;
  double file_sync_ns_ = 0;
  uint32_t waiting_ = 0;
  Nanos quiet_from_ = 0;
  double arrival_ = 0;
  uint64_t window_bytes_ = 0;
  uint32_t window_writes_ = 0;
  Nanos window_start_ = 0;
};

}  // namespace swale::tier
