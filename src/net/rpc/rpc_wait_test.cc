// What wakes a thread that waits in an RpcClient. The transport of these tests is a loopback whose drive
// sleeps until
// Transport::wake is called, and never looks at anything else: no tick and no frame can stand in for a
// wake-up that is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "net/fabric/fabric_module.h"
#include "net/fabric/loopback_transport.h"
#include "net/rpc/rpc.h"

namespace swale::net::rpc_wait_test {
namespace {

constexpr RpcMethod kLater = 0;  // is answered when the test says so
constexpr Nanos kPatience = seconds(60);

class Sleeper final : public Transport {
 public:
  explicit Sleeper(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::string address() const override { return inner_->address(); }
  Status start(std::shared_ptr<const AddressBook> book, TransportEvents* events) override {
    return inner_->start(std::move(book), events);
  }
  bool post(Rank to, Bytes header, Bytes payload, uint64_t cookie) override {
    return inner_->post(to, header, payload, cookie);
  }
  void drop(Rank peer, const Status& why) override { inner_->drop(peer, why); }
  Status close(Deadline deadline) override { return inner_->close(deadline); }
  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_all();
    inner_->wake();
  }
  bool drive(const std::function<bool()>& done, Nanos until) override {
    if (refuses_) {
      ++refused_;
      return false;
    }
    while (!done()) {
      std::unique_lock lock(mutex_);
      asleep_until_ = until;
      earliest_ = std::min(earliest_, until);
      changed_.notify_all();
      const Nanos most = std::min(until, system_clock().now() + kPatience) - system_clock().now();
      const bool woken =
          changed_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(0, most)), [&] { return woken_; });
      asleep_until_ = 0;
      woken_ = false;
      if (!woken) {
        ++overslept_;
        return true;
      }
    }
    return true;
  }
  // From now on nobody can drive.
  void refuse() { refuses_ = true; }
  size_t refused() const { return refused_; }
  // Waits until a thread sleeps in drive; until when it does.
  Nanos asleep_until() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::nanoseconds(kPatience),
                                  [&] { return asleep_until_ != 0 && !woken_; }));
    return asleep_until_;
  }
  // Of all that a thread has slept until.
  Nanos earliest() {
    const std::lock_guard lock(mutex_);
    return earliest_;
  }
  size_t overslept() {
    const std::lock_guard lock(mutex_);
    return overslept_;
  }

 private:
  const std::unique_ptr<Transport> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  Nanos asleep_until_ = 0;  // of the thread in drive; 0: none sleeps
  Nanos earliest_ = kForever;
  size_t overslept_ = 0;  // slept until it was too late
  std::atomic<bool> refuses_{false};
  std::atomic<size_t> refused_{0};
};

// The fabric of the test at hand. Rank 0 makes it, and its end is the one that the test asks.
std::shared_ptr<LoopbackFabric> the_fabric;
Sleeper* the_sleeper = nullptr;

Result<std::unique_ptr<Transport>> make_sleeper(Rank rank, int32_t, const TransportOptions& options) {
  auto made = std::make_unique<Sleeper>(the_fabric->transport(rank, options.posting));
  if (rank == 0) the_sleeper = made.get();
  return std::unique_ptr<Transport>(std::move(made));
}

class Keeper final : public RpcService {
 public:
  void on_requests(std::span<RpcRequest> requests) override {
    const std::lock_guard lock(mutex_);
    for (RpcRequest& each : requests) kept_.push_back(std::move(each));
    changed_.notify_all();
  }
  RpcRequest take() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [&] { return !kept_.empty(); }));
    RpcRequest first = std::move(kept_.front());
    kept_.erase(kept_.begin());
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RpcRequest> kept_;
};

// Runs `body` on rank 0 of two. Rank 1 only comes and leaves.
void run(const std::function<void(Rpc&, Keeper&)>& body, size_t calls_max = 100) {
  static constexpr FabricModule module{.name = "ucx", .make = make_sleeper};
  register_fabric(&module);
  the_fabric = LoopbackFabric::create(2);
  const auto group = std::make_shared<LocalGroup>(2);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      JobOptions job_options;
      job_options.transport = "ucx";
      job_options.posting = "direct";
      auto job = Job::open(local_bootstrap(group, rank), job_options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      {
        Keeper keeper;
        RpcOptions options;
        options.methods = {"later"};
        options.calls_max = calls_max;
        const auto rpc = Rpc::open(**job, options, &keeper);
        ASSERT_TRUE(rpc.ok()) << rpc.status().to_string();
        if (rank == 0) body(**rpc, keeper);
        EXPECT_TRUE((*rpc)->close().ok());
      }
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  the_fabric.reset();
}

// Commit 242c795.
TEST(RpcWait, AnAnswerByAnotherThreadOfTheProcessWakesTheThreadThatDrives) {
  run([](Rpc& rpc, Keeper& keeper) {
    RpcClient client(&rpc);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(client.call({.to = 0, .method = kLater}).ok());
      const RpcRequest request = keeper.take();
      std::thread answers([&] {
        the_sleeper->asleep_until();
        EXPECT_TRUE(rpc.reply(request.token, RpcPayload("here")));
      });
      std::vector<RpcCompletion> done;
      EXPECT_EQ(client.wait(&done), 1u);
      answers.join();
      ASSERT_EQ(done.size(), 1u);
      EXPECT_EQ(*done[0].response, "here");
      ASSERT_EQ(the_sleeper->overslept(), 0u);
    }
  });
}

