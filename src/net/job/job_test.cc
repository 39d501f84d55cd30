#include "net/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/testing/test_threads.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"

namespace swale::net::job_test {
namespace {

using testing::HasSubstr;

class Listener : public ChannelEvents {
 public:
  void on_frame(Rank from, const FrameHeader& header, Bytes payload) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(open);
    frames.push_back(fmt::format("{}/{}:{}", from, header.channel, payload));
    changed.notify_all();
  }
  void on_sent(uint64_t cookie) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(open);
    sent.push_back(cookie);
    changed.notify_all();
  }
  void on_down(Rank peer, const Status& why) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(downs.emplace(peer, why).second) << "down twice";
    changed.notify_all();
  }
  Nanos on_progress(Nanos now) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(open);
    ++calls;
    changed.notify_all();
    return now + seconds(3600);
  }
  void on_failure(const Status& why) override {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(failure.ok()) << "failed twice";
    failure = why;
    changed.notify_all();
  }
  bool wait_for(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), condition);
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  std::vector<std::string> frames;
  std::vector<uint64_t> sent;
  std::map<Rank, Status> downs;
  Status failure;
  size_t calls = 0;
};

Post post_to(const Job& job, Rank to, uint32_t channel, Bytes payload, uint64_t cookie) {
  FrameHeader header;
  header.channel = channel;
  header.secret = job.secret();
  header.kind = FrameKind::kControl;
  return {to, header.encode(payload), payload, cookie};
}

// Posts; a payload that is free at once counts as sent.
void post(Job* job, Listener* listener, uint32_t channel, const Post& what) {
  if (job->post(channel, what) && what.cookie != kNoCookie) listener->on_sent(what.cookie);
}

const bool fabrics_are_here = (register_fabric(tls_fabric()), register_fabric(ucx_fabric()), true);

JobOptions loopback(const char* posting = "queue") {
  JobOptions options;
  options.transport = "loopback";
  options.posting = posting;
  return options;
}

// Each rank with its own options.
void as_different_ranks(const std::vector<JobOptions>& options, const std::function<void(Job*)>& body) {
  auto group = std::make_shared<LocalGroup>(static_cast<int32_t>(options.size()));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < group->size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto job = Job::open(local_bootstrap(group, rank), options[static_cast<size_t>(rank)]);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      body(job->get());
    });
  }
  for (auto& each : threads) each.join();
}

void as_ranks(int32_t size, const JobOptions& options, const std::function<void(Job*)>& body) {
  as_different_ranks(std::vector<JobOptions>(static_cast<size_t>(size), options), body);
}

TEST(Job, OfOneRankNeedsNoTransportAndNoThread) {
  const size_t before = test::threads_of_this_process();  // one of the test before may be among them still
  auto job = Job::open(solo_bootstrap(), {});
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  Listener listener;
  const uint32_t channel = (*job)->open_channel(&listener).value();
  (*job)->wake();
  EXPECT_LE(test::threads_of_this_process(), before);
  EXPECT_EQ((*job)->size(), 1);
  EXPECT_THAT(*(*job)->allgather("x"), testing::ElementsAre("x"));
  (*job)->close_channel(channel);
  EXPECT_TRUE((*job)->close().ok());
}

TEST(Job, CountsTheRanksOfTheFullestNode) {
  struct Row {
    std::vector<const char*> nodes;  // of each rank
    int32_t fullest;
  };
  const Row rows[] = {{{"a", "a", "b", "b"}, 2}, {{"a", "b", "c", "d"}, 1}, {{"a", "b", "a", "b", "a"}, 3},
                      {{"a", "a", "a", "a"}, 4}, {{"a", "b", "b"}, 2},      {{"", "", ""}, 3}};
  for (const Row& row : rows) {
    const auto size = static_cast<int32_t>(row.nodes.size());
    auto group = std::make_shared<LocalGroup>(size);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        JobOptions options = loopback();
        options.node = row.nodes[static_cast<size_t>(rank)];
        auto job = Job::open(local_bootstrap(group, rank), options);
        ASSERT_TRUE(job.ok()) << job.status().to_string();
        EXPECT_EQ((*job)->ranks_on_fullest_node(), row.fullest);
      });
    }
    for (auto& each : threads) each.join();
  }
  EXPECT_EQ((*Job::open(solo_bootstrap(), {}))->ranks_on_fullest_node(), 1);
}

