// Jobs of real processes over UCX, or TLS, and a rendezvous directory: this program starts itself once per
// rank. Ranks exchange 32 KB frames all-to-all under credits, with checksums; some are killed or stopped in
// the middle.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/process_identity.h"
#include "base/testing/test_shared_memory.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

extern char** environ;

namespace swale::net::net_process_test {
namespace {

constexpr size_t kFrameBytes = 32 * kKiB;
constexpr size_t kBuffersPerPeer = 4;
constexpr std::chrono::seconds kPatience{120};

// ---- one rank
// -----------------------------------------------------------------------------------------------------

struct RankArguments {
  Rank rank = 0;
  int32_t size = 1;
  std::string directory;
  std::string job_id;
  uint64_t frames_per_peer = 0;  // 0: without end, until a peer is down
  Rank victim = -1;
  double silence_s = 10;
  std::string transport = "auto";
};

// Asks a rank to stop itself where it holds no half-filled element of a peer's shared-memory queue, which
// would make that peer deaf (docs/design/transport.md).
constexpr int kStopSignal = SIGUSR1;
std::atomic<int> stop_wanted{0};  // by a signal handler, read by all threads

class Exchange : public ChannelEvents {
 public:
  Exchange(Job* job, uint64_t goal)
      : job_(job),
        goal_(goal),
        next_(static_cast<size_t>(job->size())),
        filled_(static_cast<size_t>(job->size())) {}

  void start() {
    // Not under our mutex: the progress thread holds the job's lock when it takes ours.
    const uint32_t channel = job_->open_channel(this).value();
    const std::lock_guard lock(mutex_);
    channel_ = channel;
    router_.emplace(Router::Params{job_->rank(), job_->size(), channel, job_->secret(), kBuffersPerPeer});
    for (const auto& [from, header] : waiting_) accept(from, header);
    for (Rank to = 0; to < job_->size(); ++to) {
      for (size_t i = 0; to != job_->rank() && i < kBuffersPerPeer; ++i) {
        fill(static_cast<size_t>(to) * kBuffersPerPeer + i);
      }
    }
    pump();
  }
  void stop() { job_->close_channel(channel_); }

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }
  bool complete() const { return received_ == goal_ * static_cast<uint64_t>(job_->size() - 1) && out_ == 0; }
  uint64_t received() const { return received_; }
  const std::map<Rank, Status>& downs() const { return downs_; }
  std::string mistake() {
    const std::lock_guard lock(mutex_);
    return mistake_;
  }

 private:
  void on_frame(Rank from, const FrameHeader& header, Bytes payload) override {
    const std::lock_guard lock(mutex_);
    if (stop_wanted != 0) ::raise(SIGSTOP);  // this thread stops before it returns
    if (header.kind == FrameKind::kData) {
      const uint64_t number = next_[static_cast<size_t>(from)]++;
      if (hash_bytes(payload) != hash_bytes(contents(from, job_->rank(), number))) {
        mistake_ = fmt::format("frame {} from rank {} is not what was sent ({} bytes)", number, from,
                               payload.size());
      }
    }
    if (router_) {
      accept(from, header);
      pump();
    } else {
      waiting_.emplace_back(from, header);
    }
  }
  void accept(Rank from, const FrameHeader& header) {
    if (const Status status = router_->on_frame(from, header); !status.ok()) mistake_ = status.to_string();
    if (header.kind != FrameKind::kData) return;
    ++received_;
    router_->consumed(from);
    changed_.notify_all();
  }
  void on_sent(uint64_t cookie) override {
    const std::lock_guard lock(mutex_);
    sent(cookie);
    pump();
  }
  void sent(uint64_t cookie) {
    --out_;
    if (downs_.count(static_cast<Rank>(cookie / kBuffersPerPeer)) == 0) fill(cookie);
    changed_.notify_all();
  }
  void on_down(Rank peer, const Status& why) override {
    const std::lock_guard lock(mutex_);
    downs_.emplace(peer, why);
    std::vector<uint64_t> dropped;
    if (router_) router_->on_down(peer, &dropped);
    out_ -= dropped.size();
    changed_.notify_all();
  }
  Nanos on_progress(Nanos) override { return kForever; }
  void on_failure(const Status& why) override {
    const std::lock_guard lock(mutex_);
    mistake_ = why.to_string();
    changed_.notify_all();
  }

