#include "base/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace swale::crew_test {
namespace {

// Does as many pieces of work as it was given, and writes down its name for each.
class Worker : public Crew::Member {
 public:
  Worker(Crew& crew, std::string name, std::string* diary, std::mutex* diary_mutex)
      : crew_(crew), name_(std::move(name)), diary_(diary), diary_mutex_(diary_mutex) {}

  bool turn() noexcept override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two turns at a time";
    {
      const std::lock_guard lock(*diary_mutex_);
      if (work_ > 0) {
        *diary_ += name_;
        --work_;
        ++done_;
      }
    }
    changed_.notify_all();
    inside_.fetch_sub(1);
    const std::lock_guard lock(*diary_mutex_);
    return work_ > 0;
  }

  void give(int pieces) {
    {
      const std::lock_guard lock(*diary_mutex_);
      work_ += pieces;
    }
    crew_.wake(this);
  }
  void wait_for(int done) {
    std::unique_lock lock(*diary_mutex_);
    changed_.wait(lock, [&] { return done_ >= done; });
  }

 private:
  Crew& crew_;
  const std::string name_;
  std::string* const diary_;
  std::mutex* const diary_mutex_;
  std::condition_variable changed_;
  std::atomic<int> inside_{0};
  int work_ = 0;
  int done_ = 0;
};

class CrewTest : public testing::Test {
 protected:
  Crew crew_;
  std::string diary_;
  std::mutex diary_mutex_;
};

TEST_F(CrewTest, HasAsManyThreadsAsTheMostDemandingMemberAsksFor) {
  EXPECT_EQ(crew_.thread_count(), 0u);
  std::vector<std::unique_ptr<Worker>> workers;
  for (const size_t threads : {1, 3, 2, 1}) {
    workers.push_back(std::make_unique<Worker>(crew_, "x", &diary_, &diary_mutex_));
    ASSERT_TRUE(crew_.join(workers.back().get(), threads).ok());
  }
  EXPECT_EQ(crew_.thread_count(), 3u);
  crew_.leave(workers[1].get());
  EXPECT_EQ(crew_.thread_count(), 2u);
  crew_.leave(workers[2].get());
  EXPECT_EQ(crew_.thread_count(), 1u);
  crew_.leave(workers[0].get());
  crew_.leave(workers[3].get());
  EXPECT_EQ(crew_.thread_count(), 0u);
  crew_.leave(workers[3].get());  // again: nothing happens
}

// Keeps its thread until it is let go.
class Gate : public Crew::Member {
 public:
  bool turn() noexcept override {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return false;
  }
  void wait_until_entered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return entered_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false;
  bool open_ = false;
};

// One piece each, in turn, also where one member has much more to do.
TEST_F(CrewTest, MembersTakeTurns) {
  Gate gate;
  Worker a(crew_, "a", &diary_, &diary_mutex_), b(crew_, "b", &diary_, &diary_mutex_),
      c(crew_, "c", &diary_, &diary_mutex_);
  ASSERT_TRUE(crew_.join(&gate, 1).ok());
  for (Worker* worker : {&a, &b, &c}) ASSERT_TRUE(crew_.join(worker, 1).ok());
  crew_.wake(&gate);
  gate.wait_until_entered();
  a.give(6);
  b.give(3);
  c.give(3);
  gate.open();
  a.wait_for(6);
  for (Worker* worker : {&a, &b, &c}) crew_.leave(worker);
  crew_.leave(&gate);
  EXPECT_EQ(diary_, "abcabcabcaaa");
}

TEST_F(CrewTest, NoWakeIsLostAndLeaveWaitsForTheTurn) {
  constexpr int kRounds = 3'000;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(std::make_unique<Worker>(crew_, "", &diary_, &diary_mutex_));
    ASSERT_TRUE(crew_.join(workers.back().get(), 3).ok());
  }
  std::vector<std::thread> givers;
  for (auto& worker : workers) {
    givers.emplace_back([&worker] {
      for (int round = 1; round <= kRounds; ++round) {
        worker->give(1);
        if (round % 7 == 0) worker->wait_for(round);
      }
      worker->wait_for(kRounds);
    });
  }
  for (std::thread& giver : givers) giver.join();
  for (auto& worker : workers) {
    worker->give(1'000'000);
    crew_.leave(worker.get());
    worker.reset();  // a turn after leave would use it
  }
  EXPECT_EQ(crew_.thread_count(), 0u);
}

// May have turns only until it is told that it has left; each lasts until others have had time to wake it.
class Leaver : public Crew::Member {
 public:
  bool turn() noexcept override {
    EXPECT_FALSE(gone_.load()) << "a turn after leave";
    in_turn_ = true;
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    return false;
  }
  bool in_turn() const { return in_turn_; }
  void is_gone() { gone_ = true; }

 private:
  std::atomic<bool> in_turn_{false};
  std::atomic<bool> gone_{false};
};

// As a storage thread wakes whose writes end while their owner closes.
TEST_F(CrewTest, AWakeDuringLeaveGivesNoTurnAfterIt) {
  constexpr size_t kLeavers = 300;
  Worker stays(crew_, "", &diary_, &diary_mutex_);
  ASSERT_TRUE(crew_.join(&stays, 2).ok());
  std::vector<Leaver> leavers(kLeavers);
  std::atomic<size_t> leaving{0};
  std::thread waker([&] {
    for (size_t next = 0; (next = leaving.load()) < kLeavers;) crew_.wake(&leavers[next]);
  });
  for (Leaver& leaver : leavers) {
    ASSERT_TRUE(crew_.join(&leaver, 1).ok());
    while (!leaver.in_turn()) std::this_thread::yield();
    crew_.leave(&leaver);
    leaver.is_gone();
    ++leaving;
  }
  waker.join();
  stays.give(1);
  stays.wait_for(1);  // who was in the queue has had a turn
  crew_.leave(&stays);
}

TEST_F(CrewTest, AProcessHasOneCrewWhileSomebodyUsesIt) {
  std::shared_ptr<Crew> first = Crew::of_this_process();
  EXPECT_EQ(first, Crew::of_this_process());
  const std::weak_ptr<Crew> seen = first;
  first.reset();
  EXPECT_TRUE(seen.expired());
  EXPECT_NE(Crew::of_this_process(), nullptr);
}

TEST_F(CrewTest, RefusesMoreThreadsThanItsLimit) {
  Worker worker(crew_, "", &diary_, &diary_mutex_);
  EXPECT_EQ(crew_.join(&worker, Crew::kThreadsMax + 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(crew_.thread_count(), 0u);
}

}  // namespace
}  // namespace swale::crew_test
