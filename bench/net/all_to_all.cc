// bench_all_to_all RANKS FRAMES POSTING [QUIET_SECONDS [FABRIC [PLACES]]]: processes of this machine send
// each other frames under credits, one application thread each, and then stay quiet for a while. Prints what
// moved, its CPU time, and the CPU time of a quiet rank. Settings by UCX's variables.
//   FABRIC  node (the default): by what one node has; ucx, tls, clear: as ranks of so many nodes, by UCX as
//           it is on a network that is trusted, by TLS, by the same without TLS
//   PLACES  rank r runs in the network namespace /run/netns/PLACESr
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "net/job/job.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::net {
namespace {

constexpr uint16_t kWindow = 4;
constexpr size_t kFrameBytes = 32 * kKiB;

Nanos cpu_time(const rusage& usage) {
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000'000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1'000;
}

Nanos own_cpu_time() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return cpu_time(usage);
}

// Pages that several processes have are shared out among them.
int64_t shared_kilobytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (int64_t value = 0; word == "Pss_Shmem:" && file >> value) return value;
  }
  return 0;
}

// What one rank measured, in memory that all share.
struct Outcome {
  Nanos wall;
  Nanos cpu;
  Nanos quiet_cpu;
  int64_t shared_kilobytes;
  int64_t switches;
};

class Traffic : public ChannelEvents {
 public:
  Traffic(Job* job, uint64_t frames)
      : job_(job),
        frames_(frames),

        memory_(static_cast<size_t>(job->size()) * kWindow * kFrameBytes, 'x'),
        free_(static_cast<size_t>(job->size())) {
    for (size_t i = 0; i < free_.size() * kWindow; ++i) free_[i / kWindow].push_back(i);
    channel_ = job->open_channel(this).value();
    const std::lock_guard lock(mutex_);
    router_ =
        std::make_unique<Router>(Router::Params{job->rank(), job->size(), channel_, job->secret(), kWindow});
  }
  ~Traffic() override { job_->close_channel(channel_); }

  void run() {
    for (uint64_t i = 0; i < frames_; ++i) {
      for (Rank step = 1; step < job_->size(); ++step) send((job_->rank() + step) % job_->size());
    }
    std::unique_lock lock(mutex_);
    router_->flush_credits();
    lock.unlock();
    job_->wake();
    lock.lock();
    changed_.wait(lock, [&] {
      return received_ == frames_ * static_cast<uint64_t>(job_->size() - 1) && router_->idle() && lent_ == 0;
    });
  }

 private:
  void on_frame(Rank from, const FrameHeader& header, Bytes) override {
    const std::lock_guard lock(mutex_);
    if (!router_->on_frame(from, header).ok()) std::abort();
    if (header.kind != FrameKind::kData) return;
    router_->consumed(from);
    if (++received_ == frames_ * static_cast<uint64_t>(job_->size() - 1)) {
      router_->flush_credits();
      changed_.notify_all();
    }
  }
  void on_sent(uint64_t cookie) override {
    const std::lock_guard lock(mutex_);
    give_back(cookie);
  }
  void on_down(Rank, const Status& why) override { on_failure(why); }
  void on_failure(const Status& why) override {
    std::fprintf(stderr, "%s\n", why.to_string().c_str());
    std::abort();
  }
  Nanos on_progress(Nanos) override {
    post_ready();
    return kForever;
  }

  void send(Rank to) {
    {
      std::unique_lock lock(mutex_);
      std::vector<size_t>& free = free_[static_cast<size_t>(to)];
      changed_.wait(lock, [&] { return !free.empty(); });
      router_->submit(to, FrameKind::kData, {&memory_[free.back() * kFrameBytes], kFrameBytes}, free.back());
      free.pop_back();
      ++lent_;
    }
    if (job_->posts_directly()) {
      post_ready();
    } else {
      job_->wake();
    }
  }
  void post_ready() {
    const std::lock_guard order(order_mutex_);
    std::unique_lock lock(mutex_);
    while (const std::optional<Post> post = router_ ? router_->next_post() : std::nullopt) {
      lock.unlock();
      const bool free = job_->post(channel_, *post);
      lock.lock();
      if (free && post->cookie != kNoCookie) give_back(post->cookie);
    }
  }
  void give_back(uint64_t cookie) {
    free_[cookie / kWindow].push_back(cookie);
    --lent_;
    changed_.notify_all();
  }

  Job* const job_;
  const uint64_t frames_;
  std::string memory_;
  uint32_t channel_ = 0;
  std::mutex order_mutex_;  // before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Router> router_;
  std::vector<std::vector<size_t>> free_;
  uint64_t received_ = 0;
  uint64_t lent_ = 0;
};

struct Way {
  std::string posting;
  std::string fabric = "node";
  std::string places;
};

