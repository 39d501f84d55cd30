// Crew: worker threads that many owners of work share, so that ten directories need no more threads than one.
//
// An owner joins with a Member, which does one piece of work per turn. Members with work wait in one FIFO
// queue and do one piece each time they reach its front: a busy member delays another one by at most one
// piece per member in the queue. A member's turns never overlap. The number of threads is the largest that
// any member asks for, not the sum.
//
// A turn computes; it must not wait for another member's turn, which may never come. Storage has its own
// thread (io/storage_thread.h).
//
// Threads: any thread may make all calls, but leave not inside a turn. The crew's threads sleep in the kernel
// while no member has work, and end with the members. After fork a child must not use its parent's crew.
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
    // Does one piece of work. True: there may be more; false: nothing to do until the next wake. An exception
    // ends the process: the owner must contain it (base/contain.h).
    virtual bool turn() noexcept = 0;

   private:
    friend class Crew;
    enum class State { kIdle, kReady, kRunning, kRunningAndWoken };
    State state_ = State::kIdle;
    Member* next_ = nullptr;  // in the queue; an intrusive list needs no allocation
    size_t threads_ = 0;      // the number it asked for; 0: it has not joined, or leaves
  };

  Crew() = default;
  ~Crew();  // no member may be left
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // The one crew that all users of this process share. It ends with its last user.
  static std::shared_ptr<Crew> of_this_process();

  // From now on the member gets turns, and there are at least `threads` threads. kResourceExhausted if they
  // cannot be started: the member has not joined.
  Status join(Member* member, size_t threads);
  // Returns when the member is in no turn and will get none. Ends the threads that no other member asked for.
  void leave(Member* member);
  // Call when the member has work: it will get a turn that begins after this call. Nothing happens if it
  // leaves.
  void wake(Member* member);

  size_t thread_count() const;

 private:
  void run(size_t index);
  size_t wanted() const REQUIRES(mutex_);
  void push(Member* member) REQUIRES(mutex_);
  Member* pop() REQUIRES(mutex_);
  void take_out(Member* member) REQUIRES(mutex_);
  void end_surplus_threads() REQUIRES(lifecycle_mutex_);

  Mutex lifecycle_mutex_;  // taken before mutex_
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
