// bench_rpc: two ranks of this machine; one asks, the other answers with the same bytes. Fabrics by UCX_TLS.
//   --with rpc|bare|bare_poll|calibration   net::Rpc; UCX alone, sleeping or polling (rpc_bare.h); the
//                                           machine's mood
//   --size N     bytes of a request, and of its answer
//   --depth N    requests in flight
//   --seconds S  hundredths of a second that are measured
//   --transport ucx|tls|clear   of net::Rpc: UCX; TLS; the same connections without TLS
//   --service inline|thread   who answers in net::Rpc: the event itself, or a thread that it wakes
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include <string>
#include <thread>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/net/rpc_bare.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "net/rpc/rpc.h"

namespace swale::bench {
namespace {

constexpr const char* kWith[] = {"rpc", "bare", "bare_poll", "calibration"};
constexpr const char* kService[] = {"inline", "thread"};
constexpr const char* kTransport[] = {"ucx", "tls", "clear"};
constexpr double kWarmUpS = 0.02;

struct Work {
  size_t size = 64;
  size_t depth = 1;
  double seconds = 0.3;
  bool service_thread = false;
  size_t transport = 0;  // in kTransport
};

// What the asking rank measured; in memory that both share.
struct Outcome {
  uint64_t calls;
  double wall_s;
  double cpu_s[2];
  double us_p50, us_p99, us_min;
  uint32_t address_bytes[2];
  char addresses[2][4096];
};

// Asks until the time is over, `depth` at a time: `ask` sends one request, `wait` returns the number of
// answers.
template <class Ask, class Wait>
void measure(const Work& work, Outcome* outcome, const Ask& ask, const Wait& wait) {
  std::vector<double> us;
  us.reserve(1 << 20);
  const auto run = [&](double seconds, bool keep) {
    const double begin = now_s();
    size_t open = 0;
    uint64_t calls = 0;
    for (double now = begin; now - begin < seconds || open > 0;) {
      for (; open < work.depth && now - begin < seconds; ++open) ask();
      const size_t answered = wait();
      const double then = std::exchange(now, now_s());
      if (keep && work.depth == 1 && us.size() < us.capacity()) us.push_back((now - then) * 1e6);
      open -= answered;
      calls += answered;
    }
    if (keep) outcome->wall_s = now_s() - begin;
    return calls;
  };
  run(kWarmUpS, false);
  outcome->calls = run(work.seconds, true);
  if (us.empty()) return;
  outcome->us_min = *std::min_element(us.begin(), us.end());
  outcome->us_p50 = percentile(us, 0.5);
  outcome->us_p99 = percentile(us, 0.99);
}

void expect_same(const std::string& answer, const std::string& payload) {
  if (answer != payload) die("a wrong answer");
}

// ---- net::Rpc

class Echo final : public net::RpcService {
 public:
  explicit Echo(bool thread) {
    if (thread) thread_ = std::thread([this] { work(); });
  }
  ~Echo() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void on_requests(std::span<net::RpcRequest> requests) override {
    if (!thread_.joinable()) {
      for (net::RpcRequest& each : requests) answer(std::move(each));
      return;
    }
    const std::lock_guard lock(mutex_);
    for (net::RpcRequest& each : requests) queue_.push_back(std::move(each));
    changed_.notify_one();
  }
  net::Rpc* rpc = nullptr;

