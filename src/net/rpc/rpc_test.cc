#include "net/rpc/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <mutex>
#include <thread>

#include "net/fabric/fabric_module.h"
#include "net/fabric/loopback_transport.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"

namespace swale::net::rpc_test {
namespace {

using testing::HasSubstr;

constexpr RpcMethod kEcho = 0;
constexpr RpcMethod kWho = 1;  // answers with the rank and its name for itself
constexpr RpcMethod kFail = 2;
constexpr RpcMethod kLater = 3;  // is answered when the test says so

struct Fabric {
  const char* transport;
  const char* posting;
};

void PrintTo(const Fabric& fabric, std::ostream* out) { *out << fabric.transport << "/" << fabric.posting; }

RpcOptions options() {
  RpcOptions made;
  made.methods = {"echo", "who", "fail", "later"};
  return made;
}

// Answers in the event, or on a thread of its own.
class Service final : public RpcService {
 public:
  explicit Service(bool thread) {
    if (thread) thread_ = std::thread([this] { work(); });
  }
  ~Service() override { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void on_requests(std::span<RpcRequest> requests) override {
    for (RpcRequest& each : requests) {
      if (each.method == kLater || thread_.joinable()) {
        const std::lock_guard lock(mutex_);
        (each.method == kLater ? late_ : queue_).push_back(std::move(each));
        changed_.notify_one();
      } else {
        answer(std::move(each));
      }
    }
  }
  // The requests to kLater that have come; waits for `count` of them.
  std::vector<RpcRequest> late(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return late_.size() >= count; });
    return std::exchange(late_, {});
  }
  Rpc* rpc = nullptr;

