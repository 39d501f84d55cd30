// Service: the metadata servers of one rank, with threads: ServerCores on net::Rpc.
//
// Small requests are handled where they arrive, so an answer from memory costs no change of threads. Large ones, and all
// storage work, are done by the storage thread. Calls to other servers are made at once, or after others if this rank may
// have no more open; a third thread waits for their completions, and sleeps while none is open.
//
// Threads: two of its own; the rest by any thread. Errors: a core that runs out of memory in an event answers nothing more
// and says why (health). Limits: of RpcOptions.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "meta/server/server_core.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

class Service final : public net::RpcService {
 public:
  // `hosts`: the rank of each server. `patience`: how long a call to another server may take.
  Service(std::vector<std::unique_ptr<ServerCore>> cores, std::vector<net::Rank> hosts, Nanos patience);
  ~Service() override;

  // The threads start, and requests that came before are handled.
  void start(net::Rpc* rpc);
  // Finishes half-done changes of an earlier job, or has each server that could not know of what it owes. After all ranks
  // have started, and before any asks.
  Status resume(Nanos deadline);
  // Everything that was accepted is durable; then the threads end. No request may come any more.
  Status stop();

  void on_requests(std::span<net::RpcRequest> requests) override;
  // Runs `act` on each core, locked.
  template <class Act>
  void with_cores(const Act& act) {
    const std::lock_guard lock(mutex_);
    for (const auto& core : cores_) act(*core);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  ServerCore* core_of(Bytes payload);
  void handle(net::RpcRequest& request);
  void flush(Lock& lock);
  Status make(net::RpcClient* upstream, const Call& call);
  void keep_unsent(std::vector<Call>* calls, size_t first);
  void handle_queued();
  void rest(Lock& lock);
  void store();
  void await();
  void fail(const Status& why);

  const std::vector<net::Rank> hosts_;
  const Nanos patience_;
  net::Rpc* rpc_ = nullptr;
  std::mutex mutex_;
  std::condition_variable work_;  // for the storage thread
  std::condition_variable upstream_work_;
  std::condition_variable resumed_;  // something has happened while resume() waits
  // Guarded by mutex_.
  std::shared_ptr<net::RpcClient> upstream_;  // none once stopped
  std::vector<std::unique_ptr<ServerCore>> cores_;
  std::deque<net::RpcRequest> queue_;  // for the storage thread
  size_t open_calls_ = 0;              // of the cores that are not complete, unsent ones too
  std::vector<Call> unsent_;           // for which this rank had no capacity (RpcOptions::calls_max)
  size_t sending_ = 0;                 // threads that make calls now
  bool resuming_ = false;
  uint64_t puts_seen_ = 0;  // of all cores, when rest() looked last
  Nanos quiet_since_ = 0;   // no put has come since
  bool settled_ = true;     // as far as puts have come
  bool trimmed_ = true;     // since the shards settled last
  bool stop_ = false;
  Status failure_;
  std::thread storage_;
  std::thread awaiting_;
};

}  // namespace swale::meta
