// Transport::drive: threads that do the progress thread's work while they wait.
#include <atomic>
#include <thread>

#include "net/transport_test_util.h"

namespace swale::net {
namespace {

constexpr Nanos kPatience = 60'000'000'000;

// Echoes each frame, and notes which thread told it.
class Echo final : public Recorder {
 public:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    Recorder::on_frame(from, header, payload);
    heard_by = std::this_thread::get_id();
    ++heard;
    if (answers) post(transport, this, from, header, {}, 7);
  }
  Transport* transport = nullptr;
  bool answers = false;
  std::atomic<std::thread::id> heard_by;
  std::atomic<size_t> heard{0};
};

class Drive : public testing::TestWithParam<std::pair<const char*, Posting>> {
 protected:
  void SetUp() override {
    all_ = make_ucx(2, GetParam().first, GetParam().second);
    ASSERT_EQ(all_.size(), 2u);
    const std::vector<std::string> addresses{all_[0]->address(), all_[1]->address()};
    for (size_t i = 0; i < 2; ++i) {
      ends_[i].transport = all_[i].get();
      ASSERT_TRUE(all_[i]->start(addresses, &ends_[i]).ok());
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
                         testing::Values(std::pair{"sm,self", Posting::kDirect},
                                         std::pair{"sm,self", Posting::kQueue},
                                         std::pair{"tcp,self", Posting::kDirect},
                                         std::pair{"tcp,self", Posting::kQueue}));

TEST(DriveLoopback, IsNotForEveryTransport) {
  const auto all = make_loopback(2, Posting::kDirect);
  EXPECT_FALSE(all[0]->drive([] { return true; }, kForever));
}

}  // namespace
}  // namespace swale::net
