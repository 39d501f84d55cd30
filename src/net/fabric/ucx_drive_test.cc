// Transport::drive: threads that do the progress thread's work while they wait.
#include <atomic>
#include <thread>

#include "net/fabric/testing/transport_test_util.h"

namespace swale::net::ucx_drive_test {
namespace {

constexpr Nanos kPatience = 60'000'000'000;

// Echoes each frame, and notes which thread told it.
class Echo final : public Recorder {
 public:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    Recorder::on_frame(from, header, payload);
    heard_by = std::this_thread::get_id();
    ++heard;
    if (answers) {
      post(transport, this, from, header, {}, 7);
      transport->expect_frame();
    }
  }
  Transport* transport = nullptr;
  bool answers = false;
  std::atomic<std::thread::id> heard_by;
  std::atomic<size_t> heard{0};
};

struct Way {
  const char* fabrics;
  Posting posting;
  Nanos poll;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.fabrics << (way.posting == Posting::kDirect ? "/direct" : "/queue") << "/poll " << way.poll;
}

class Drive : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    all_ = make_ucx(2, GetParam().fabrics, GetParam().posting, GetParam().poll);
    ASSERT_EQ(all_.size(), 2u);
    const std::vector<std::string> addresses{all_[0]->address(), all_[1]->address()};
    for (size_t i = 0; i < 2; ++i) {
      ends_[i].transport = all_[i].get();
      ASSERT_TRUE(all_[i]->start(book_of(addresses), &ends_[i]).ok());
    }
    ends_[1].answers = true;
  }
  void TearDown() override {
    std::thread other([&] { EXPECT_TRUE(all_[1]->close(Deadline::in(system_clock(), kPatience)).ok()); });
    EXPECT_TRUE(all_[0]->close(Deadline::in(system_clock(), kPatience)).ok());
    other.join();
  }
  void ask() { post(all_[0].get(), &ends_[0], 1, "ask", {}, 1); }
  Nanos later() const { return system_clock().now() + kPatience; }

  std::vector<std::unique_ptr<Transport>> all_;
  Echo ends_[2];
};

TEST_P(Drive, TheWaitingThreadGetsTheEventsAndThenTheProgressThreadAgain) {
  size_t here = 0;
  for (size_t call = 1; call <= 200; ++call) {
    ask();
    while (ends_[0].heard < call) all_[0]->drive([&] { return ends_[0].heard >= call; }, later());
    here += ends_[0].heard_by.load() == std::this_thread::get_id();
  }
  EXPECT_GT(here, 100u);  // all but the first, unless the progress thread was at work just then
  ask();
  EXPECT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard == 201; }));
  EXPECT_NE(ends_[0].heard_by.load(), std::this_thread::get_id());
}

TEST_P(Drive, EndsInTimeAndWhenAnotherThreadPosts) {
  ask();
  ASSERT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard == 1; }));
  while (!all_[0]->drive([] { return false; }, system_clock().now() + milliseconds(20))) {
  }
  // Asleep for long, so that the progress thread stands by; what another thread posts leaves all the same.
  std::atomic<bool> driven{false};
  std::thread driver([&] {
    while (!driven) driven = all_[0]->drive([&] { return ends_[0].heard >= 3; }, later());
  });
  ask();
  EXPECT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard >= 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ask();
  driver.join();
  EXPECT_EQ(ends_[0].heard, 3u);
  ask();
  EXPECT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard == 4; }));  // by the progress thread
}

