#include "net/talk/conversation_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace swale::net::conversation_driver_test {
namespace {

using testing::HasSubstr;

// A rank that sends frames to a peer, reads them on a thread of the test and counts; "!" makes it throw.
class Talker final : public ConversationDriver, private Participant {
 public:
  explicit Talker(Job& job) : ConversationDriver(job) {
    EXPECT_TRUE(join().ok());
    Conversation::Params params = conversation_params();
    params.frames_per_rank = 2;
    params.frame_bytes = 128;
    params.window = 1;
    conversation_ = std::make_unique<Conversation>(*Conversation::create(params));
    serve(this);
  }
  ~Talker() override { EXPECT_TRUE(leave(seconds(60))); }
  bool go() { return leave(seconds(60)); }
  // This thread begins to post, and stays there until it is let go.
  void stop_in_a_post() {
    const MutexLock lock(mutex_);
    stops_ = std::this_thread::get_id();
    while (stops_ == std::this_thread::get_id()) after_change();  // it may be another thread's turn to post
  }
  void wait_for_the_stop() const { stopped_.wait(false); }
  void let_go() { set_stopped(false); }
  void say(Rank to, Bytes text) {
    const MutexLock lock(mutex_);
    wait_until([&] { return failed() || conversation_->frame_available(to); });
    if (failed()) return;
    Frame frame = conversation_->take_frame(to);
    text.copy(frame.data, text.size());
    frame.bytes = static_cast<uint32_t>(text.size());
    conversation_->send(to, frame);
    after_change();
  }
  void signal(Rank to, std::string message) {
    const MutexLock lock(mutex_);
    conversation_->send_control(to, std::move(message));
    after_change();
  }
  std::string read() {
    const MutexLock lock(mutex_);
    wait_until([this] { return failed() || !conversation_->inbox().empty(); });
    if (conversation_->inbox().empty()) return "failed";
    std::string text(conversation_->inbox().front());
    conversation_->finish_front();
    after_change();
    return text;
  }
  bool wait(const std::function<bool()>& done) {
    const MutexLock lock(mutex_);
    return wait_until(done, seconds(60));
  }
  void give_up(const Status& status) {
    const MutexLock lock(mutex_);
    fail_now(status);
  }
  size_t signals = 0;
  size_t failures = 0;
  Status why;

 private:
  Conversation& conversation() override { return *conversation_; }
  void on_control(Rank /*from*/, Bytes message) override {
    if (message == "!") throw std::bad_alloc();
    ++signals;
  }
  void on_failed(const Status& status) override {
    ++failures;
    why = status;
  }

  void before_posts() override REQUIRES(mutex_) {
    if (stops_ != std::this_thread::get_id()) return;
    stops_ = {};
    set_stopped(true);
    const MutexUnlock unlocked(mutex_);
    stopped_.wait(true);
  }
  void set_stopped(bool stopped) {
    stopped_ = stopped;
    stopped_.notify_all();
  }

