// IondService: the requests of an I/O server on net::Rpc: a queue, and threads that answer them from
// IondFiles, because stores let their callers wait.
//
// Threads: IondOptions::threads of its own; on_requests by any. Errors: a request that cannot be kept, for
// want of memory, is dropped: its deadline tells. Limits: what Rpc lets come.
#pragma once

#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "iond/iond_counters.h"
#include "iond/iond_files.h"
#include "net/job/job.h"
#include "net/rpc/rpc.h"

namespace swale::iond {

class IondService final : public net::RpcService {
 public:
  // watch: how often ranks that have not said goodbye are asked whether they live.
  IondService(const net::Job& job, std::unique_ptr<IondFiles> files, uint32_t threads, Nanos watch);
  ~IondService() override;

  // `reserved_bytes`: of memory, for the requests of this rank. kResourceExhausted if a thread cannot be
  // started.
  Status start(net::Rpc* rpc, uint64_t reserved_bytes);
  void on_requests(std::span<net::RpcRequest> requests) override;
  // Returns when each rank of the job has said goodbye, or is gone: those. A failure: no goodbye can come any
  // more, because the requests between ranks have failed.
  Result<std::vector<net::Rank>> wait_until_left();
  // No request may come any more.
  void stop();
  IondLoad load() const;

 private:
  void work();
  void answer(const net::RpcRequest& request, const IondFiles::Reply& reply);
  void look_for_dead(std::set<net::Rank> asked);

  const net::Job& job_;
  const std::unique_ptr<IondFiles> files_;
  const uint32_t thread_count_;
  const Nanos watch_;
  net::Rpc* rpc_ = nullptr;
  uint64_t reserved_bytes_ = 0;
  std::vector<std::thread> threads_;
  mutable Mutex mutex_;
  CondVar work_;
  CondVar left_changed_;
  std::deque<net::RpcRequest> queue_ GUARDED_BY(mutex_);
  std::set<net::Rank> clients_ GUARDED_BY(mutex_);
  std::set<net::Rank> left_ GUARDED_BY(mutex_);
  std::set<net::Rank> gone_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::iond