  static std::string contents(Rank from, Rank to, uint64_t number) {
    std::string out(kFrameBytes, static_cast<char>(number));
    const std::string label = fmt::format("{}>{}:{}", from, to, number);
    return out.replace(0, label.size(), label);
  }
  void fill(size_t buffer) {
    const auto to = static_cast<Rank>(buffer / kBuffersPerPeer);
    uint64_t& number = filled_[static_cast<size_t>(to)];
    if (goal_ != 0 && number == goal_) return;
    buffers_[buffer] = contents(job_->rank(), to, number++);
    ++out_;
    router_->submit(to, FrameKind::kData, buffers_[buffer], buffer);
  }
  void pump() {
    while (const auto post = router_->next_post()) {
      if (job_->post(channel_, *post) && post->cookie != kNoCookie) sent(post->cookie);
    }
  }

  Job* const job_;
  const uint64_t goal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t channel_ = 0;
  std::optional<Router> router_;
  std::vector<std::pair<Rank, FrameHeader>> waiting_;  // frames before the Router was there
  std::vector<uint64_t> next_;
  std::vector<uint64_t> filled_;
  std::map<size_t, std::string> buffers_;
  uint64_t received_ = 0;
  uint64_t out_ = 0;
  std::map<Rank, Status> downs_;
  std::string mistake_;
};

int complain(const RankArguments& arguments, std::string_view what) {
  fmt::print(stderr, "rank {}: {}\n", arguments.rank, what);
  return 1;
}

int run_rank(const RankArguments& arguments) {
  ::signal(kStopSignal, [](int) { stop_wanted = 1; });
  RendezvousOptions meeting;
  meeting.directory = arguments.directory;
  meeting.job_id = arguments.job_id;
  meeting.node_id = this_node_id();
  meeting.rank = arguments.rank;
  meeting.size = arguments.size;
  meeting.leave_wait = milliseconds(200);
  auto bootstrap = rendezvous_bootstrap(meeting);
  if (!bootstrap.ok()) return complain(arguments, bootstrap.status().to_string());
  JobOptions options;
  options.transport = arguments.transport;
  options.heartbeat_interval = milliseconds(200);
  options.silence_deadline = seconds(arguments.silence_s);
  if (arguments.victim >= 0) options.close_deadline = seconds(5);
  auto opened = Job::open(*std::move(bootstrap), options);
  if (!opened.ok()) return complain(arguments, opened.status().to_string());
  const std::unique_ptr<Job> job = *std::move(opened);
  Exchange exchange(job.get(), arguments.frames_per_peer);
  const Nanos start = system_clock().now();
  exchange.start();
  if (arguments.frames_per_peer != 0) {
    if (!exchange.wait([&] { return exchange.complete() || !exchange.downs().empty(); }))
      return complain(arguments, "hangs");
    if (!exchange.complete()) return complain(arguments, exchange.downs().begin()->second.to_string());
    if (const auto all = job->allgather("done"); !all.ok())
      return complain(arguments, all.status().to_string());
    if (arguments.rank == 0) {
      const double bytes = static_cast<double>(exchange.received()) * kFrameBytes * arguments.size;
      fmt::print("{} ranks: {:.0f} MB/s in all (contents made and checked)\n", arguments.size,
                 bytes / 1e6 / to_seconds(system_clock().now() - start));
    }
  } else {
    if (!exchange.wait([&] { return exchange.received() > 100; }))
      return complain(arguments, "never got going");
    fmt::print("r");  // ready
    std::fflush(stdout);
    if (!exchange.wait([&] { return !exchange.downs().empty(); }))
      return complain(arguments, "nobody is down");
    for (const auto& [peer, why] : exchange.downs()) {
      if (peer != arguments.victim)
        return complain(arguments, fmt::format("{} is down: {}", peer, why.to_string()));
      const std::string expected = fmt::format("rank {} (host {})", arguments.victim, host_name());
      if (why.message().find(expected) == std::string_view::npos) return complain(arguments, why.to_string());
    }
  }
  exchange.stop();
  const Status status = job->close();
  // A rank killed while it wrote into a peer's shared-memory queue blocks that queue for good
  // (docs/design/transport.md): then the parting of the others takes until its deadline.
  const bool excused =
      arguments.victim >= 0 && arguments.transport != "tls" && status.code() == Code::kDeadlineExceeded;
  if (!status.ok() && !excused) return complain(arguments, status.to_string());
  if (excused) fmt::print("rank {} left at the deadline\n", arguments.rank);
  if (!exchange.mistake().empty()) return complain(arguments, exchange.mistake());
  return 0;
}

// ---- the launcher
// -------------------------------------------------------------------------------------------------

struct Child {
  pid_t pid = -1;
  int output = -1;
};

const testing::Environment* const own_shared_memory =
    testing::AddGlobalTestEnvironment(new test::OwnSharedMemory);

// By shared memory (auto) and by TLS.
class NetProcesses : public testing::TestWithParam<const char*> {
 protected:
  NetProcesses() {
    char path[] = "/tmp/swale_net_XXXXXX";
    directory_ = ::mkdtemp(path);
  }
  ~NetProcesses() override {
    for (const Child& each : children_) {
      if (each.pid > 0) ::kill(each.pid, SIGKILL);
      if (each.pid > 0) ::waitpid(each.pid, nullptr, 0);
    }
    // A killed job leaves its files to the next job of the same id; a test has no next.
    const std::string command = "rm -rf '" + directory_ + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  void launch(RankArguments arguments) {
    arguments.directory = directory_;
    arguments.job_id = "test";
    arguments.transport = GetParam();
    for (arguments.rank = 0; arguments.rank < arguments.size; ++arguments.rank) {
      std::vector<std::string> words = {"/proc/self/exe",
                                        "--rank",
                                        std::to_string(arguments.rank),
                                        std::to_string(arguments.size),
                                        arguments.directory,
                                        arguments.job_id,
                                        std::to_string(arguments.frames_per_peer),
                                        std::to_string(arguments.victim),
                                        std::to_string(arguments.silence_s),
                                        arguments.transport};
      std::vector<char*> argv;
      for (std::string& each : words) argv.push_back(each.data());
      argv.push_back(nullptr);
      int pipe_ends[2];
      ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
      Child child;
      ASSERT_EQ(::posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
      posix_spawn_file_actions_destroy(&actions);
      ::close(pipe_ends[1]);
      child.output = pipe_ends[0];
      children_.push_back(child);
    }
  }
  void wait_until_ready() {
    for (const Child& each : children_) {
      char byte = 0;
      ASSERT_EQ(::read(each.output, &byte, 1), 1) << "a rank ended early";
      ASSERT_EQ(byte, 'r');
      test::note_shared_memory_of(each.pid);
    }
  }
  // Ends when all but `victim` have ended: each rank gives up by itself after kPatience.
  void expect_success_of_all_but(Rank victim) {
    for (size_t i = 0; i < children_.size(); ++i) {
      if (static_cast<Rank>(i) == victim) continue;
      char text[256];
      ssize_t count;
      while ((count = ::read(children_[i].output, text, sizeof(text))) > 0) {
        test::note_shared_memory_of(children_[i].pid);  // it speaks before it closes
        fmt::print("{}", std::string_view(text, static_cast<size_t>(count)));
      }
      int status = 0;
      ASSERT_EQ(::waitpid(children_[i].pid, &status, 0), children_[i].pid);
      children_[i].pid = -1;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << i << " ended with " << status;
    }
  }
  void expect_empty_directory() {
    EXPECT_EQ(::rmdir(directory_.c_str()), 0) << strerror(errno) << ": files were left in " << directory_;
    ::mkdir(directory_.c_str(), 0700);
  }

  std::string directory_;
  std::vector<Child> children_;
  const std::set<std::string> shared_memory_before_ = test::shared_memory_left();
};

TEST_P(NetProcesses, TwoRanksExchangeEverything) {
  RankArguments arguments;
  arguments.size = 2;
  arguments.frames_per_peer = 2000;
  launch(arguments);
  expect_success_of_all_but(-1);
  expect_empty_directory();
  EXPECT_EQ(test::shared_memory_left(), shared_memory_before_);
}

TEST_P(NetProcesses, FourRanksExchangeEverything) {
  RankArguments arguments;
  arguments.size = 4;
  arguments.frames_per_peer = 1000;
  launch(arguments);
  expect_success_of_all_but(-1);
  expect_empty_directory();
  EXPECT_EQ(test::shared_memory_left(), shared_memory_before_);
}

TEST_P(NetProcesses, SixteenRanksExchangeEverything) {
  RankArguments arguments;
  arguments.size = 16;
  arguments.frames_per_peer = 100;
  launch(arguments);
  expect_success_of_all_but(-1);
  expect_empty_directory();
  EXPECT_EQ(test::shared_memory_left(), shared_memory_before_);
}

TEST_P(NetProcesses, AKilledRankIsReportedByNameToAllAndTheyCloseCleanly) {
  RankArguments arguments;
  arguments.size = 4;
  arguments.victim = 2;
  arguments.silence_s = 60;  // the fabric's own detection is what finds it
  launch(arguments);
  ASSERT_NO_FATAL_FAILURE(wait_until_ready());
  ASSERT_EQ(::kill(children_[2].pid, SIGKILL), 0);
  // As a launcher would: UCX looks for the process in /proc, where a zombie still stands.
  ASSERT_EQ(::waitpid(children_[2].pid, nullptr, 0), children_[2].pid);
  children_[2].pid = -1;
  expect_success_of_all_but(2);
  EXPECT_EQ(test::shared_memory_left(), shared_memory_before_);
}

TEST_P(NetProcesses, AStoppedRankIsReportedByNameToAllAndTheyCloseCleanly) {
  RankArguments arguments;
  arguments.size = 4;
  arguments.victim = 1;
  arguments.silence_s = 6;  // longer than a busy machine keeps a living rank waiting
  launch(arguments);
  ASSERT_NO_FATAL_FAILURE(wait_until_ready());
  ASSERT_EQ(::kill(children_[1].pid, kStopSignal), 0);
  expect_success_of_all_but(1);
  ASSERT_EQ(::kill(children_[1].pid, SIGKILL), 0);
  ASSERT_EQ(::waitpid(children_[1].pid, nullptr, 0), children_[1].pid);
  children_[1].pid = -1;
  EXPECT_EQ(test::shared_memory_left(), shared_memory_before_);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, NetProcesses, testing::Values("auto", "tls"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace swale::net::net_process_test

int main(int argc, char** argv) {
  swale::net::register_fabric(swale::net::tls_fabric());
  swale::net::register_fabric(swale::net::ucx_fabric());
  if (argc == 10 && std::strcmp(argv[1], "--rank") == 0) {
    swale::net::net_process_test::RankArguments arguments;
    arguments.rank = std::atoi(argv[2]);
    arguments.size = std::atoi(argv[3]);
    arguments.directory = argv[4];
    arguments.job_id = argv[5];
    arguments.frames_per_peer = std::strtoull(argv[6], nullptr, 10);
    arguments.victim = std::atoi(argv[7]);
    arguments.silence_s = std::atof(argv[8]);
    arguments.transport = argv[9];
    return swale::net::net_process_test::run_rank(arguments);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
