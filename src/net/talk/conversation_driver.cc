#include "net/talk/conversation_driver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/contain.h"

namespace swale::net {
namespace {

constexpr Nanos kTick = seconds(1);
constexpr Nanos kRetry = milliseconds(50);  // of what memory did not suffice for

}  // namespace

Status ConversationDriver::join(uint32_t numbers) {
  SWALE_ASSIGN_OR_RETURN(channel_, job_.open_channel(&events_, numbers));
  const MutexLock lock(mutex_);
  joined_ = true;
  return {};
}

Conversation::Params ConversationDriver::conversation_params() const {
  Conversation::Params params;
  params.rank = job_.rank();
  params.size = job_.size();
  params.channel = channel_;
  params.secret = job_.secret();
  params.nodes = job_.nodes();
  return params;
}

void ConversationDriver::serve(Participant* participant) {
  const MutexLock lock(mutex_);
  participant_ = participant;
}

bool ConversationDriver::leave(Nanos patience) noexcept {
  {
    const MutexLock lock(mutex_);
    if (!joined_) return true;
  }
  static_cast<void>(contain([&] {
    send_ready();
    const MutexLock lock(mutex_);
    wait_until([this]() REQUIRES(
                   mutex_) { return participant_ == nullptr || participant_->conversation().all_said(); },
               patience);
  }));
  job_.close_channel(channel_);
  const MutexLock lock(mutex_);
  joined_ = false;
  // Its last answer may have left, and ended the job elsewhere, before a thread is back from posting it.
  wait_until([this]() REQUIRES(mutex_) { return inside_ == 0; });
  wake_waiters();
  return participant_ == nullptr || participant_->conversation().frames_lent() == 0;
}

// ---- events of the job

// Runs an event, locked.
template <class Event>
void ConversationDriver::handle(const Event& event) noexcept {
  const MutexLock lock(mutex_);
  if (participant_ == nullptr) return;
  if (const Status status = contain(event); !status.ok()) fail_locked(status);
}

void ConversationDriver::Events::on_frame(Rank from, const FrameHeader& header, Bytes payload) {
  driver_.handle([&]() REQUIRES(driver_.mutex_) {
    driver_.participant_->on_frame(from, header, payload);
    driver_.announce();
    driver_.on_frame_taken();
  });
}

void ConversationDriver::Events::on_sent(uint64_t cookie) {
  driver_.handle([&]() REQUIRES(driver_.mutex_) {
    driver_.participant_->conversation().on_sent(cookie);
    driver_.announce();  // on the three-hop route messages that waited for a frame go on
  });
}

void ConversationDriver::Events::on_down(Rank peer, const Status& why) {
  driver_.handle([&]() REQUIRES(driver_.mutex_) {
    driver_.participant_->on_down(peer, why);
    driver_.announce();
  });
}

void ConversationDriver::Events::on_failure(const Status& why) {
  const MutexLock lock(driver_.mutex_);
  driver_.fail_locked(why);
}

Nanos ConversationDriver::Events::on_progress(Nanos now) { return driver_.progress(now); }

Nanos ConversationDriver::progress(Nanos now) {
  if (now >= next_tick_) {
    next_tick_ = now + kTick;
    handle([&]() REQUIRES(mutex_) { participant_->tick(); });
  }
  const Status posted = contain([&] { post_ready(); });
  const MutexLock lock(mutex_);
  if (!posted.ok()) fail_locked(posted);
  const bool owes_news = participant_ != nullptr && participant_->conversation().owes_news();
  return owes_news || posts_wait_.load() ? std::min(next_tick_, now + kRetry) : next_tick_;
}

// ---- failing

void ConversationDriver::announce() {
  const Status& failure = participant_->conversation().failure();
  if (!failure.ok() && !failed_.exchange(true)) {
    job_.forget_calls(channel_);
    on_failed(failure);
  }
  wake_waiters();
  on_event();
}

void ConversationDriver::fail_locked(const Status& why) noexcept {
  if (participant_ == nullptr) return;
  static_cast<void>(contain([&]() REQUIRES(mutex_) { participant_->fail(why); }));
  static_cast<void>(contain([&]() REQUIRES(mutex_) { announce(); }));
}

void ConversationDriver::fail_now(const Status& why) noexcept {
  if (participant_ == nullptr) return;
  static_cast<void>(contain([&]() REQUIRES(mutex_) { participant_->fail(why); }));
  static_cast<void>(contain([&]() REQUIRES(mutex_) { after_change(); }));
}

// ---- waiting

bool ConversationDriver::wait_until(const std::function<bool()>& done, Nanos patience) {
  if (done()) return true;
  Waiter waiter{done, {}, waiters_};
  waiters_ = &waiter;
  const Status status = contain([&]() REQUIRES(mutex_) { sleep(&waiter, patience); });
  Waiter** place = &waiters_;
  while (*place != &waiter) place = &(*place)->next;
  *place = waiter.next;
  if (!status.ok()) fail_locked(status);
  return done();
}

void ConversationDriver::sleep(Waiter* waiter, Nanos patience) {
  const Nanos begin = patience == kForever ? 0 : system_clock().now();
  while (!waiter->done()) {
    if (patience == kForever) {
      waiter->wake.wait(mutex_);
      continue;
    }
    const Nanos left = begin + patience - system_clock().now();
    if (left <= 0) return;
    waiter->wake.wait_for(mutex_, left);
  }
}

void ConversationDriver::wake_waiters() {
  for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next) {
    if (waiter->done()) waiter->wake.notify_one();
  }
}

