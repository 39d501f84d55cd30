// Ranks that make collective calls of different engines are told so at once, by both names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "iond/iond.h"
#include "meta/store/store.h"
#include "net/job/job.h"

namespace swale::capi::engine_calls_test {
namespace {

using testing::HasSubstr;

// One rank with an open metadata store.
struct Rank {
  net::Job& job;
  io::Device& device;
  std::unique_ptr<meta::Store> store;
};

struct CollectiveCall {
  const char* name;
  const char* says;  // in messages
  std::function<Status(Rank&)> make;
};

const std::vector<CollectiveCall>& calls() {
  static const std::vector<CollectiveCall> all = {
      {"dir_open", "opens ",
       [](Rank& rank) {
         imd::WriterOptions options;
         options.memory_bytes = 6 * kMiB;
         return imd::Writer::open(rank.job, rank.device, "/run/x", imd::Writer::Create::kIfMissing, options)
             .status();
       }},
      {"meta_open", "opens the metadata store",
       [](Rank& rank) { return meta::Store::open(rank.job, rank.device, "/run/second", {}).status(); }},
      {"meta_close", "closes the metadata store", [](Rank& rank) { return rank.store->close(); }},
      {"iond_open", "opens the I/O servers",
       [](Rank& rank) { return iond::Iond::open(rank.job, {}, std::nullopt).status(); }},
  };
  return all;
}

// All ranks make the first call, but `odd`, which makes the second one. What each was told.
std::vector<Status> make_calls(int32_t size, const CollectiveCall& usual, const CollectiveCall& other,
                               net::Rank odd) {
  io::MemoryDevice device;
  std::vector<Status> told(static_cast<size_t>(size));
  const auto group = std::make_shared<net::LocalGroup>(size);
  std::vector<std::thread> threads;
  for (net::Rank number = 0; number < size; ++number) {
    threads.emplace_back([&, number] {
      net::JobOptions options;
      options.transport = "loopback";
      auto job = net::Job::open(net::local_bootstrap(group, number), options);
      ASSERT_TRUE(job.ok());
      auto store = meta::Store::open(**job, device, "/run/store", {});
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      Rank rank{**job, device, *std::move(store)};
      told[static_cast<size_t>(number)] = (number == odd ? other : usual).make(rank);
      static_cast<void>(rank.store->close());
      static_cast<void>(rank.job.close());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(EngineCalls, EveryPairThatDiffersIsToldToAllRanksByName) {
  set_log_level(LogLevel::kOff);
  int pairs = 0;
  for (const CollectiveCall& usual : calls()) {
    for (const CollectiveCall& other : calls()) {
      if (&usual == &other) continue;
      const net::Rank odd = pairs % 3;
      const std::vector<Status> told = make_calls(3, usual, other, odd);
      for (net::Rank number = 0; number < 3; ++number) {
        const Status& status = told[static_cast<size_t>(number)];
        const std::string where = fmt::format("{} and {} (by rank {}): rank {} is told \"{}\"", usual.name,
                                              other.name, odd, number, status.to_string());
        EXPECT_EQ(status.code(), Code::kInvalidArgument) << where;
        EXPECT_THAT(std::string(status.message()), HasSubstr(usual.says)) << where;
        EXPECT_THAT(std::string(status.message()), HasSubstr(other.says)) << where;
        EXPECT_THAT(std::string(status.message()), HasSubstr("the same collective calls")) << where;
      }
      ++pairs;
    }
  }
  set_log_level(LogLevel::kWarn);
  fmt::print("{} pairs of calls\n", pairs);
}

TEST(EngineCalls, AStoreIsOneDirectoryForTheRanksOfANode) {
  io::MemoryDevice device;
  const auto group = std::make_shared<net::LocalGroup>(2);
  std::vector<std::thread> threads;
  for (net::Rank number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      net::JobOptions options;
      options.transport = "loopback";
      auto job = net::Job::open(net::local_bootstrap(group, number), options);
      ASSERT_TRUE(job.ok());
      const auto store = meta::Store::open(**job, device, number == 0 ? "/run/a" : "/run/b", {});
      EXPECT_EQ(store.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(store.status().to_string(),
                  HasSubstr("/run/b: is not the directory that rank 0 of the same node"));
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace swale::capi::engine_calls_test
