#include "iond/iond_service.h"

#include <cassert>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace swale::iond {

IondService::IondService(const net::Job& job, std::unique_ptr<IondFiles> files, uint32_t threads, Nanos watch)
    : job_(job), files_(std::move(files)), thread_count_(threads), watch_(watch) {
  threads_.reserve(threads);
}

IondService::~IondService() { stop(); }

Status IondService::start(net::Rpc* rpc, uint64_t reserved_bytes) {
  assert(rpc_ == nullptr && rpc != nullptr && threads_.empty());
  rpc_ = rpc;
  reserved_bytes_ = reserved_bytes;
  for (uint32_t i = 0; i < thread_count_; ++i) {
    std::thread thread;
    SWALE_RETURN_IF_ERROR(start_thread(&thread, "a thread that answers I/O requests", [this] { work(); }));
    threads_.push_back(std::move(thread));
  }
  return {};
}

void IondService::on_requests(std::span<net::RpcRequest> requests) {
  const MutexLock lock(mutex_);
  const Status kept = contain([&]() REQUIRES(mutex_) {
    for (net::RpcRequest& each : requests) {
      if (!left_.contains(each.from)) clients_.insert(each.from);
      queue_.push_back(std::move(each));
      work_.notify_one();
    }
  });
  if (!kept.ok()) log_error("I/O server: requests are dropped: {}", kept.message());
}

IondLoad IondService::load() const {
  const size_t open_files = files_->open_files();
  const MutexLock lock(mutex_);
  return {rpc_->rank(), clients_.size(), open_files, queue_.size(), job_.refused_frames(), reserved_bytes_};
}

void IondService::work() {
  for (;;) {
    net::RpcRequest request;
    {
      const MutexLock lock(mutex_);
      work_.wait(lock, [this]() REQUIRES(mutex_) { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      request = std::move(queue_.front());
      queue_.pop_front();
    }
    bool replied = false;
    const IondFiles::Reply reply = [&](Result<std::string> answer) {
      assert(!replied);  // a second answer would be another request's
      replied = true;
      // Rpc carries no errno, which a mount has to give.
      if (answer.status().error_number() != 0) answer = encode_iond_failure(answer.status());
      answer.ok() ? rpc_->reply(request.token, net::RpcPayload(*std::move(answer)))
                  : rpc_->reply(request.token, answer.status());
    };
    const Status contained = contain([&] { answer(request, reply); });
    if (!replied) reply(contained);
  }
}

void IondService::answer(const net::RpcRequest& request, const IondFiles::Reply& reply) {
  const auto method = static_cast<IondMethod>(request.method);
  if (method == IondMethod::kLeave) {
    files_->drop(request.from);
    const MutexLock lock(mutex_);
    left_.insert(request.from);
    clients_.erase(request.from);
    left_changed_.notify_all();
  }
  if (method == IondMethod::kStats) {
    std::string message;
    iond_counters(files_->store(), load()).append_to(&message);
    return reply(encode_iond_answer({.data = message}));
  }
  if (method != IondMethod::kOpen) return files_->serve(method, request.payload, request.from, reply);
  auto opened = files_->answer(method, request.payload, request.from);
  if (opened.status().code() == Code::kResourceExhausted) {
    // Clients that have died may have left files open.
    std::set<net::Rank> all;
    for (net::Rank rank = 0; rank < rpc_->size(); ++rank)
      if (rank != request.from) all.insert(rank);
    look_for_dead(std::move(all));
    opened = files_->answer(method, request.payload, request.from);
  }
  reply(std::move(opened));
}

// Asks the ranks whether they live, and closes the files of those that do not.
void IondService::look_for_dead(std::set<net::Rank> asked) {
  assert(rpc_ != nullptr);
  asked.erase(rpc_->rank());
  net::RpcClient client(rpc_);
  const Nanos until = system_clock().now() + watch_;
  size_t open = 0;
  for (const net::Rank rank : asked)
    open +=
        client.call({.to = rank, .method = static_cast<net::RpcMethod>(IondMethod::kPing), .deadline = until})
            .ok();
  std::vector<net::RpcCompletion> done;
  while (open > 0) {
    done.clear();
    open -= client.wait(&done);
    for (const net::RpcCompletion& each : done) {
      // Who answers that it knows no such request lives, too; who is late may.
      if (each.response.ok() || each.response.status().code() != Code::kUnavailable) continue;
      log_warn("I/O server: {}", each.response.status().message());
      files_->drop(each.from);
      const MutexLock lock(mutex_);
      gone_.insert(each.from);
      clients_.erase(each.from);
      left_changed_.notify_all();
    }
  }
}

Result<std::vector<net::Rank>> IondService::wait_until_left() {
  for (;;) {
    std::set<net::Rank> missing;
    {
      const MutexLock lock(mutex_);
      const auto all_left = [this]() REQUIRES(mutex_) {
        size_t ranks = left_.size();
        for (const net::Rank rank : gone_) ranks += !left_.contains(rank);
        return ranks == static_cast<size_t>(rpc_->size());
      };
      if (left_changed_.wait_for(lock, watch_, all_left)) {
        std::vector<net::Rank> dead;
        for (const net::Rank rank : gone_)
          if (!left_.contains(rank)) dead.push_back(rank);
        return dead;
      }
      for (net::Rank rank = 0; rank < rpc_->size(); ++rank)
        if (!left_.contains(rank) && !gone_.contains(rank)) missing.insert(rank);
    }
    SWALE_RETURN_IF_ERROR(rpc_->failure());  // each question would end with it, and tell nothing of its rank
    look_for_dead(std::move(missing));
  }
}

void IondService::stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace swale::iond