// Before the process has a thread.
Status enter_place(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) return errno_status(errno, path);
  ::close(fd);
  return {};
}

JobOptions options_of(const Way& way, Rank rank) {
  JobOptions options;
  options.posting = way.posting;
  if (way.fabric == "node") return options;
  options.transport = way.fabric == "ucx" ? "ucx" : "tls";
  options.in_clear = way.fabric == "clear";
  options.trusts_network = true;
  options.node = fmt::format("host-{}", rank);
  return options;
}

Status run_rank(RendezvousOptions meeting, const Way& way, uint64_t frames, double quiet_s,
                Outcome* outcome) {
  if (!way.places.empty())
    SWALE_RETURN_IF_ERROR(enter_place(fmt::format("/run/netns/{}{}", way.places, meeting.rank)));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<Bootstrap> bootstrap, rendezvous_bootstrap(meeting));
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<Job> job,
                         Job::open(std::move(bootstrap), options_of(way, meeting.rank)));
  {
    Traffic warm_up(job.get(), 8);
    warm_up.run();
    SWALE_RETURN_IF_ERROR(job->allgather("warm").status());
    Traffic traffic(job.get(), frames);
    SWALE_RETURN_IF_ERROR(job->allgather("open").status());
    const Nanos start = system_clock().now();
    const Nanos cpu = own_cpu_time();
    traffic.run();
    outcome->wall = system_clock().now() - start;
    outcome->cpu = own_cpu_time() - cpu;
    SWALE_RETURN_IF_ERROR(job->allgather("done").status());
    outcome->shared_kilobytes = shared_kilobytes();
    ::usleep(100'000);
    const Nanos quiet = own_cpu_time();
    ::usleep(static_cast<useconds_t>(quiet_s * 1e6));
    outcome->quiet_cpu = own_cpu_time() - quiet;
    rusage usage;
    ::getrusage(RUSAGE_SELF, &usage);
    outcome->switches = usage.ru_nvcsw;
    SWALE_RETURN_IF_ERROR(job->allgather("quiet").status());
  }
  return job->close();
}

int run(int32_t ranks, uint64_t frames, const Way& way, double quiet_s) {
  char directory[] = "/tmp/swale_bench_XXXXXX";
  RendezvousOptions meeting;
  meeting.directory = ::mkdtemp(directory);
  meeting.job_id = "bench";
  meeting.node_id = this_node_id();
  meeting.size = ranks;
  meeting.leave_wait = milliseconds(200);
  auto* outcomes = static_cast<Outcome*>(::mmap(nullptr, static_cast<size_t>(ranks) * sizeof(Outcome),
                                                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (meeting.rank = 0; meeting.rank < ranks; ++meeting.rank) {
    if (::fork() != 0) continue;
    const Status status = run_rank(meeting, way, frames, quiet_s, &outcomes[meeting.rank]);
    if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", meeting.rank, status.to_string().c_str());
    std::_Exit(status.ok() ? 0 : 1);
  }
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good &= status == 0;
  ::rmdir(directory);
  if (!good) return 1;
  Outcome sum{};
  for (int32_t rank = 0; rank < ranks; ++rank) {
    sum.wall = std::max(sum.wall, outcomes[rank].wall);
    sum.cpu += outcomes[rank].cpu;
    sum.quiet_cpu += outcomes[rank].quiet_cpu;
    sum.shared_kilobytes += outcomes[rank].shared_kilobytes;
    sum.switches += outcomes[rank].switches;
  }
  const double bytes = static_cast<double>(ranks) * (ranks - 1) * static_cast<double>(frames * kFrameBytes);
  std::printf(
      "%2d ranks, %-6s: %5.0f MB/s, %.3f CPU s/GB, %.2f switches a frame; quiet %.3f %% of a core and "
      "%.1f MB shared a rank\n",
      ranks, way.posting.c_str(), bytes / 1e6 / to_seconds(sum.wall), to_seconds(sum.cpu) / bytes * 1e9,
      static_cast<double>(sum.switches) / (bytes / static_cast<double>(kFrameBytes)),
      100.0 * static_cast<double>(sum.quiet_cpu) / ranks / (quiet_s * 1e9),
      static_cast<double>(sum.shared_kilobytes) / ranks / 1024);
  return 0;
}

}  // namespace
}  // namespace swale::net

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: bench_all_to_all RANKS FRAMES queue|direct|auto [QUIET_SECONDS [node|ucx|tls|clear "
                 "[PLACES]]]\n");
    return 2;
  }
  swale::net::register_fabric(swale::net::tls_fabric());
  swale::net::register_fabric(swale::net::ucx_fabric());
  const double quiet_s = argc > 4 ? std::atof(argv[4]) : 3;
  const swale::net::Way way{argv[3], argc > 5 ? argv[5] : "node", argc > 6 ? argv[6] : ""};
  return swale::net::run(std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10), way, quiet_s);
}