 private:
  void answer(RpcRequest request) {
    if (request.method == kFail) {
      rpc->reply(request.token, error(Code::kNotFound, Scope::kFile, "nothing under {}", request.payload));
    } else if (request.method == kWho) {
      rpc->reply(request.token, RpcPayload(fmt::format("{} hears {}", rpc->rank(), request.from)));
    } else {
      rpc->reply(request.token, RpcPayload(std::move(request.payload)));
    }
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::vector<RpcRequest> taken = std::exchange(queue_, {});
      lock.unlock();
      for (RpcRequest& each : taken) answer(std::move(each));
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RpcRequest> queue_;
  std::vector<RpcRequest> late_;
  bool stop_ = false;
  std::thread thread_;
};

// Runs `body` on `size` threads, each a rank of one job with an Rpc.
void run_ranks(int32_t size, const Fabric& fabric, const std::function<void(Rpc&, Service&)>& body,
               bool service_thread = false, bool close = true) {
  register_fabric(tls_fabric());
  register_fabric(ucx_fabric());
  JobOptions job_options;
  job_options.transport = fabric.transport;
  job_options.posting = fabric.posting;
  const auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto bootstrap = size == 1 ? solo_bootstrap() : local_bootstrap(group, rank);
      auto job = Job::open(std::move(bootstrap), job_options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      {
        Service service(service_thread);
        auto rpc = Rpc::open(**job, options(), &service);
        ASSERT_TRUE(rpc.ok()) << rpc.status().to_string();
        service.rpc = rpc->get();
        // A request may come before service.rpc is set.
        ASSERT_TRUE((*job)->allgather("").ok());
        body(**rpc, service);
        if (close) {
          const Status closed = (*rpc)->close();
          EXPECT_TRUE(closed.ok()) << closed.to_string();
        }
        service.stop();
      }
      const Status closed = (*job)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class RpcOverFabrics : public testing::TestWithParam<Fabric> {};

TEST_P(RpcOverFabrics, EveryRankAsksEveryRankAlsoItself) {
  for (const bool service_thread : {false, true}) {
    run_ranks(
        3, GetParam(),
        [](Rpc& rpc, Service&) {
          RpcClient client(&rpc);
          for (int round = 0; round < 20; ++round) {
            for (Rank to = 0; to < rpc.size(); ++to) {
              const auto who = client.ask({.to = to, .method = kWho});
              ASSERT_TRUE(who.ok()) << who.status().to_string();
              EXPECT_EQ(*who, fmt::format("{} hears {}", to, rpc.rank()));
            }
          }
          for (const size_t bytes : {0u, 64u, 32'768u, 32'769u, 100'000u, 3'000'000u}) {
            const std::string text(bytes, static_cast<char>('a' + bytes % 26));
            RpcCall call{.to = (rpc.rank() + 1) % rpc.size(), .method = kEcho, .payload = text};
            call.response_bytes_max = static_cast<uint32_t>(bytes);
            const auto echo = client.ask(std::move(call));
            ASSERT_TRUE(echo.ok()) << echo.status().to_string();
            EXPECT_TRUE(*echo == text) << bytes;
          }
          const auto failed = client.ask({.to = 1, .method = kFail, .payload = "key"});
          EXPECT_EQ(failed.status().code(), Code::kNotFound);
          EXPECT_THAT(std::string(failed.status().message()), HasSubstr("nothing under key"));
        },
        service_thread);
  }
}

TEST_P(RpcOverFabrics, ManyRequestsAreInFlightFromManyThreads) {
  run_ranks(2, GetParam(), [](Rpc& rpc, Service&) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&rpc, thread] {
        RpcClient client(&rpc);
        std::vector<RpcCompletion> done;
        size_t answered = 0;
        for (uint64_t i = 0; answered < 3000;) {
          bool full = false;
          for (size_t batch = 0; i < 3000 && batch < 100 && !full; ++batch) {
            RpcCall call{.to = static_cast<Rank>(i % 2), .payload = fmt::format("{} of {}", i, thread)};
            call.response_bytes_max = 64;
            call.tag = i;
            const auto id = client.call(std::move(call), RpcClient::Leave::kWithNext);
            full = id.status().code() == Code::kResourceExhausted;  // take completions first
            ASSERT_TRUE(full || id.ok()) << id.status().to_string();
            i += full ? 0 : 1;
          }
          if (full && answered == i) continue;  // others have all of it
          done.clear();
          client.wait(&done);
          answered += done.size();
          for (const RpcCompletion& each : done) {
            ASSERT_TRUE(each.response.ok()) << each.response.status().to_string();
            ASSERT_EQ(*each.response, fmt::format("{} of {}", each.tag, thread));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(RpcOverFabrics, OneToManyAnswersInOrder) {
  run_ranks(4, GetParam(), [](Rpc& rpc, Service&) {
    RpcClient client(&rpc);
    const std::vector<Rank> ranks{3, 1, 0, 2};
    const auto answers = client.ask_many(ranks, {.method = kWho});
    ASSERT_EQ(answers.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(answers[i].ok()) << answers[i].status().to_string();
      EXPECT_EQ(*answers[i], fmt::format("{} hears {}", ranks[i], rpc.rank()));
    }
  });
}

TEST_P(RpcOverFabrics, DeadlinesAndCancellationsCompleteWithoutTheServer) {
  // Whether a call has left before it ends is open: another thread may have the turn to post and no core.
  constexpr int kTriesMax = 1'000;
  std::atomic<bool> x_came{false}, y_came{false};
  run_ranks(2, GetParam(), [&](Rpc& rpc, Service& service) {
    RpcClient client(&rpc);
    if (rpc.rank() == 0) {
      for (int tries = 0; tries == 0 || (!x_came && tries < kTriesMax); ++tries) {
        RpcCall call{.to = 1, .method = kLater, .payload = "x"};
        call.deadline = system_clock().now() + milliseconds(20);
        const auto late = client.ask(std::move(call));
        EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
        EXPECT_THAT(std::string(late.status().message()), HasSubstr("rank 1 (host "));
        EXPECT_THAT(std::string(late.status().message()), HasSubstr("asked for \"later\""));
      }
      EXPECT_TRUE(x_came);
      const auto id = client.call({.to = 1, .method = kLater, .payload = "y"});
      ASSERT_TRUE(id.ok());
      std::vector<RpcCompletion> done;
      for (int tries = 0; tries == 0 || (!y_came && tries < kTriesMax); ++tries)
        EXPECT_EQ(client.wait(&done, system_clock().now() + milliseconds(5)), 0u);
      EXPECT_TRUE(client.cancel(*id));
      EXPECT_FALSE(client.cancel(*id));
      EXPECT_EQ(client.wait(&done), 1u);
      EXPECT_EQ(done[0].response.status().code(), Code::kAborted);
      // What a client leaves open is cancelled.
      RpcClient leaves(&rpc);
      EXPECT_TRUE(leaves.call({.to = 1, .method = kLater, .payload = "z"}).ok());
    } else {
      while (!y_came) {
        for (const RpcRequest& each : service.late(1)) {
          (each.payload == "x" ? x_came : y_came) = true;
          while (rpc.wanted(each.token)) std::this_thread::yield();
          EXPECT_FALSE(rpc.reply(each.token, RpcPayload("too late")));
        }
      }
    }
  });
}

TEST_P(RpcOverFabrics, ARankThatGivesUpFailsTheCallsOfOthers) {
  run_ranks(
      2, GetParam(),
      [](Rpc& rpc, Service& service) {
        if (rpc.rank() == 1) {
          service.late(1);
          return;
        }
        RpcClient client(&rpc);
        const auto never = client.ask({.to = 1, .method = kLater});
        EXPECT_EQ(never.status().code(), Code::kAborted);
        EXPECT_THAT(std::string(never.status().message()), HasSubstr("has given up"));
        EXPECT_EQ(client.ask({.to = 0, .method = kWho}).status().code(), Code::kAborted);
      },
      false, false);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RpcOverFabrics,
                         testing::Values(Fabric{"loopback", "queue"}, Fabric{"loopback", "direct"},
                                         Fabric{"tls", "queue"}, Fabric{"tls", "direct"},
                                         Fabric{"ucx", "queue"}, Fabric{"ucx", "direct"}));

TEST(Rpc, WorksInAJobOfOneRank) {
  run_ranks(1, {"auto", "auto"}, [](Rpc& rpc, Service& service) {
    RpcClient client(&rpc);
    EXPECT_EQ(*client.ask({.to = 0, .method = kWho}), "0 hears 0");
    RpcCall call{.to = 0, .method = kLater};
    call.deadline = system_clock().now() + milliseconds(5);
    EXPECT_EQ(client.ask(std::move(call)).status().code(), Code::kDeadlineExceeded);
    for (const RpcRequest& each : service.late(1)) EXPECT_FALSE(rpc.reply(each.token, RpcPayload("x")));
    // Answered by another thread while this one waits.
    std::thread other([&] {
      for (const RpcRequest& each : service.late(1)) EXPECT_TRUE(rpc.reply(each.token, RpcPayload("now")));
    });
    EXPECT_EQ(*client.ask({.to = 0, .method = kLater}), "now");
    other.join();
  });
}

// The fabric of the loopback job that is open.
std::shared_ptr<LoopbackFabric> open_fabric() {
  for (uint64_t id = 1;; ++id) {
    if (auto fabric = LoopbackFabric::find(id)) return fabric;
  }
}

TEST(Rpc, AKilledRankFailsTheCallsToItByNameAndNoOthers) {
  JobOptions job_options;
  job_options.transport = "loopback";
  job_options.posting = "direct";
  job_options.close_deadline = milliseconds(200);
  const auto group = std::make_shared<LocalGroup>(3);
  std::latch asked(3), killed(3);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = Job::open(local_bootstrap(group, rank), job_options);
      ASSERT_TRUE(job.ok());
      {
        Service service(false);
        auto rpc = Rpc::open(**job, options(), &service);
        ASSERT_TRUE(rpc.ok());
        service.rpc = rpc->get();
        ASSERT_TRUE((*job)->allgather("").ok());
        RpcClient client(rpc->get());
        if (rank != 1) {
          ASSERT_TRUE(client.call({.to = 1, .method = kLater, .tag = 1}).ok());
        } else {
          service.late(2);
          open_fabric()->kill(1);
        }
        asked.arrive_and_wait();
        if (rank != 1) {
          std::vector<RpcCompletion> done;
          EXPECT_EQ(client.wait(&done), 1u);
          EXPECT_EQ(done[0].tag, 1u);
          const Status why = done[0].response.status();
          EXPECT_EQ(why.code(), Code::kUnavailable);
          EXPECT_EQ(why.scope(), Scope::kPeer);
          EXPECT_THAT(std::string(why.message()), HasSubstr("rank 1 (host "));
          EXPECT_THAT(std::string(why.message()), HasSubstr("asked for \"later\""));
          EXPECT_EQ(*client.ask({.to = 2 - rank, .method = kWho}),
                    fmt::format("{} hears {}", 2 - rank, rank));
          EXPECT_EQ(client.ask({.to = 1, .method = kWho}).status().code(), Code::kUnavailable);
        }
        killed.arrive_and_wait();
      }
      static_cast<void>((*job)->close());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Rpc, RanksWithOtherOptionsAreRefusedOnAllRanks) {
  JobOptions job_options;
  job_options.transport = "loopback";
  const auto group = std::make_shared<LocalGroup>(2);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = Job::open(local_bootstrap(group, rank), job_options);
      ASSERT_TRUE(job.ok());
      RpcOptions mine = options();
      if (rank == 1) mine.methods[0] = "another";
      const auto rpc = Rpc::open(**job, mine, nullptr);
      EXPECT_EQ(rpc.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(rpc.status().message()), HasSubstr("rank 0 opened with rpc.methods="));
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Rpc, ARankWithoutServiceSaysSo) {
  JobOptions job_options;
  auto job = Job::open(solo_bootstrap(), job_options);
  ASSERT_TRUE(job.ok());
  const auto rpc = Rpc::open(**job, options(), nullptr);
  ASSERT_TRUE(rpc.ok());
  RpcClient client(rpc->get());
  EXPECT_EQ(client.ask({.to = 0, .method = kWho}).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace swale::net::rpc_test