  std::unique_ptr<Conversation> conversation_;
  std::thread::id stops_;
  std::atomic<bool> stopped_{false};
};

using RankBody = std::function<void(Job&, const std::function<void()>& meet)>;

void run_ranks(const char* posting, int32_t size, const RankBody& body, bool job_fails = false) {
  JobOptions options;
  options.transport = "loopback";
  options.posting = posting;
  auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = Job::open(local_bootstrap(group, rank), options).value();
      body(*job, [&] { EXPECT_TRUE(job->allgather("").ok()); });
      const Status closed = job->close();
      EXPECT_TRUE(closed.ok() || job_fails) << closed.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class BothWaysOfPosting : public testing::TestWithParam<const char*> {
 protected:
  bool job_fails = false;
  void as_ranks(int32_t size, const RankBody& body) { run_ranks(GetParam(), size, body, job_fails); }
};
INSTANTIATE_TEST_SUITE_P(Posting, BothWaysOfPosting, testing::Values("queue", "direct"));

TEST_P(BothWaysOfPosting, EverythingArrivesInOrderThroughASmallWindow) {
  as_ranks(3, [](Job& job, const std::function<void()>& meet) {
    constexpr int kFrames = 500;
    Talker talker(job);
    meet();
    const Rank next = (job.rank() + 1) % job.size();
    std::thread sender([&] {
      for (int i = 0; i < kFrames; ++i) {
        talker.say(next, std::to_string(i));
        talker.signal(next, "signal");
      }
    });
    for (int i = 0; i < kFrames; ++i) ASSERT_EQ(talker.read(), std::to_string(i));
    sender.join();
    EXPECT_TRUE(talker.wait([&] { return talker.signals == kFrames; }));
    meet();  // nobody leaves while another may still send
  });
}

TEST_P(BothWaysOfPosting, AFailureWakesWaitersOnAllRanksOnce) {
  as_ranks(3, [](Job& job, const std::function<void()>& meet) {
    Talker talker(job);
    meet();
    if (job.rank() == 1) talker.give_up(error(Code::kNoSpace, Scope::kFile, "disk full"));
    EXPECT_EQ(talker.read(), "failed");
    EXPECT_EQ(talker.failures, 1u);
    EXPECT_THAT(std::string(talker.why.message()), HasSubstr("disk full"));
    EXPECT_EQ(talker.why.code(), job.rank() == 1 ? Code::kNoSpace : Code::kAborted);
    meet();
  });
}

TEST_P(BothWaysOfPosting, WhatAnEventThrowsFailsTheConversation) {
  as_ranks(2, [](Job& job, const std::function<void()>& meet) {
    Talker talker(job);
    meet();
    if (job.rank() == 0) talker.signal(1, "!");
    EXPECT_EQ(talker.read(), "failed");
    EXPECT_EQ(talker.why.code(), job.rank() == 1 ? Code::kResourceExhausted : Code::kAborted);
    meet();
  });
}

TEST_P(BothWaysOfPosting, TheJobsFailureIsTheConversations) {
  job_fails = true;
  as_ranks(2, [](Job& job, const std::function<void()>& meet) {
    Talker talker(job);
    meet();
    if (job.rank() == 0) job.give_up(error(Code::kInternal, Scope::kFatal, "no more"));
    EXPECT_EQ(talker.read(), "failed");
    EXPECT_THAT(std::string(talker.why.message()), HasSubstr("no more"));
  });
}

// What it posted may have ended the conversation for everybody else.
TEST(ConversationDriver, LeavingWaitsForAThreadThatIsStillPosting) {
  run_ranks("direct", 2, [](Job& job, const std::function<void()>& meet) {
    Talker talker(job);
    meet();
    std::thread poster([&] { talker.stop_in_a_post(); });
    talker.wait_for_the_stop();
    auto left = std::async(std::launch::async, [&] { return talker.go(); });
    EXPECT_EQ(left.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    talker.let_go();
    EXPECT_TRUE(left.get());
    poster.join();
  });
}

// As a worker that fails while its directory closes: its memory is freed, and nobody must be told from there.
TEST(ConversationDriver, AfterLeavingNothingIsPosted) {
  run_ranks("direct", 2, [](Job& job, const std::function<void()>& meet) {
    Talker talker(job);
    meet();
    if (job.rank() == 0) {
      EXPECT_TRUE(talker.go());
      talker.give_up(error(Code::kIoError, Scope::kFile, "too late"));
    }
    meet();
    EXPECT_EQ(talker.failures, job.rank() == 0 ? 1u : 0u);
  });
}

TEST(ConversationDriver, AloneItLeavesAtOnce) {
  auto job = Job::open(solo_bootstrap(), {}).value();
  Talker talker(*job);
  talker.give_up(invalid_argument("x"));
  EXPECT_EQ(talker.failures, 1u);
}

}  // namespace
}  // namespace swale::net::conversation_driver_test
