// A store that ranks, threads of this process, have open: for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/fault_device.h"
#include "meta/store/store.h"
#include "net/meeting/bootstrap.h"

namespace swale::meta::store_test {

struct RankOf {
  net::Job& job;
  Store& store;
  std::unique_ptr<Client> client;
};

inline StoreOptions small_ranges(RingMode ring = RingMode::kRing) {
  StoreOptions options;
  options.servers_per_node = 64;  // every rank of this host has a server
  options.range_bytes = 4096;
  options.ring = ring;
  options.deadline = seconds(20);
  return options;
}

inline void run_ranks(int32_t size, io::Device& device, const StoreOptions& options,
                      const std::function<void(RankOf&)>& body) {
  net::JobOptions job_options;
  job_options.transport = "loopback";
  job_options.posting = "direct";
  const auto group = std::make_shared<net::LocalGroup>(size);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto job =
          net::Job::open(size == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank), job_options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      auto store = Store::open(**job, device, "store", options);
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      RankOf mine{**job, **store, (*store)->client()};
      body(mine);
      mine.client.reset();
      const Status closed = (*store)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Writes to paths with this part find no space, until device->clear().
inline void find_no_space(io::FaultDevice* device, const std::string& path_part = "") {
  device->inject({.kind = io::CallKind::kWrite,
                  .path_part = path_part,
                  .from_then_on = true,
                  .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device")});
}

inline void barrier(RankOf& rank) { ASSERT_TRUE(rank.job.allgather("").ok()); }

}  // namespace swale::meta::store_test
