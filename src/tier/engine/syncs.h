// Syncs: of the log, of the backing device, and of single files on it; and the requests that wait for one.
//
// A sync that begins covers all that is completed by then: whoever wants one waits for the next that begins,
// and all who want one meanwhile share it. One sync of a device, and one of a file, is under way at a time:
// the system tells of a failure once.
//
// Invariants: (1) done <= started <= done + 1 for a device and for a file; (2) waiters of a device stand in
// the order of the syncs that they wait for. A log that has failed makes nothing durable: its syncs end, and
// cover nothing.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "tier/engine/log_records.h"
#include "tier/engine/shared.h"

namespace swale::tier {

class SyncLane {
 public:
  explicit SyncLane(Shared* shared) : shared_(*shared) {}

  // The number of the next sync of this device that begins: it covers all that is completed now.
  uint64_t want(Nanos due) {
    due_ = wanted_ ? std::min(due_, due) : due;
    wanted_ = shared_.rare_work = true;
    return started_ + 1;
  }
  // The op goes on when that sync is over.
  void await(OpIndex op, Nanos due) {
    const uint64_t number = want(due);
    assert(waiters_.empty() || waiters_.back().first <= number);
    waiters_.emplace_back(number, op);
  }

  bool may_start() const { return wanted_ && !in_flight_ && shared_.now >= due_; }
  void start() {
    assert(wanted_ && !in_flight_);
    wanted_ = false;
    in_flight_ = true;
    began_ = shared_.now;
    ++started_;
  }
  void end() {
    assert(in_flight_);
    in_flight_ = false;
  }
  // What the last one should have made durable is durable, or known to be lost.
  void cover() {
    assert(!in_flight_);
    done_ = started_;
  }

  // The first op whose sync is over; kNoOp: there is none.
  OpIndex take_covered() {
    if (waiters_.empty() || waiters_.front().first > done_) return kNoOp;
    const OpIndex op = waiters_.front().second;
    waiters_.pop_front();
    return op;
  }
  // All; or those of one file.
  std::vector<OpIndex> take_waiters();
  std::vector<OpIndex> take_waiters(FileIndex file);
  bool awaited() const { return !waiters_.empty(); }

  uint64_t started() const { return started_; }
  uint64_t done() const { return done_; }
  bool wanted() const { return wanted_; }
  bool in_flight() const { return in_flight_; }
  Nanos due() const { return due_; }
  Nanos began() const { return began_; }  // the one in flight, or the last one

 private:
  Shared& shared_;
  uint64_t started_ = 0;
  uint64_t done_ = 0;
  bool in_flight_ = false;
  bool wanted_ = false;
  Nanos due_ = kForever;
  Nanos began_ = 0;
  std::deque<std::pair<uint64_t, OpIndex>> waiters_;  // the number of the sync
};

class Syncs {
 public:
  Syncs(Shared* shared, const LogRecords* records)
      : log(shared), backing(shared), shared_(*shared), records_(*records) {}

  // Those that are due. The abandonment of a log syncs files itself, and the system tells a failure to one of
  // two.
  void start();
  // When start() is to be called again.
  Nanos next_event() const {
    Nanos next = kForever;
    if (log.wanted() && !log.in_flight()) next = log.due();
    if (backing.wanted() && !backing.in_flight() && !backing_waits()) next = std::min(next, backing.due());
    return next;
  }

  // The number of the sync of the log that covers the file's records: it is over, under way, or wanted from
  // now on; of a log that has failed, it may never be.
  uint64_t want_log_sync(const FileState& file);
  // The number of the next sync of this file that begins.
  uint64_t want_file_sync(FileIndex file);
  void start_file_sync(FileIndex file);
  void end_file_sync(FileIndex file);
  uint32_t of_files() const { return of_files_; }  // under way

  SyncLane log;
  SyncLane backing;  // of all files

 private:
  bool backing_waits() const { return records_.state() == LogRecords::State::kAbandoning; }

  Shared& shared_;
  const LogRecords& records_;
  uint32_t of_files_ = 0;
};

}  // namespace swale::tier
