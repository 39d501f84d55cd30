// A job whose ranks are threads of the test process, over the loopback transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::imd {

// Runs `body(job)` on `size` threads, each a rank of one job, and returns when all have closed it. Not 0: the
// job's records go by three hops, and each so many ranks are a node.
inline void run_ranks(int32_t size, const std::function<void(net::Job&)>& body, const char* posting = "auto",
                      int32_t ranks_per_node = 0) {
  net::JobOptions options;
  options.posting = posting;
  options.transport = "loopback";
  const auto group = std::make_shared<net::LocalGroup>(size);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto bootstrap = size == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank);
      net::JobOptions own = options;
      if (ranks_per_node != 0) {
        own.route = net::RouteChoice::kThreeHop;
        own.node = std::to_string(rank / ranks_per_node);
      }
      Result<std::unique_ptr<net::Job>> job = net::Job::open(std::move(bootstrap), own);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      body(**job);
      const Status closed = (*job)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace swale::imd
