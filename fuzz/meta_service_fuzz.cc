// A rank's metadata servers with their threads, among members of the job: Service on Rpc, over a job of three
// ranks that are threads of this process. Rank 1 has the job's key: it sends any request, takes some back,
// and answers as a server of the job what it likes, late or never; it may die. Rank 2 is honest: each of its
// requests is answered in time, and a get finds what was put. Then all part: the service stops while the
// hostile rank's requests are under way.
//
// meta_server_fuzz tries more inputs on the servers without threads; rpc_neighbour_fuzz tries the frames.
// Here the threads, their queues and their calls to each other are the subject, so a schedule does not
// replay. Requests that name the honest client's file are left out: members of a job may change each other's
// files.
//
// Input: records of 1 byte that says what happens, and what that takes (hostile_input.h).
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/hostile_meta.h"
#include "fuzz/target.h"
#include "io/memory_device.h"
#include "meta/server/service.h"
#include "net/fabric/loopback_transport.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::meta_service_fuzz {
namespace {

using namespace swale::meta;
using fuzz::HostileInput;
using fuzz::require;

constexpr net::Rank kServing = 0, kHostile = 1, kHonest = 2;
constexpr int32_t kRanks = 3;
constexpr uint32_t kServers = 3;
constexpr uint32_t kReal = 2;  // both on rank 0; the last one is the hostile rank's
constexpr uint64_t kHonestClient = 0x9c7d41a2e35bf017;
constexpr LogId kHonestLog = 0x5e1f93d7;
constexpr FileId kHonestFile{0x7d3f1ac58e2b9046, 0xb1946ac92492d234};
constexpr size_t kStepsMax = 100;
constexpr size_t kOpenCallsMax = 64;              // of the hostile rank
constexpr Nanos kPatience = seconds(20);          // of the honest client: what is late is lost
constexpr Nanos kUpstreamPatience = seconds(10);  // of the service with the hostile server

// What other servers ask the hostile one: kept until the input says how it is answered.
class HostileServer final : public net::RpcService {
 public:
  void on_requests(std::span<net::RpcRequest> requests) override {
    const std::lock_guard lock(mutex_);
    for (net::RpcRequest& each : requests) asked_.push_back(std::move(each));
  }
  // Answers the oldest one. False: there is none.
  bool answer(net::Rpc* rpc, Result<std::string> how) {
    net::ReplyToken token{};
    {
      const std::lock_guard lock(mutex_);
      if (asked_.empty()) return false;
      token = asked_.front().token;
      asked_.pop_front();
    }
    how.ok() ? rpc->reply(token, net::RpcPayload(*std::move(how))) : rpc->reply(token, how.status());
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<net::RpcRequest> asked_;
};

struct Member {
  std::unique_ptr<net::Job> job;
  std::unique_ptr<net::Rpc> rpc;
};

class Machine {
 public:
  Machine() : service_(make_cores(), {kServing, kServing, kHostile}, kUpstreamPatience) {
    const auto group = std::make_shared<net::LocalGroup>(kRanks);
    net::JobOptions job_options;
    job_options.transport = "loopback";
    job_options.collective_deadline = kPatience;
    net::RpcOptions rpc_options;
    rpc_options.methods = method_names();
    rpc_options.message_bytes_max = 5 * kMiB;
    std::array<net::RpcService*, kRanks> services = {&service_, &hostile_server_, nullptr};
    on_all([&](net::Rank rank) {
      Member& mine = members_[static_cast<size_t>(rank)];
      auto job = net::Job::open(net::local_bootstrap(group, rank), job_options);
      require(job.ok());
      mine.job = *std::move(job);
      auto rpc = net::Rpc::open(*mine.job, rpc_options, services[static_cast<size_t>(rank)]);
      require(rpc.ok());
      mine.rpc = *std::move(rpc);
      if (rank == kServing) require(service_.start(mine.rpc.get()).ok() && service_.resume(kPatience).ok());
      require(mine.job->allgather("").ok());
    });
    hostile_ = std::make_unique<net::RpcClient>(rpc(kHostile));
    honest_ = std::make_unique<net::RpcClient>(rpc(kHonest));
  }

