// ConversationDriver: the threads around a Participant: one mutex, the job's channel, turns of posting,
// threads that wait, and the boundary where an exception becomes a failure of the conversation. A class with
// threads derives from it; it may be the Participant itself.
//
// Frames leave in the order in which the Router numbered them: a turn (PostTurns) lasts from taking a batch
// of posts to having posted them. A thread that has changed something calls after_change, which posts what
// may leave now or has the progress thread post it. After events of the transport the progress thread posts
// by itself.
//
// Threads: everything by any thread; "locked" says that the caller holds mutex_. A function that gives it up
// meanwhile says so; it holds the mutex again when it returns, or throws.
// Order: the mutex is the last one that a thread takes; hooks are called locked and must not wait.
// Errors: what an event throws becomes a failure of the participant. The first failure calls on_failed, once.
#pragma once

#include <array>
#include <atomic>
#include <functional>

#include "base/mutex.h"
#include "net/job/job.h"
#include "net/talk/participant.h"
#include "net/talk/post_turns.h"

namespace swale::net {

class ConversationDriver {
 public:
  ConversationDriver(const ConversationDriver&) = delete;
  ConversationDriver& operator=(const ConversationDriver&) = delete;

 protected:
  explicit ConversationDriver(Job& job) : job_(job), alone_(job.size() == 1), events_(*this) {}
  virtual ~ConversationDriver() = default;  // after leave

  // Opens the channel. Collective, as Job::open_channel.
  Status join(uint32_t numbers = 1) EXCLUDES(mutex_);
  bool joined() const REQUIRES(mutex_) { return joined_; }
  uint32_t channel() const { return channel_; }
  // What the participant's Conversation is made with; frames and window are the caller's.
  Conversation::Params conversation_params() const;
  // Events go to the participant from now on; those before are lost: the caller sees to it (a collective
  // call) that no peer sends before all ranks have come here.
  void serve(Participant* participant) EXCLUDES(mutex_);
  // Waits at most `patience` until everything is said and sent, and closes the channel. No event comes after
  // it, and no thread is inside after_change any more; one that calls it later posts nothing. False: the
  // transport still has memory of the conversation, which must live for ever. joined() is false then, and who
  // has not joined has nothing to leave.
  bool leave(Nanos patience) noexcept EXCLUDES(mutex_);

  // -- Hooks, called locked
  // There is a first failure. Threads that wait will be woken after it.
  virtual void on_failed(const Status& why) REQUIRES(mutex_) = 0;
  // After every event: wake threads of your own that the participant now has something for.
  virtual void on_event() REQUIRES(mutex_) {}
  // After every frame: may give the mutex up and wait, and so keep the progress thread from taking more.
  virtual void on_frame_taken() REQUIRES(mutex_) {}

  // -- After changing something. Locked.
  void announce() REQUIRES(mutex_);
  // The same, and what may leave now is posted, or the progress thread is made to. Gives the mutex up
  // meanwhile.
  void after_change() REQUIRES(mutex_);

  // -- Failing
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void fail_locked(const Status& why) noexcept REQUIRES(mutex_);
  // The same, and the news leaves at once. Gives the mutex up meanwhile.
  void fail_now(const Status& why) noexcept REQUIRES(mutex_);

  // -- Waiting. Locked. `done` is evaluated locked, by the threads whose events may make it true: a thread is
  // woken when its own condition holds and not by every event.
  // False: not done after `patience`.
  bool wait_until(const std::function<bool()>& done, Nanos patience = kForever) REQUIRES(mutex_);

  Job& job_;
  const bool alone_;  // in the job: there is nobody to send to
  mutable Mutex mutex_;

 private:
  static constexpr size_t kPostsPerTurn = 16;
  struct Waiter {
    const std::function<bool()>& done;
    CondVar wake;
    Waiter* next = nullptr;
  };

  // What the job tells of the channel.
  class Events final : public ChannelEvents {
   public:
    explicit Events(ConversationDriver& driver) : driver_(driver) {}
    void on_frame(Rank from, const FrameHeader& header, Bytes payload) override;
    void on_sent(uint64_t cookie) override;
    void on_down(Rank peer, const Status& why) override;
    Nanos on_progress(Nanos now) override;
    void on_failure(const Status& why) override;

   private:
    ConversationDriver& driver_;
  };

  class Inside;

  template <class Event>
  void handle(const Event& event) noexcept EXCLUDES(mutex_);
  Nanos progress(Nanos now) EXCLUDES(mutex_);
  void send_ready() EXCLUDES(mutex_);
  void wake_waiters() REQUIRES(mutex_);
  void sleep(Waiter* waiter, Nanos patience) REQUIRES(mutex_);
  void post_ready() EXCLUDES(mutex_);
  bool post_some() EXCLUDES(mutex_);
  void take_posts() EXCLUDES(mutex_);

  Events events_;
  uint32_t channel_ = 0;
  bool joined_ GUARDED_BY(mutex_) = false;
  Participant* participant_ GUARDED_BY(mutex_) = nullptr;
  Waiter* waiters_ GUARDED_BY(mutex_) = nullptr;
  uint32_t inside_ GUARDED_BY(mutex_) = 0;  // threads in after_change that have given the mutex up
  std::atomic<bool> failed_{false};

  PostTurns post_turns_;
  // Taken from the conversation and not posted yet; of the thread whose turn it is. They outlive a turn only
  // if posting throws.
  std::array<Post, kPostsPerTurn> posts_;
  size_t posts_begin_ = 0;
  size_t posts_end_ = 0;
  std::atomic<bool> posts_wait_{false};
  Nanos next_tick_ = 0;  // progress thread only
};

}  // namespace swale::net