class JobOfEitherPosting : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Job, JobOfEitherPosting, testing::Values("queue", "direct"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(JobOfEitherPosting, KeepsFramesAndCookiesOfChannelsApart) {
  std::mutex mutex;
  std::vector<uint64_t> secrets;
  as_ranks(3, loopback(GetParam()), [&](Job* job) {
    Listener listeners[2];
    uint32_t channels[2];
    for (size_t i = 0; i < 2; ++i) channels[i] = job->open_channel(&listeners[i]).value();
    EXPECT_EQ(channels[1], channels[0] + 1);
    for (Rank to = 0; to < 3; ++to) {
      if (to == job->rank()) continue;
      for (uint64_t i = 0; i < 2; ++i)
        post(job, &listeners[i], channels[i], post_to(*job, to, channels[i], i == 0 ? "a" : "b", 40 + i));
      post(job, &listeners[0], channels[0], post_to(*job, to, channels[0], "quiet", kNoCookie));
    }
    EXPECT_TRUE(listeners[0].wait_for(
        [&] { return listeners[0].frames.size() == 4 && listeners[0].sent.size() == 2; }));
    EXPECT_TRUE(listeners[1].wait_for(
        [&] { return listeners[1].frames.size() == 2 && listeners[1].sent.size() == 2; }));
    EXPECT_THAT(listeners[0].sent, testing::Each(40));
    EXPECT_THAT(listeners[1].sent, testing::Each(41));
    EXPECT_THAT(listeners[1].frames, testing::Each(HasSubstr(fmt::format("/{}:b", channels[1]))));
    ASSERT_TRUE(job->allgather("").ok());
    for (size_t i = 0; i < 2; ++i) job->close_channel(channels[i]);
    EXPECT_TRUE(job->close().ok());
    const std::lock_guard lock(mutex);
    secrets.push_back(job->secret());
  });
  ASSERT_EQ(secrets.size(), 3u);
  EXPECT_THAT(secrets, testing::Each(secrets[0]));
  EXPECT_NE(secrets[0], 0u);
}

// A number is not used again, what belongs to it is: more channels than 16 bits can name, one after the
// other.
TEST(Job, OpensMoreChannelsInItsLifeThanAreEverOpenAtOnce) {
  as_ranks(2, loopback(), [&](Job* job) {
    Listener listener;
    for (int i = 0; i < 70'000; ++i) job->close_channel(job->open_channel(&listener).value());
    const uint32_t channel = job->open_channel(&listener).value();
    EXPECT_EQ(channel, 70'001u);
    ASSERT_TRUE(job->allgather("").ok());
    constexpr uint64_t kCookie = 0xfffffffe;
    post(job, &listener, channel, post_to(*job, 1 - job->rank(), channel, "late", kCookie));
    EXPECT_TRUE(listener.wait_for([&] { return listener.frames.size() == 1 && listener.sent.size() == 1; }));
    EXPECT_THAT(listener.sent, testing::ElementsAre(kCookie));
    ASSERT_TRUE(job->allgather("").ok());
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, FramesForAChannelNotYetOpenWaitForItInOrder) {
  as_ranks(2, loopback(), [&](Job* job) {
    Listener first;
    Listener second;
    const uint32_t one = job->open_channel(&first).value();
    if (job->rank() == 0) {
      const uint32_t two = job->open_channel(&second).value();
      for (uint64_t i = 0; i < 50; ++i)
        post(job, &second, two, post_to(*job, 1, two, std::to_string(i), kNoCookie));
      post(job, &first, one, post_to(*job, 1, one, "after them", kNoCookie));
    } else {
      EXPECT_TRUE(first.wait_for([&] { return first.frames.size() == 1; }))
          << "so all the others have come too";
      const uint32_t two = job->open_channel(&second).value();
      EXPECT_TRUE(second.wait_for([&] { return second.frames.size() == 50; }));
      for (size_t i = 0; i < second.frames.size(); ++i)
        EXPECT_EQ(second.frames[i], fmt::format("0/{}:{}", two, i));
    }
    ASSERT_TRUE(job->allgather("").ok());
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, AfterCloseChannelNoEventComes) {
  as_ranks(2, loopback(), [&](Job* job) {
    for (int i = 0; i < 50; ++i) {
      Listener listener;
      const uint32_t channel = job->open_channel(&listener).value();
      for (uint64_t k = 0; k < 20; ++k)
        post(job, &listener, channel, post_to(*job, 1 - job->rank(), channel, "static", k));
      job->wake();
      job->close_channel(channel);
      const std::lock_guard lock(listener.mutex);
      listener.open = false;  // an event from here on fails, or is a use after free that sanitizers see
    }
    ASSERT_TRUE(job->allgather("").ok());
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, APeerThatLeavesEarlyHangsNobodyAndBlamesTheLate) {
  JobOptions hasty = loopback();
  hasty.close_deadline = milliseconds(200);
  LocalGroup beside(2);
  as_different_ranks({loopback(), hasty}, [&](Job* job) {
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    post(job, &listener, channel, post_to(*job, 1 - job->rank(), channel, "hello", kNoCookie));
    EXPECT_TRUE(listener.wait_for([&] { return listener.frames.size() == 1; }));
    ASSERT_TRUE(job->allgather("").ok());
    if (job->rank() == 1) {
      // Says goodbye without rank 0: its deadline passes, and it leaves by force.
      EXPECT_EQ(job->close().code(), Code::kDeadlineExceeded);
      EXPECT_EQ(job->allgather("closed").status().code(), Code::kAborted);
      ASSERT_TRUE(beside.allgather(1, "gone").ok());
      return;
    }
    ASSERT_TRUE(beside.allgather(0, "").ok());
    EXPECT_THAT(std::string(job->allgather("anybody?").status().message()),
                HasSubstr("rank 1 has left the job"));
    // Rank 1 has left; posting to it and closing must not hang.
    Listener late;
    const uint32_t later = job->open_channel(&late).value();
    post(job, &late, later, post_to(*job, 1, later, "anybody?", 1));
    EXPECT_TRUE(late.wait_for([&] { return late.sent.size() == 1; }));
    EXPECT_TRUE(job->close().ok()) << "it has heard its goodbye";
  });
}

// As the news of a failure, which goes to ranks that never met: one that has left hears nothing of it.
TEST(Job, APeerThatLeftBeforeItHeardAnythingIsNotWaitedFor) {
  JobOptions hasty = loopback();
  hasty.close_deadline = milliseconds(200);
  LocalGroup beside(2);
  as_different_ranks({loopback(), hasty}, [&](Job* job) {
    if (job->rank() == 0) {
      EXPECT_TRUE(job->close().ok());
      ASSERT_TRUE(beside.allgather(0, "left").ok());
      return;
    }
    ASSERT_TRUE(beside.allgather(1, "").ok());
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    post(job, &listener, channel, post_to(*job, 0, channel, "I have failed", kNoCookie));
    job->close_channel(channel);
    const Status closed = job->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  });
}

TEST(Job, IdleRanksKeepEachOtherAlive) {
  JobOptions options = loopback();
  options.heartbeat_interval = milliseconds(10);
  options.silence_deadline = seconds(2);  // longer than a busy machine keeps one of the threads waiting
  as_ranks(3, options, [&](Job* job) {
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    for (Rank to = 0; to < 3; ++to) {
      if (to != job->rank()) post(job, &listener, channel, post_to(*job, to, channel, "hello", kNoCookie));
    }
    EXPECT_TRUE(listener.wait_for([&] { return listener.frames.size() == 2; }));
    const size_t calls = listener.calls;
    // Three deadlines' worth of heartbeat ticks, in which this thread only computes.
    EXPECT_TRUE(listener.wait_for([&] { return listener.calls >= calls + 2'400; }));
    EXPECT_TRUE(listener.downs.empty());
    ASSERT_TRUE(job->allgather("").ok());
    job->close_channel(channel);
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, OpeningFailsOnAllRanksIfOptionsDiffer) {
  auto group = std::make_shared<LocalGroup>(2);
  Status statuses[2];
  std::thread other([&] {
    JobOptions ucx;
    ucx.transport = "ucx";
    statuses[1] = Job::open(local_bootstrap(group, 1), ucx).status();
  });
  statuses[0] = Job::open(local_bootstrap(group, 0), loopback()).status();
  other.join();
  for (const Status& each : statuses) EXPECT_EQ(each.code(), Code::kInvalidArgument) << each.to_string();
  EXPECT_THAT(std::string(Job::open(local_bootstrap(std::make_shared<LocalGroup>(1), 0), loopback("pigeon"))
                              .status()
                              .message()),
              HasSubstr("net.posting"));
  JobOptions impatient;
  impatient.silence_deadline = impatient.heartbeat_interval;
  EXPECT_THAT(std::string(Job::open(solo_bootstrap(), impatient).status().message()),
              HasSubstr("net.silence_deadline_s"));
}

// What the ranks of a job tell each other in a collective call.
TEST_P(JobOfEitherPosting, AllgatherGivesEverybodyEverythingInRankOrder) {
  for (const int32_t size : {2, 9, 20}) {
    as_ranks(size, loopback(GetParam()), [&](Job* job) {
      for (int round = 0; round < 20; ++round) {
        const auto mine = [&](Rank rank) { return std::string(static_cast<size_t>(rank * round), 'a'); };
        const auto all = job->allgather(mine(job->rank()));
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        ASSERT_EQ(all->size(), static_cast<size_t>(size));
        for (Rank rank = 0; rank < size; ++rank) EXPECT_EQ((*all)[static_cast<size_t>(rank)], mine(rank));
      }
      EXPECT_TRUE(job->close().ok());
    });
  }
}

TEST(Job, AllgatherOfARankThatNeverComesNamesIt) {
  JobOptions options = loopback();
  options.collective_deadline = seconds(2);  // in which rank 1 must come, on a busy machine, too
  LocalGroup beside(3);
  as_ranks(3, options, [&](Job* job) {
    if (job->rank() != 2) {
      const Status late = job->allgather("here").status();
      EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
      if (job->rank() == 0) {
        EXPECT_THAT(std::string(late.message()), HasSubstr("for rank 2, which lives"));
      }
    }
    ASSERT_TRUE(beside.allgather(job->rank(), "").ok());
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, AllgatherThatIsTooLongFailsOnAllRanks) {
  LocalGroup beside(2);
  as_ranks(2, loopback(), [&](Job* job) {
    const Status status =
        job->allgather(std::string(job->rank() == 1 ? Bootstrap::kBytesMax + 1 : 1, 'x')).status();
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
    ASSERT_TRUE(beside.allgather(job->rank(), "").ok());
    EXPECT_TRUE(job->close().ok());
  });
}

TEST(Job, LongAllgathersPassUcx) {
  ASSERT_TRUE(fabrics_are_here);
  as_ranks(4, {}, [&](Job* job) {
    const std::string mine(Bootstrap::kBytesMax - static_cast<size_t>(job->rank()), 'x');
    const auto all = job->allgather(mine);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ((*all)[rank].size(), Bootstrap::kBytesMax - rank);
    EXPECT_TRUE(job->close().ok());
  });
}

// Only rank 0 has the job's secret wrong: its frames are dropped, as those of another job would be.
TEST(Job, FramesWithAForeignSecretAreDropped) {
  as_ranks(2, loopback(), [&](Job* job) {
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    if (job->rank() == 0) {
      FrameHeader foreign;
      foreign.channel = channel;
      foreign.secret = job->secret() ^ 1;
      foreign.kind = FrameKind::kControl;
      post(job, &listener, channel, {1, foreign.encode("forged"), "forged", kNoCookie});
      for (const FrameKind kind : {FrameKind::kGoodbye, FrameKind::kExchange}) {
        foreign.kind = kind;
        post(job, &listener, channel, {1, foreign.encode("forged"), "forged", kNoCookie});
      }
      post(job, &listener, channel, post_to(*job, 1, channel, "ours", kNoCookie));
    } else {
      EXPECT_TRUE(listener.wait_for([&] { return !listener.frames.empty(); }));
      EXPECT_THAT(listener.frames, testing::ElementsAre(fmt::format("0/{}:ours", channel)));
    }
    ASSERT_TRUE(job->allgather("").ok());
    job->close_channel(channel);
    EXPECT_TRUE(job->close().ok());
  });
}

// One bit of a control frame is wrong when it comes: the receiver gives the job up, and both ranks hear why.
void damage_a_frame(const JobOptions& options, size_t bit) {
  as_ranks(2, options, [&](Job* job) {
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    const std::string payload = "END";
    if (job->rank() == 0) {
      Post damaged = post_to(*job, 1, channel, payload, kNoCookie);
      std::string altered = payload;
      const size_t byte = bit / 8;
      char& changed =
          byte < damaged.header.size() ? damaged.header[byte] : altered[byte - damaged.header.size()];
      changed = static_cast<char>(changed ^ (1 << bit % 8));
      damaged.payload = altered;
      damaged.cookie = 9;
      post(job, &listener, channel, damaged);
      EXPECT_TRUE(listener.wait_for([&] { return listener.sent.size() == 1; }));
    } else {
      EXPECT_TRUE(listener.wait_for([&] { return !listener.failure.ok(); }));
      EXPECT_EQ(listener.failure.code(), Code::kCorruption);
      EXPECT_THAT(std::string(listener.failure.message()),
                  testing::AllOf(testing::HasSubstr("from rank 0"), testing::HasSubstr("damaged")));
      EXPECT_TRUE(listener.frames.empty());
    }
    const Status told = job->allgather("").status();
    EXPECT_THAT(std::string(told.message()), testing::HasSubstr("damaged")) << told.to_string();
    job->close_channel(channel);
    static_cast<void>(job->close());
  });
}

TEST(Job, ADamagedFrameGivesTheJobUpAndNamesItsSender) {
  JobOptions over_ucx;
  over_ucx.silence_deadline = seconds(20);
  over_ucx.heartbeat_interval = milliseconds(100);
  JobOptions options = loopback();
  options.silence_deadline = over_ucx.silence_deadline;
  options.heartbeat_interval = over_ucx.heartbeat_interval;
  const size_t header_bits = 8 * FrameHeader::kBytes;
  // Not in the magic and the secret: a frame without these is a stranger's.
  for (const size_t bit :
       {size_t{33}, size_t{40}, size_t{130}, size_t{180}, header_bits - 1, header_bits + 5}) {
    damage_a_frame(options, bit);
  }
  ASSERT_TRUE(fabrics_are_here);
  damage_a_frame(over_ucx, header_bits + 1);
}

TEST_P(JobOfEitherPosting, GoesOverUcxInOneProcess) {
  ASSERT_TRUE(fabrics_are_here);
  JobOptions options;
  options.posting = GetParam();
  as_ranks(2, options, [&](Job* job) {
    Listener listener;
    const uint32_t channel = job->open_channel(&listener).value();
    post(job, &listener, channel, post_to(*job, 1 - job->rank(), channel, "over UCX", 5));
    EXPECT_TRUE(listener.wait_for([&] { return listener.frames.size() == 1 && listener.sent.size() == 1; }));
    ASSERT_TRUE(job->allgather("").ok());
    job->close_channel(channel);
    EXPECT_EQ(job->posts_directly(), std::string_view(GetParam()) == "direct");
    const Status status = job->close();
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

TEST(JobMeeting, RanksPollUnlessTheirNodeHasFewerProcessors) {
  const auto processors = static_cast<int32_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const int32_t size : {processors, processors + 1}) {
    const auto group = std::make_shared<LocalGroup>(size);
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto bootstrap = local_bootstrap(group, rank);
        const auto met = meet(*bootstrap, JobOptions());
        ASSERT_TRUE(met.ok()) << met.status().to_string();
        EXPECT_EQ(met->poll, size > processors ? 0 : JobOptions().poll);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace swale::net::job_test