 private:
  void answer(net::RpcRequest request) {
    rpc->reply(request.token, net::RpcPayload(std::move(request.payload)));
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::vector<net::RpcRequest> taken = std::exchange(queue_, {});
      lock.unlock();
      for (net::RpcRequest& each : taken) answer(std::move(each));
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<net::RpcRequest> queue_;
  bool stop_ = false;
  std::thread thread_;
};

void run_rpc(int rank, const Work& work, Outcome* outcome, RankBarrier& barrier) {
  net::JobOptions of_job;
  of_job.transport = work.transport == 0 ? "ucx" : "tls";
  of_job.in_clear = work.transport == 2;
  of_job.listens_on_one_node = true;  // both ranks are on this node, and UCX_TLS is to be believed
  const auto job = open_job(2, of_job);
  {
    Echo echo(work.service_thread);
    net::RpcOptions options;
    options.methods = {"echo"};
    const auto rpc = take(net::Rpc::open(*job, options, &echo));
    echo.rpc = rpc.get();
    barrier.wait();
    const Cpu before = cpu_of(RUSAGE_SELF);
    if (rank == 0) {
      net::RpcClient client(rpc.get());
      const auto payload = std::make_shared<const std::string>(work.size, 'x');
      std::vector<net::RpcCompletion> done;
      measure(
          work, outcome,
          [&] {
            net::RpcCall call{.to = 1, .payload = payload};
            call.response_bytes_max = static_cast<uint32_t>(work.size);
            take(client.call(std::move(call), net::RpcClient::Leave::kWithNext));
          },
          [&] {
            done.clear();
            client.wait(&done);
            for (const auto& each : done) {
              check(each.response.status());
              expect_same(*each.response, *payload);
            }
            return done.size();
          });
    }
    const Status closed = rpc->close();
    outcome->cpu_s[rank] = (cpu_of(RUSAGE_SELF) - before).total_s();
    check(closed);
  }
  check(job->close());
}

// ---- UCX alone

void run_bare(int rank, BareWait wait, const Work& work, Outcome* outcome, RankBarrier& barrier) {
  BareRpc bare(wait);
  const std::string mine = bare.address();
  mine.copy(outcome->addresses[rank], sizeof(outcome->addresses[rank]));
  outcome->address_bytes[rank] = static_cast<uint32_t>(mine.size());
  barrier.wait();
  bare.connect({outcome->addresses[1 - rank], outcome->address_bytes[1 - rank]});
  const Cpu before = cpu_of(RUSAGE_SELF);
  if (rank == 0) {
    bare.begin(work.depth);
    const std::string payload(work.size, 'x');
    measure(
        work, outcome, [&] { bare.ask(payload); },
        [&] {
          size_t count = 0;
          bare.wait([&](const std::string& answer) {
            expect_same(answer, payload);
            ++count;
          });
          return count;
        });
    bare.stop();
  } else {
    bare.serve();
  }
  outcome->cpu_s[rank] = (cpu_of(RUSAGE_SELF) - before).total_s();
  barrier.wait();
}

// ---- the machine's mood: a fixed copy and a fixed exchange between two processes

void run_calibration(int rank, Outcome* outcome, RankBarrier& barrier, const std::array<int, 4>& pipes) {
  constexpr int kExchanges = 5'000;
  char byte = 0;
  barrier.wait();
  const double begin = now_s();
  for (int i = 0; i < kExchanges; ++i) {
    if (rank == 0 && (::write(pipes[1], &byte, 1) != 1 || ::read(pipes[2], &byte, 1) != 1)) die("pipe");
    if (rank == 1 && (::read(pipes[0], &byte, 1) != 1 || ::write(pipes[3], &byte, 1) != 1)) die("pipe");
  }
  if (rank != 0) return;
  outcome->us_p50 = (now_s() - begin) / kExchanges * 1e6;
  std::vector<char> memory(32 << 20, 'x');
  const double copies = now_s();
  for (int i = 0; i < 8; ++i)
    std::memcpy(memory.data(), memory.data() + memory.size() / 2, memory.size() / 2);
  outcome->wall_s = 8 * 16e6 * 1.048576 / (now_s() - copies);
}

int run(Arguments& arguments) {
  const size_t with = arguments.choice("with", kWith);
  Work work;
  work.size = arguments.number("size", 64);
  work.depth = arguments.number("depth", 1);
  work.seconds = static_cast<double>(arguments.number("seconds", 30)) / 100;
  work.transport = arguments.choice("transport", kTransport);
  work.service_thread = arguments.choice("service", kService) == 1;
  arguments.expect_no_more();
  auto* outcome = static_cast<Outcome*>(
      ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::array<int, 4> pipes{};
  if (::pipe(pipes.data()) != 0 || ::pipe(pipes.data() + 2) != 0) die("pipe");
  if (with == 0) register_network();
  run_ranks(2, [&](int rank, RankReport&, RankBarrier& barrier) {
    if (with == 0) run_rpc(rank, work, outcome, barrier);
    if (with == 1) run_bare(rank, BareWait::kSleep, work, outcome, barrier);
    if (with == 2) run_bare(rank, BareWait::kPoll, work, outcome, barrier);
    if (with == 3) run_calibration(rank, outcome, barrier, pipes);
  });
  if (with == 3) {
    report({{"program", "rpc"},
            {"with", kWith[with]},
            {"pipe_round_trip_us", outcome->us_p50},
            {"copy_bytes_per_s", outcome->wall_s}});
    return 0;
  }
  const auto calls = static_cast<double>(outcome->calls);
  report({{"program", "rpc"},
          {"with", kWith[with]},
          {"service", kService[work.service_thread ? 1 : 0]},
          {"size", work.size},
          {"depth", work.depth},
          {"calls", outcome->calls},
          {"calls_per_s", calls / outcome->wall_s},
          {"us", {{"p50", outcome->us_p50}, {"p99", outcome->us_p99}, {"min", outcome->us_min}}},
          {"cpu_us_per_call", {outcome->cpu_s[0] / calls * 1e6, outcome->cpu_s[1] / calls * 1e6}}});
  return 0;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  swale::bench::Arguments arguments(argc, argv);
  return swale::bench::run(arguments);
}