// ---- posting

void ConversationDriver::send_ready() {
  if (alone_) return;
  if (job_.posts_directly()) {
    post_ready();
  } else {
    job_.wake();
  }
}

// Counts the thread as long as it has given the mutex up; leave() waits for it.
class ConversationDriver::Inside {
 public:
  explicit Inside(ConversationDriver& driver) NO_THREAD_SAFETY_ANALYSIS : driver_(driver) {
    ++driver_.inside_;
  }
  ~Inside() NO_THREAD_SAFETY_ANALYSIS {
    --driver_.inside_;
    if (!driver_.joined_) driver_.wake_waiters();  // else nobody waits for it
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ConversationDriver& driver_;
};

void ConversationDriver::after_change() {
  announce();
  if (alone_) return;
  const Inside inside(*this);
  const MutexUnlock unlocked(mutex_);
  send_ready();
}

void ConversationDriver::post_ready() {
  post_turns_.take([this] { return post_some(); });
}

// Unless some are left. Once leave() has counted what is lent, nothing is: a thread of the participant's
// owner that comes later finds nothing to post.
void ConversationDriver::take_posts() {
  const MutexLock lock(mutex_);
  const bool may_post = joined_ && participant_ != nullptr;
  if (may_post && posts_begin_ != posts_end_) return;
  posts_begin_ = posts_end_ = 0;
  if (!may_post) return;
  participant_->before_posts();
  for (std::optional<Post> post;
       posts_end_ < posts_.size() && (post = participant_->conversation().next_post()); ++posts_end_) {
    posts_[posts_end_] = *post;
  }
}

// In its turn (post_turns_). False: nothing more may leave now. A frame that cannot be posted for want of
// memory is tried again in the next turn, at the latest after kRetry: it has its number, and those after it
// wait.
bool ConversationDriver::post_some() {
  std::array<uint64_t, kPostsPerTurn> free;
  size_t free_count = 0;
  const Status status = contain([&] {
    take_posts();
    for (; posts_begin_ != posts_end_; ++posts_begin_) {
      const Post& post = posts_[posts_begin_];
      if (job_.post(channel_, post)) free[free_count++] = post.cookie;
    }
  });
  posts_wait_.store(posts_begin_ != posts_end_);
  if (status.ok() && posts_end_ == 0) return false;
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < free_count; ++i) participant_->conversation().on_sent(free[i]);
  announce();
  if (!status.ok()) fail_locked(status);
  // What was sent at once may have made room for frames that waited for it.
  return status.ok() && (posts_end_ == posts_.size() || free_count > 0);
}

}  // namespace swale::net