  void step(HostileInput* in) {
    switch (const uint8_t what = in->byte(); what % 8) {
      case 0: {
        const auto method = static_cast<Method>(in->byte() % method_names().size());
        const uint32_t to = in->byte() % (kReal + 1);
        std::string message = std::string(4, '\0') + std::string(in->text());
        put_u32(message.data(), to);
        return say(method, std::move(message), in->number());
      }
      case 1:
      case 2:
      case 3: {
        fuzz::MetaMessage message = fuzz::made_message(in, kReal);
        return say(message.method, std::move(message.bytes), what < 128 ? 4 * kMiB : in->number());
      }
      case 4: {
        const uint8_t how = in->byte();
        const std::string bytes(in->text());
        if (alive_) hostile_server_.answer(rpc(kHostile), fuzz::made_answer(in, how, bytes));
        return;
      }
      case 5:
        return put();
      case 6:
        return get();
      default:
        if (what >= 248) return die();
        return take_back(in->byte());
    }
  }

  // The honest client is served beside what is open, and all part.
  void finish() {
    put();
    get();
    hostile_.reset();  // cancels
    honest_.reset();
    // The service waits for what it has asked, for as long as its patience goes: so the hostile server
    // answers.
    std::atomic<bool> stopped{false};
    std::thread answers([&] {
      while (alive_ && !stopped)
        if (!hostile_server_.answer(rpc(kHostile), std::string())) std::this_thread::yield();
    });
    const Status stop = service_.stop();
    stopped = true;
    answers.join();
    require(stop.ok());
    on_all([&](net::Rank rank) {
      Member& mine = members_[static_cast<size_t>(rank)];
      const bool dead = rank == kHostile && !alive_;  // calls nothing collective any more
      const Status left = dead ? Status() : mine.rpc->close();
      mine.rpc.reset();
      const Status closed = dead ? Status() : mine.job->close();
      if (alive_) require(left.ok() && closed.ok());
      mine.job.reset();
    });
  }

 private:
  static void on_all(const std::function<void(net::Rank)>& act) {
    std::vector<std::thread> threads;
    for (net::Rank rank = 0; rank < kRanks; ++rank) threads.emplace_back(act, rank);
    for (std::thread& each : threads) each.join();
  }
  net::Rpc* rpc(net::Rank rank) { return members_[static_cast<size_t>(rank)].rpc.get(); }

  std::vector<std::unique_ptr<ServerCore>> make_cores() {
    std::vector<std::unique_ptr<ServerCore>> cores;
    for (uint32_t server = 0; server < kReal; ++server) {
      ShardOptions options;
      options.directory = fmt::format("/server{}", server);
      require(disk_.make_directory(options.directory).ok());
      options.shard = server;
      options.write_buffer_entries = 64;
      options.compression_buffer_bytes = 64 * kKiB;
      options.cache_bytes = 64 * kKiB;
      options.log_bytes_max = 64 * kKiB;
      options.expand_blocks_max = 1024;
      auto attributes = std::make_unique<AttributeTable>(server);
      options.table = attributes.get();
      options.table_bytes_min = 4096;
      auto shard = Shard::open(disk_, options);
      require(shard.ok());
      cores.push_back(std::make_unique<ServerCore>(partition_, server, RingMode::kRing, std::move(attributes),
                                                   *std::move(shard)));
      cores.back()->resume();
    }
    return cores;
  }

