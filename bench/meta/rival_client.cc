// A rival's index behind the same server loop as Swale's: requests between ranks (net::Rpc), of the same
// encoding, to a service whose thread takes all requests that wait. Puts that wait together share one write
// batch and one sync.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "bench/meta/client_store.h"
#include "bench/meta/index_store.h"
#include "bench/writer_job.h"
#include "meta/server/messages.h"
#include "net/rpc/rpc.h"

namespace swale::bench {
namespace {

class RivalService final : public net::RpcService {
 public:
  explicit RivalService(std::unique_ptr<IndexStore> store) : store_(std::move(store)) {}

  void start(net::Rpc* rpc) {
    rpc_ = rpc;
    thread_ = std::thread([this] { serve(); });
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  void on_requests(std::span<net::RpcRequest> requests) override {
    const std::lock_guard lock(mutex_);
    for (net::RpcRequest& each : requests) queue_.push_back(std::move(each));
    work_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::deque<net::RpcRequest> taken;
      taken.swap(queue_);
      lock.unlock();
      answer(taken);
      lock.lock();
    }
  }

  void answer(std::deque<net::RpcRequest>& requests) {
    bool any_put = false;
    for (const net::RpcRequest& each : requests) {
      if (static_cast<meta::Method>(each.method) != meta::Method::kPut) continue;
      store_->put(take(meta::decode_put(each.payload)).items.extents);
      any_put = true;
    }
    if (any_put) store_->end_batch();
    get(requests);
    for (const net::RpcRequest& each : requests) {
      if (static_cast<meta::Method>(each.method) == meta::Method::kPut)
        rpc_->reply(each.token, net::RpcPayload(std::string()));
    }
  }

  // All gets that wait together.
  void get(const std::deque<net::RpcRequest>& requests) {
    wanted_.clear();
    std::vector<net::ReplyToken> tokens;
    for (const net::RpcRequest& each : requests) {
      if (static_cast<meta::Method>(each.method) != meta::Method::kGet) continue;
      tokens.push_back(each.token);
      for (const meta::Range& range : take(meta::decode_get(each.payload)).ranges) {
        if (wanted_.size() < tokens.size()) wanted_.emplace_back();
        wanted_.back().push_back({range.offset, range.length, {}});
      }
    }
    if (tokens.empty()) return;
    places_.clear();
    store_->get(wanted_, &places_);
    size_t at = 0;
    for (size_t message = 0; message < tokens.size(); ++message) {
      meta::Found found;
      found.extents = std::move(wanted_[message]);
      for (meta::Extent& each : found.extents) {
        each.place = places_[at++];
        found.ends.push_back(found.ends.size() + 1);
      }
      found.answered = found.ends.size();
      rpc_->reply(tokens[message], net::RpcPayload(meta::encode_found(found)));
    }
  }

  const std::unique_ptr<IndexStore> store_;
  net::Rpc* rpc_ = nullptr;
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<net::RpcRequest> queue_;
  bool stop_ = false;
  std::thread thread_;
  std::vector<std::vector<meta::Extent>> wanted_;
  std::vector<meta::Place> places_;
};

class RivalClient final : public ClientStore {
 public:
  explicit RivalClient(std::unique_ptr<IndexStore> store) : store_(std::move(store)) {}

  void open(int rank, int ranks, const std::string& path) override {
    job_ = open_job(ranks);
    if (rank == 0) {
      store_->open(path, false);
      service_ = std::make_unique<RivalService>(std::move(store_));
    }
    net::RpcOptions options;
    options.methods = meta::method_names();
    rpc_ = bench::take(net::Rpc::open(*job_, options, service_.get()));
    if (service_) service_->start(rpc_.get());
    client_ = std::make_unique<net::RpcClient>(rpc_.get());
    check(job_->allgather("").status());
  }

  void put(std::span<const meta::Extent> message) override {
    meta::DetectedBatch batch;
    batch.extents.assign(message.begin(), message.end());
    ask(meta::Method::kPut, meta::encode_put(0, kBenchFile, {1, ++number_}, batch), 4096);
  }

  void get(std::span<const meta::Extent> message, std::span<meta::Place> out) override {
    ranges_.resize(message.size());
    for (size_t i = 0; i < message.size(); ++i) ranges_[i] = {message[i].offset, message[i].length};
    const std::string response =
        ask(meta::Method::kGet, meta::encode_get(0, kBenchFile, meta::kPiecesMax, ranges_),
            meta::kResponseBytesMax);
    const meta::Found found = bench::take(meta::decode_found(response, message.size()));
    if (found.extents.size() != out.size()) die("WRONG ANSWER: not one segment each");
    for (size_t i = 0; i < out.size(); ++i) out[i] = found.extents[i].place;
  }

  void close() override {
    client_.reset();
    check(job_->allgather("").status());
    if (service_) service_->stop();
    check(rpc_->close());
    rpc_.reset();
    check(job_->close());
  }

 private:
  std::string ask(meta::Method method, std::string payload, uint32_t response_bytes_max) {
    return bench::take(client_->ask({.to = 0,
                                     .method = static_cast<net::RpcMethod>(method),
                                     .payload = std::move(payload),
                                     .response_bytes_max = response_bytes_max,
                                     .deadline = system_clock().now() + seconds(300)}));
  }

  std::unique_ptr<IndexStore> store_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<RivalService> service_;
  std::unique_ptr<net::Rpc> rpc_;
  std::unique_ptr<net::RpcClient> client_;
  uint64_t number_ = 0;
  std::vector<meta::ByteRange> ranges_;
};

}  // namespace

std::unique_ptr<ClientStore> make_rival_client(const std::string& store_name) {
  std::unique_ptr<IndexStore> store = make_rival_index(store_name);
  return store ? std::make_unique<RivalClient>(std::move(store)) : nullptr;
}

}  // namespace swale::bench
