// MovingNames: the files and directories whose names are being changed on the backing, without the mutex of
// JobFs: a backing that hangs then stops nobody but those that need one of them there.
//
//   change:    const MovingNames::Move move(moving_, {id, other});     // with change_mutex_, and the turn
//   who looks: moving_.settle(id);                                     // with the mutex
//
// Threads: any. Invariant: while a thread has the mutex, and has settled an id, the name of that is the same
// in the tree and on the backing. Nothing allocates. Limits: one Move at a time.
#pragma once

#include <array>

#include "base/mutex.h"
#include "fs/job/job_nodes.h"

namespace swale::fs {

class MovingNames {
 public:
  using Ids = std::array<meta::FileId, 2>;  // the second one may be none

  MovingNames(Mutex& mutex, const JobNodes& nodes) : mutex_(mutex), nodes_(nodes) {}

  // With the mutex. The name of the file, or of a directory above it, is being changed.
  bool has(const meta::FileId& id) const NO_THREAD_SAFETY_ANALYSIS {
    return !ids_[0].none() && nodes_.is_beneath(id, ids_);
  }
  // With the mutex. Waits until it is not; gives the mutex up meanwhile. True: it has waited.
  bool settle(const meta::FileId& id) NO_THREAD_SAFETY_ANALYSIS {
    bool waited = false;
    for (; has(id); waited = true) over_.wait(mutex_);
    return waited;
  }

  class Move {
   public:
    Move(MovingNames& moving, const Ids& ids) : moving_(moving) { moving_.set(ids); }
    ~Move() { moving_.set({}); }
    Move(const Move&) = delete;
    Move& operator=(const Move&) = delete;

   private:
    MovingNames& moving_;
  };

 private:
  void set(const Ids& ids) {
    const MutexLock lock(mutex_);
    ids_ = ids;
    over_.notify_all();
  }

  Mutex& mutex_;
  const JobNodes& nodes_;
  CondVar over_;
  Ids ids_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