  // -- The hostile rank.
  void say(Method method, std::string message, uint64_t response_bytes_max) {
    char log[4];
    put_u32(log, kHonestLog);
    if (fuzz::names_secret(message, kHonestFile.high) || fuzz::names_secret(message, kHonestFile.low) ||
        fuzz::names_secret(message, kHonestClient) || message.find(Bytes(log, 4)) != Bytes::npos)
      return;
    if (!alive_) return;
    hear();
    if (open_calls_.size() >= kOpenCallsMax) hostile_->cancel(open_calls_.front()), open_calls_.pop_front();
    const auto called = hostile_->call(
        {.to = kServing,
         .method = static_cast<net::RpcMethod>(method),
         .payload = std::move(message),
         .response_bytes_max = static_cast<uint32_t>(std::min<uint64_t>(response_bytes_max, 4 * kMiB)),
         .deadline = system_clock().now() + kPatience});
    if (called.ok()) open_calls_.push_back(*called);
  }
  void hear() {
    std::vector<net::RpcCompletion> done;
    hostile_->wait(&done, 0);
    for (const net::RpcCompletion& each : done) {
      std::erase(open_calls_, each.id);
      if (each.response.ok()) require(each.response->size() <= 4 * kMiB);
    }
  }
  void take_back(uint8_t which) {
    if (!alive_ || open_calls_.empty()) return;
    const size_t at = which % open_calls_.size();
    hostile_->cancel(open_calls_[at]);
    open_calls_.erase(open_calls_.begin() + static_cast<ptrdiff_t>(at));
  }
  // In the middle of whatever it has begun.
  void die() {
    if (!std::exchange(alive_, false)) return;
    for (uint64_t id = 1;; ++id) {
      const auto fabric = net::LoopbackFabric::find(id);
      if (fabric) return fabric->kill(kHostile);
    }
  }

  // -- The honest client.
  Result<std::string> ask(Method method, std::string message) {
    return honest_->ask({.to = kServing,
                         .method = static_cast<net::RpcMethod>(method),
                         .payload = std::move(message),
                         .response_bytes_max = 64 * kKiB,
                         .deadline = system_clock().now() + kPatience});
  }
  void put() {
    uint64_t number = ++honest_number_;
    while (partition_.server_of(kHonestFile, number % 64 * partition_.range_bytes()) >= kReal)
      number = ++honest_number_;
    const uint64_t range = number % 64;
    const Extent put{range * partition_.range_bytes() + 100, 64, {kHonestLog, number * 64}};
    DetectedBatch batch;
    batch.extents = {put};
    const Server server = partition_.server_of(kHonestFile, put.offset);
    require(ask(Method::kPut, encode_put(server, kHonestFile, {kHonestClient, number}, batch)).ok());
    content_[range] = put;
  }
  void get() {
    for (const auto& [range, put] : content_) {
      const Server server = partition_.server_of(kHonestFile, put.offset);
      const Range all{kHonestFile, range * partition_.range_bytes(), 1000};
      const auto answer = ask(Method::kGet, encode_get(server, {kHonestFile, 100, {all}}));
      require(answer.ok());
      const auto found = decode_found(*answer, 1);
      require(found.ok() && found->answered == 1 && found->extents.size() == 1 && found->extents[0] == put);
    }
  }

  io::MemoryDevice disk_;
  const Partition partition_{kServers, 4096};
  Service service_;
  HostileServer hostile_server_;
  std::array<Member, kRanks> members_;
  std::unique_ptr<net::RpcClient> hostile_;
  std::unique_ptr<net::RpcClient> honest_;
  std::deque<net::CallId> open_calls_;  // of the hostile rank
  std::map<uint64_t, Extent> content_;  // by range: what was acknowledged
  uint64_t honest_number_ = 0;
  bool alive_ = true;  // the hostile rank
};

}  // namespace

SWALE_FUZZ_TARGET(meta_service_fuzz) {
  HostileInput input(fuzz::as_bytes(data, size));
  Machine machine;
  for (size_t steps = 0; !input.empty() && steps < kStepsMax; ++steps) machine.step(&input);
  machine.finish();
  return 0;
}

}  // namespace swale::meta_service_fuzz
