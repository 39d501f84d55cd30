// Opening a job as a large one does it, with a few ranks: nothing that all ranks give is kept, and peers are
// looked up when they are met.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "net/job/agree.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/testing/bootstrap_test_util.h"

namespace swale::net::job_opening_test {
namespace {

using testing::HasSubstr;

const bool fabrics_are_here = (register_fabric(tls_fabric()), register_fabric(ucx_fabric()), true);

class JobOpening : public testing::Test {
 protected:
  JobOpening() {
    char path[] = "/tmp/swale_opening_XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~JobOpening() override { std::filesystem::remove_all(folder_); }

  using Make = std::function<std::unique_ptr<Bootstrap>(Rank rank)>;
  // Over a communicator whose allgathers bring `bytes_max` at most.
  Make over_communicator(int32_t size, size_t bytes_max) {
    return [this, bytes_max, group = std::make_shared<LocalGroup>(size)](Rank rank) {
      CommCallbacks mine = callbacks(rank, group);
      mine.bytes_max = bytes_max;
      mine.folders = {folder_};
      mine.allgather = [this, inner = mine.allgather, rank](const void* send, void* receive, size_t bytes) {
        if (rank == 0) ++calls_;
        return inner(send, receive, bytes);
      };
      return callback_bootstrap(mine);
    };
  }
  Make by_rendezvous(int32_t size, int32_t collect_above) {
    return [this, size, collect_above](Rank rank) {
      RendezvousOptions mine;
      mine.directory = folder_;
      mine.job_id = "job";
      mine.node_id = fmt::format("node{}", rank / 2);
      mine.rank = rank;
      mine.size = size;
      mine.collect_above = collect_above;
      mine.leave_wait = seconds(60);
      auto made = rendezvous_bootstrap(mine);
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      return made.ok() ? *std::move(made) : nullptr;
    };
  }

  // Opens the job on each of its ranks, two to a node; the statuses.
  std::vector<Status> open(
      int32_t size, const Make& bootstrap, const std::function<JobOptions(Rank)>& options,
      const std::function<void(Job*)>& body = [](Job*) {}) {
    std::vector<Status> statuses(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto job = Job::open(bootstrap(rank), options(rank));
        statuses[static_cast<size_t>(rank)] = job.status();
        if (job.ok()) body(job->get());
      });
    }
    for (std::thread& each : threads) each.join();
    return statuses;
  }

  static JobOptions two_to_a_node(Rank rank) {
    JobOptions options;
    options.node = fmt::format("node {}", rank / 2);
    return options;
  }

  std::string folder_;
  std::atomic<int> calls_{0};  // of rank 0's communicator
};

// Each rank talks to each: the addresses are found, whatever way they came.
TEST_F(JobOpening, RanksOfAJobReachEachOther) {
  ASSERT_TRUE(fabrics_are_here);
  constexpr int32_t kSize = 5;
  class Listener final : public ChannelEvents {
   public:
    void on_frame(Rank, const FrameHeader&, Bytes payload) override {
      const std::lock_guard lock(mutex);
      heard += payload;
      changed.notify_all();
    }
    void on_sent(uint64_t) override {}
    void on_down(Rank, const Status& why) override { ADD_FAILURE() << why.to_string(); }
    Nanos on_progress(Nanos now) override { return now + seconds(3600); }
    void on_failure(const Status& why) override { ADD_FAILURE() << why.to_string(); }
    std::mutex mutex;
    std::condition_variable changed;
    std::string heard;
  };
  const auto talk = [](Job* job) {
    EXPECT_EQ(job->ranks_on_fullest_node(), 2);
    EXPECT_EQ(job->nodes()->nodes(), 3);
    EXPECT_EQ(job->nodes()->seat(4).node, 2);
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    for (Rank to = 0; to < kSize; ++to) {
      if (to == job->rank()) continue;
      FrameHeader header;
      header.channel = channel;
      header.secret = job->secret();
      header.kind = FrameKind::kControl;
      static_cast<void>(job->post(channel, {to, header.encode("x"), "x", kNoCookie}));
    }
    {
      std::unique_lock lock(listener.mutex);
      EXPECT_TRUE(listener.changed.wait_for(lock, std::chrono::seconds(60),
                                            [&] { return listener.heard.size() == size_t{kSize - 1}; }));
    }
    ASSERT_TRUE(job->allgather("").ok());
    job->close_channel(channel);
    const Status closed = job->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  };
  for (const Make& bootstrap : {over_communicator(kSize, kMiB), over_communicator(kSize, 40),
                                by_rendezvous(kSize, 1'024), by_rendezvous(kSize, 0)}) {
    for (const Status& each : open(kSize, bootstrap, two_to_a_node, talk))
      EXPECT_TRUE(each.ok()) << each.to_string();
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
}

// Two rounds of lengths and gifts: as many calls as before there were large jobs.
TEST_F(JobOpening, TakesFourCallsOfTheCommunicatorInASmallJob) {
  const auto close = [](Job* job) { EXPECT_TRUE(job->close().ok()); };
  for (const Status& each : open(4, over_communicator(4, kMiB), two_to_a_node, close))
    EXPECT_TRUE(each.ok()) << each.to_string();
  EXPECT_EQ(calls_.load(), 4);
}

TEST_F(JobOpening, RanksThatGiveDifferentOptionsAreNamedWithThem) {
  const auto options = [](Rank rank) {
    JobOptions mine;
    mine.transport = "loopback";
    if (rank >= 2) mine.route = RouteChoice::kDirect;
    return mine;
  };
  for (const Make& bootstrap :
       {over_communicator(4, kMiB), over_communicator(4, 40), by_rendezvous(4, 1'024), by_rendezvous(4, 0)}) {
    for (const Status& each : open(4, bootstrap, options)) {
      EXPECT_EQ(each.code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(each.message()),
                  HasSubstr("rank 2 was opened with transport \"loopback\" and net.route=direct, rank 0 with "
                            "transport \"loopback\" and net.route=auto"));
    }
  }
}

// Before there is a job.
TEST_F(JobOpening, RanksAgreeOnTheLowestFailure) {
  for (const Make& bootstrap : {over_communicator(4, kMiB), over_communicator(4, 40), by_rendezvous(4, 0)}) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        const auto mine = bootstrap(rank);
        EXPECT_TRUE(agree(*mine, {}).ok());
        const Status told =
            agree(*mine, rank < 2 ? Status() : invalid_argument("rank {} does not want to", rank));
        EXPECT_EQ(told.code(), Code::kInvalidArgument);
        EXPECT_EQ(told.message(), "rank 2: rank 2 does not want to");
      });
    }
    for (std::thread& each : threads) each.join();
  }
}

}  // namespace
}  // namespace swale::net::job_opening_test
