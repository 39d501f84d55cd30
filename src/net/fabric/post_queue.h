// PostQueue: what threads that post leave to the thread that has the seat: frames, in their order, and peers
// that are to be given up. It owns the slots of all frames that are on their way, and uses them again.
//
// Slot: a frame, with a `next` (slot_list.h). It stays where it is for as long as the queue lives.
// Threads: any. The mutex is held for a few instructions, and while `fill` and `give_up` run: they take no
// other lock that somebody holds who posts.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/fabric/slot_list.h"
#include "net/fabric/transport.h"

namespace swale::net {

template <class Slot>
class PostQueue {
 public:
  // A slot that stands in no list. Throws std::bad_alloc, as post does, before it has done anything.
  Slot* take_slot() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return take();
  }
  // fill(slot) writes the frame.
  template <class Fill>
  void post(const Fill& fill) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Slot* const slot = take();
    fill(slot);
    frames_.push_back(slot);
    has_frames_.store(true);
  }
  void drop(Rank peer, const Status& why) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    dropped_.emplace_back(peer, why);
  }

  bool empty() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return frames_.empty() && dropped_.empty();
  }
  // Frames posted now go behind others.
  bool has_frames() const { return has_frames_.load(); }

  // Moves all frames to the end of `frames`, takes the slots of `done` back, and calls give_up(peer, why) for
  // each peer that was dropped. If that throws, the next call calls it again for all of them.
  // Not analysed: what give_up requires is known to its caller only.
  template <class GiveUp>
  void take_all(LinkedSlots<Slot>* frames, LinkedSlots<Slot>* done, const GiveUp& give_up)
      EXCLUDES(mutex_) NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(mutex_);
    free_.append(done);
    frames->append(&frames_);
    has_frames_.store(false);
    for (const auto& [peer, why] : dropped_) give_up(peer, why);
    dropped_.clear();
  }

  // All slots that ever were, by number; nullptr: there are no more.
  Slot* slot_at(size_t index) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return index < slots_.size() ? &slots_[index] : nullptr;
  }

 private:
  Slot* take() REQUIRES(mutex_) { return free_.empty() ? &slots_.emplace_back() : free_.pop_front(); }

  Mutex mutex_;
  std::deque<Slot> slots_ GUARDED_BY(mutex_);
  LinkedSlots<Slot> free_ GUARDED_BY(mutex_);
  LinkedSlots<Slot> frames_ GUARDED_BY(mutex_);
  std::vector<std::pair<Rank, Status>> dropped_ GUARDED_BY(mutex_);
  std::atomic<bool> has_frames_{false};
};

}  // namespace swale::net