TEST_P(Drive, OneThreadAtATimeAndCloseEndsIt) {
  ask();
  ASSERT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard == 1; }));
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        all_[0]->drive(
            [&] {
              EXPECT_EQ(inside.fetch_add(1), 0);
              inside.fetch_sub(1);
              return false;
            },
            system_clock().now() + milliseconds(1));
        std::this_thread::yield();
      }
    });
  }
  for (size_t call = 2; call < 20; ++call) {
    ask();
    EXPECT_TRUE(ends_[0].wait_for([&] { return ends_[0].heard >= call; }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::thread sleeper([&] { all_[0]->drive([] { return false; }, later()); });
  TearDown();  // ends the sleeper
  sleeper.join();
  EXPECT_FALSE(all_[0]->drive([] { return false; }, later()));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Drive,
                         testing::Values(Way{"sm,self", Posting::kDirect, 0},
                                         Way{"sm,self", Posting::kQueue, 0},
                                         Way{"tcp,self", Posting::kDirect, 0},
                                         Way{"tcp,self", Posting::kQueue, 0},
                                         Way{"sm,self", Posting::kDirect, milliseconds(5)},
                                         Way{"sm,self", Posting::kQueue, milliseconds(5)},
                                         Way{"tcp,self", Posting::kDirect, milliseconds(5)}));

// Of a thread that drives, and of the answering end's progress thread, which expects the next request.
UcxTransport::Sleeps sleeps_of_exchange(Nanos poll) {
  auto all = make_ucx(2, "sm,self", Posting::kDirect, poll);
  const std::vector<std::string> addresses{all[0]->address(), all[1]->address()};
  Echo ends[2];
  for (size_t i = 0; i < 2; ++i) {
    ends[i].transport = all[i].get();
    EXPECT_TRUE(all[i]->start(book_of(addresses), &ends[i]).ok());
  }
  ends[1].answers = true;
  const auto ask = [&](size_t call) {
    post(all[0].get(), &ends[0], 1, "ask", {}, 1);
    while (ends[0].heard < call) {
      all[0]->drive([&] { return ends[0].heard >= call; }, system_clock().now() + kPatience);
    }
  };
  for (size_t call = 1; call <= 20; ++call) ask(call);  // they meet
  const auto sleeps = [&] {
    return UcxTransport::Sleeps{static_cast<UcxTransport*>(all[0].get())->sleeps().of_drivers,
                                static_cast<UcxTransport*>(all[1].get())->sleeps().of_progress_thread};
  };
  const UcxTransport::Sleeps before = sleeps();
  for (size_t call = 21; call <= 220; ++call) ask(call);
  const UcxTransport::Sleeps after = sleeps();
  std::thread other([&] { EXPECT_TRUE(all[1]->close(Deadline::in(system_clock(), kPatience)).ok()); });
  EXPECT_TRUE(all[0]->close(Deadline::in(system_clock(), kPatience)).ok());  // also ends the polling
  other.join();
  return {after.of_drivers - before.of_drivers, after.of_progress_thread - before.of_progress_thread};
}

TEST(DrivePolls, WhoExpectsAFrameDoesNotSleep) {
  const UcxTransport::Sleeps sleeps = sleeps_of_exchange(seconds(3600));
  EXPECT_EQ(sleeps.of_drivers, 0u);
  EXPECT_EQ(sleeps.of_progress_thread, 0u);
}

// The canary of the test above.
TEST(DrivePolls, WithoutABudgetItSleeps) {
  const UcxTransport::Sleeps sleeps = sleeps_of_exchange(0);
  EXPECT_GT(sleeps.of_drivers + sleeps.of_progress_thread, 0u);
}

// The progress thread polls for an hour, and a thread that comes to drive gets the seat from it all the same.
TEST(DrivePolls, AThreadThatDrivesGetsTheSeat) {
  auto all = make_ucx(2, "sm,self", Posting::kDirect, seconds(3600));
  Echo ends[2];
  for (size_t i = 0; i < 2; ++i) {
    ends[i].transport = all[i].get();
    ASSERT_TRUE(all[i]->start(book_of({all[0]->address(), all[1]->address()}), &ends[i]).ok());
  }
  all[0]->expect_frame();
  post(all[0].get(), &ends[0], 1, "hello", {}, 1);
  ASSERT_TRUE(ends[1].wait_for([&] { return ends[1].heard == 1; }));
  for (int i = 0; i < 100; ++i) {
    all[0]->expect_frame();
    std::atomic<bool> seen{false};
    while (!all[0]->drive([&] { return seen.exchange(true); }, system_clock().now() + kPatience)) {
    }
    EXPECT_TRUE(seen);
  }
  std::thread other([&] { EXPECT_TRUE(all[1]->close(Deadline::in(system_clock(), kPatience)).ok()); });
  EXPECT_TRUE(all[0]->close(Deadline::in(system_clock(), kPatience)).ok());
  other.join();
}

// Two ends that have met and have nothing more to say.
struct Idle {
  Idle() : all(make_ucx(2, "sm,self", Posting::kQueue, 0)) {
    for (size_t i = 0; i < 2; ++i) {
      ends[i].transport = all[i].get();
      EXPECT_TRUE(all[i]->start(book_of({all[0]->address(), all[1]->address()}), &ends[i]).ok());
    }
    ends[1].answers = true;
    post(all[0].get(), &ends[0], 1, "hello", {}, 1);
    EXPECT_TRUE(ends[0].wait_for([&] { return ends[0].heard == 1; }));
  }
  uint64_t sleeps() const { return static_cast<UcxTransport*>(all[0].get())->sleeps().of_progress_thread; }
  std::vector<std::unique_ptr<Transport>> all;
  Echo ends[2];
};

// A peer that computes and does not close yet.
TEST(Rings, WhoWaitsForAPeerToCloseSleeps) {
  Idle idle;
  const uint64_t before = idle.sleeps();
  EXPECT_FALSE(idle.all[0]->close(Deadline::in(system_clock(), milliseconds(300))).ok());
  EXPECT_LE(idle.sleeps() - before, 200u);  // it looks at the clock now and then
  EXPECT_TRUE(idle.all[1]->close(Deadline::in(system_clock(), kPatience)).ok());
}

TEST(DriveLoopback, IsNotForEveryTransport) {
  const auto all = make_loopback(2, Posting::kDirect);
  EXPECT_FALSE(all[0]->drive([] { return true; }, kForever));
}

}  // namespace
}  // namespace swale::net::ucx_drive_test
