// A job whose ranks are threads of the test process: an in-process allgather and the loopback transport.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "net/bootstrap.h"
#include "net/job.h"

namespace swale::imd {

class ThreadComm {
 public:
  explicit ThreadComm(int32_t size) : size_(size) {}

  net::CommCallbacks callbacks(net::Rank rank) {
    return {rank, size_, [this, rank](const void* send, void* receive, size_t bytes) {
              std::unique_lock lock(mutex_);
              if (arrived_ == 0) gathering_.assign(static_cast<size_t>(size_) * bytes, '\0');
              std::memcpy(gathering_.data() + static_cast<size_t>(rank) * bytes, send, bytes);
              const uint64_t round = round_;
              if (++arrived_ == size_) {
                gathered_ = gathering_;
                arrived_ = 0;
                ++round_;
                all_here_.notify_all();
              } else {
                all_here_.wait(lock, [&] { return round_ != round; });
              }
              std::memcpy(receive, gathered_.data(), gathered_.size());
              // The next round overwrites gathered_ only when every rank has come again, so has copied this one.
              return 0;
            }};
  }

 private:
  const int32_t size_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int32_t arrived_ = 0;
  uint64_t round_ = 0;
  std::string gathering_;
  std::string gathered_;
};

// Runs `body(job)` on `size` threads, each a rank of one job, and returns when all have closed it.
inline void run_ranks(int32_t size, const std::function<void(net::Job&)>& body,
                      net::JobOptions options = {}) {
  if (options.transport == "auto" && size > 1) options.transport = "loopback";
  ThreadComm comm(size);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto bootstrap = size == 1 ? net::solo_bootstrap() : net::callback_bootstrap(comm.callbacks(rank));
      Result<std::unique_ptr<net::Job>> job = net::Job::open(std::move(bootstrap), options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      body(**job);
      const Status closed = (*job)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace swale::imd
