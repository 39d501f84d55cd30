// Losses: what was acknowledged and is gone: extents of state kLost, and the list of them that the driver
// keeps.
//
// A range is lost from the moment when that is found out until something newer covers it, in the log or, when
// the log is gone, on the backing device. The list is written again after each change. Two orders matter: a
// segment is erased after the list that its records led to; without a log, a write over a loss is
// acknowledged after the list without it.
//
// Invariants: (1) each extent of state kLost has the number of a loss as its address; (2) a version of the
// list is written after a sync of the device that has what replaced its losses; (3) one list is being written
// at a time.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tier/engine/log_records.h"
#include "tier/engine/shared.h"
#include "tier/engine/syncs.h"
#include "tier/log/loss_list.h"

namespace swale::tier {

class Losses {
 public:
  Losses(Shared* shared, LogRecords* records, Syncs* syncs)
      : shared_(*shared), records_(*records), syncs_(*syncs) {}

  static bool is_lost(const Extent& extent) { return extent.state == ExtentState::kLost; }
  // Where the addresses of losses begin: beyond all logs.
  static constexpr uint64_t kAddressBase = uint64_t{1} << 45;

  // [from, to) of the file is lost.
  void add(FileIndex file, uint64_t from, uint64_t to, const LostRange& as);
  // Of [from, to), what still has the log bytes that begin at `address`, and is nowhere else.
  void add_logged(FileIndex file, uint64_t from, uint64_t to, uint64_t address, LossReason reason);
  // What of a lost extent was replaced: by a record in this segment, if there is such a one.
  void replaced(const Extent& extent, uint32_t by_segment);
  bool any(FileIndex file, uint64_t from, uint64_t to) const;
  // Of an extent of state kLost: as it was when it was found.
  const LostRange& range(const Extent& extent) const { return found_[number(extent)].range; }

  // The op has replaced what was lost, and no record says so: the list must. Returns whether it is durable
  // without that range; else the op waits, and written() returns it.
  bool replaced_without_record(OpIndex op);

  // The user knows: reads give what the backing device has there. Answered when that is durable.
  void accept(Ticket ticket);
  // Recovery: was accepted by a process before.
  void restore_accepted(const LostRange& range) { accepted_.push_back(range); }

  // What is lost, and what was accepted and may still stand in the log.
  LossList list() const;
  bool saved() const { return version_ == saved_; }
  void changed() {
    ++version_;
    shared_.rare_work = true;
  }
  void save();
  const LossList& being_saved() const { return *snapshot_; }
  // The list is durable, or cannot be. Returns who waited for it.
  std::vector<OpIndex> written(Code code);

  bool idle() const { return !in_flight_ && waiters_.empty() && acceptances_.empty(); }
  Nanos retry() const { return retry_; }  // no list is written before

 private:
  // What the address of an extent of state kLost means: kAddressBase + number * kStride + bytes from its
  // begin.
  static constexpr uint64_t kStride = kWriteBytesMax;
  static size_t number(const Extent& extent) {
    return static_cast<size_t>((extent.address - kAddressBase) / kStride);
  }

  struct Loss {
    LostRange range;   // file, offset and length of the extent tell what is left of it
    uint32_t segment;  // that the record stands in; log.count(): none
  };
  struct Acceptance {
    Ticket ticket;
    uint64_t version;
    size_t losses;  // how many there were: later ones are not accepted
  };
  void drop(FileIndex file, uint64_t from, uint64_t to);
  void end_acceptance(const Acceptance& done);

  Shared& shared_;
  LogRecords& records_;
  Syncs& syncs_;
  std::vector<Loss> found_;
  std::vector<LostRange> accepted_;
  uint64_t version_ = 0;
  uint64_t saved_ = 0;
  uint64_t saving_ = 0;       // the version that is being written
  uint64_t sync_number_ = 0;  // before it, of...
  SyncLane* lane_ = nullptr;
  std::optional<LossList> snapshot_;
  bool in_flight_ = false;
  Nanos retry_ = 0;
  std::deque<std::pair<uint64_t, OpIndex>> waiters_;  // for a version
  std::vector<Acceptance> acceptances_;
};

}  // namespace swale::tier