TEST(RpcWait, AnotherThreadMayCallAndCancelMeanwhile) {
  run([](Rpc& rpc, Keeper& keeper) {
    RpcClient client(&rpc);
    std::vector<RpcCompletion> done;
    std::thread waits([&] {
      while (done.size() < 2) EXPECT_GT(client.wait(&done), 0u);
    });
    the_sleeper->asleep_until();
    ASSERT_TRUE(client.call({.to = 0, .method = kLater, .tag = 1}).ok());
    const Result<CallId> second = client.call({.to = 0, .method = kLater, .tag = 2});
    ASSERT_TRUE(second.ok());
    EXPECT_TRUE(client.cancel(*second));
    const RpcRequest first = keeper.take();
    keeper.take();
    the_sleeper->asleep_until();
    EXPECT_TRUE(rpc.reply(first.token, RpcPayload("here")));
    waits.join();
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0].tag, 2u);
    EXPECT_EQ(done[0].response.status().code(), Code::kAborted);
    EXPECT_EQ(*done[1].response, "here");
    EXPECT_EQ(the_sleeper->overslept(), 0u);
  });
}

// The waiting thread sleeps no longer than the new call may take.
TEST(RpcWait, ADeadlineOfAnotherThreadsCallIsKept) {
  run([](Rpc& rpc, Keeper&) {
    RpcClient client(&rpc);
    const Nanos first = system_clock().now() + 2 * kPatience;
    std::vector<RpcCompletion> done;
    std::thread waits([&] { EXPECT_EQ(client.wait(&done, first), 1u); });
    const Nanos before = the_sleeper->asleep_until();
    EXPECT_EQ(before, first);
    // Far enough that the thread sleeps once more before it, however late it gets a core.
    const Nanos deadline = system_clock().now() + seconds(2);
    ASSERT_TRUE(client.call({.to = 0, .method = kLater, .deadline = deadline}).ok());
    waits.join();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].response.status().code(), Code::kDeadlineExceeded);
    EXPECT_LE(the_sleeper->earliest(), deadline);
  });
}

// The thread that drives, and one that does not.
TEST(RpcWait, ACallThatHasFoundNoCapacityIsMadeWhenAnotherClientLeavesSome) {
  run(
      [](Rpc& rpc, Keeper& keeper) {
        RpcClient holder(&rpc);
        ASSERT_TRUE(holder.call({.to = 0, .method = kLater}).ok());
        std::vector<std::thread> threads;
        std::atomic<int> refused{0};
        for (int i = 0; i < 2; ++i) {
          threads.emplace_back([&] {
            RpcClient client(&rpc);
            const Nanos until = system_clock().now() + kPatience;
            EXPECT_EQ(client.call({.to = 0, .method = kLater}).status().code(), Code::kResourceExhausted);
            ++refused;
            std::vector<RpcCompletion> done;
            do {
              EXPECT_EQ(client.wait(&done, until), 0u);
            } while (!client.call({.to = 0, .method = kLater}).ok() && system_clock().now() < until);
            EXPECT_EQ(client.wait(&done, until), 1u);
          });
        }
        while (refused < 2) std::this_thread::yield();
        the_sleeper->asleep_until();
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(rpc.reply(keeper.take().token, RpcPayload("here")));
        for (std::thread& each : threads) each.join();
        std::vector<RpcCompletion> done;
        EXPECT_EQ(holder.wait(&done), 1u);
        EXPECT_EQ(the_sleeper->overslept(), 0u);
      },
      1);
}

// As in a job of one rank, and where a thread of another Rpc drives.
TEST(RpcWait, ThreadsThatCannotDriveDoNotWakeEachOther) {
  run([](Rpc& rpc, Keeper& keeper) {
    the_sleeper->refuse();
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&rpc] {
        RpcClient client(&rpc);
        const auto answer = client.ask({.to = 0, .method = kLater});
        ASSERT_TRUE(answer.ok()) << answer.status().to_string();
        EXPECT_EQ(*answer, "here");
      });
    }
    const RpcRequest first = keeper.take();
    const RpcRequest second = keeper.take();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they wait; about one look each is enough
    EXPECT_LT(the_sleeper->refused(), 50u);
    EXPECT_TRUE(rpc.reply(first.token, RpcPayload("here")));
    EXPECT_TRUE(rpc.reply(second.token, RpcPayload("here")));
    for (std::thread& each : threads) each.join();
  });
}

}  // namespace
}  // namespace swale::net::rpc_wait_test
