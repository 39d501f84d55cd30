// Crew: worker threads that many owners of work share, so that ten directories need no more threads than one.
//
// An owner joins with a Member, which does one piece of work a turn. Members that have work wait in one queue and get
// their turns in that order, one piece each: a member with much to do delays the others by one piece of each member
// before them. A member's turns never overlap. There are as many threads as the most demanding member asks for, not their
// sum.
//
// A turn computes; it must not wait for another member's turn, which may never come. Storage has a thread of its own
// (io/storage_thread.h).
//
// Threads: all calls by any thread, leave not inside a turn. The crew's threads sleep in the kernel while no member has
// work, and end with the members. After fork a child must not use its parent's crew.
// Limits: Crew::kThreadsMax threads.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace swale {

class Crew {
 public:
  static constexpr size_t kThreadsMax = 256;

  class Member {
   public:
    virtual ~Member() = default;
    // Does one piece of work. True: there may be more; false: nothing to do until the next wake. What it throws ends the
    // process: an owner has its own boundary (base/contain.h).
    virtual bool turn() noexcept = 0;

   private:
    friend class Crew;
    enum class State { kIdle, kReady, kRunning, kRunningAndWoken };
    State state_ = State::kIdle;
    Member* next_ = nullptr;  // in the queue, which so needs no memory
    size_t threads_ = 0;      // that it asked for; 0: it has not joined
  };

  Crew() = default;
  ~Crew();  // no member may be left
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // The one crew that all users of this process share. It ends with its last user.
  static std::shared_ptr<Crew> of_this_process();

  // From now on the member gets turns, and there are at least `threads` threads. kResourceExhausted if they cannot be
  // started: the member has not joined.
  Status join(Member* member, size_t threads);
  // Returns when the member is in no turn and will get none. Threads that nobody else asked for end.
  void leave(Member* member);
  // The member has work: it will get a turn that begins after this call.
  void wake(Member* member);

  size_t thread_count() const;

 private:
  void run(size_t index);
  size_t wanted() const REQUIRES(mutex_);
  void push(Member* member) REQUIRES(mutex_);
  Member* pop() REQUIRES(mutex_);
  void take_out(Member* member) REQUIRES(mutex_);
  void end_surplus_threads() REQUIRES(lifecycle_mutex_);

  Mutex lifecycle_mutex_;  // taken first
  std::vector<std::thread> threads_ GUARDED_BY(lifecycle_mutex_);

  mutable Mutex mutex_;  // guards also the state of all members
  CondVar work_;
  CondVar left_;
  Member* ready_first_ GUARDED_BY(mutex_) = nullptr;
  Member* ready_last_ GUARDED_BY(mutex_) = nullptr;
  std::vector<Member*> members_ GUARDED_BY(mutex_);
  size_t threads_wanted_ GUARDED_BY(mutex_) = 0;
  size_t thread_count_ GUARDED_BY(mutex_) = 0;
};

}  // namespace swale
