// A rank that may have few calls open and has many servers to call: they are called one after the other.
#include "meta/server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/memory_device.h"
#include "meta/client/client.h"
#include "net/meeting/bootstrap.h"

namespace swale::meta::service_test {
namespace {

constexpr uint32_t kServers = 100;  // whose answers to a seal may take 42 MB
constexpr uint64_t kRangeBytes = 4096;

// All servers of a store on one rank.
class OneRank {
 public:
  explicit OneRank(const net::RpcOptions& options) : partition_(kServers, kRangeBytes), hosts_(kServers, 0) {
    job_ = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
    EXPECT_TRUE(disk_.make_directory("/s").ok());
    std::vector<std::unique_ptr<ServerCore>> cores;
    for (Server server = 0; server < kServers; ++server) {
      auto attributes = std::make_unique<AttributeTable>(server);
      ShardOptions own;
      own.directory = "/s";
      own.shard = server;
      own.table = attributes.get();
      auto shard = Shard::open(disk_, own);
      cores.push_back(std::make_unique<ServerCore>(partition_, server, RingMode::kPlain,
                                                   std::move(attributes), *std::move(shard)));
    }
    service_ = std::make_unique<Service>(std::move(cores), hosts_, seconds(20));
    rpc_ = *net::Rpc::open(*job_, options, service_.get());
    EXPECT_TRUE(service_->start(rpc_.get()).ok());
    client_ =
        std::make_unique<Client>(rpc_.get(), &hosts_, partition_, ClientOptions{.client = 1}, seconds(60));
  }
  ~OneRank() {
    client_.reset();
    EXPECT_TRUE(service_->stop().ok());
    EXPECT_TRUE(rpc_->close().ok());
    rpc_.reset();
    EXPECT_TRUE(job_->close().ok());
  }
  Client& client() { return *client_; }

 private:
  io::MemoryDevice disk_;
  const Partition partition_;
  const std::vector<net::Rank> hosts_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<net::Rpc> rpc_;
  std::unique_ptr<Client> client_;
};

Extent of_server(uint64_t range, uint64_t length) { return {range * kRangeBytes, length, {1, range}}; }

// A server that has not heard of a truncate would cut later, when it is repeated, what was put meanwhile.
TEST(Service, ATruncateReachesMoreServersThanARankMayHaveCallsOpen) {
  OneRank rank({.methods = method_names(), .calls_max = 4});
  auto file = rank.client().open("f", Client::kCreate, 0, 0);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (uint64_t i = 0; i < kServers; ++i) {
    const Extent one = of_server(i, 100);
    ASSERT_TRUE(rank.client().put(&*file, std::span(&one, 1)).ok());
  }
  const Status truncated = rank.client().truncate(&*file, 0, 0);
  EXPECT_TRUE(truncated.ok()) << truncated.to_string();
  const Extent late = of_server(kServers - 1, 50);
  ASSERT_TRUE(rank.client().put(&*file, std::span(&late, 1)).ok());
  EXPECT_TRUE(rank.client().truncate(&*file, kServers * kRangeBytes, 0).ok());
  std::vector<Extent> all;
  uint64_t next = 0;
  ASSERT_TRUE(rank.client().scan(*file, 0, 100, &all, &next).ok());
  EXPECT_THAT(all, testing::ElementsAre(late));
}

TEST(Service, ASealCollectsMoreThanARankHasMemoryForAtATime) {
  OneRank rank({.methods = method_names(), .calls_bytes_max = 36 * kMiB});
  auto file = rank.client().open("f", Client::kCreate, 0, 0);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const Extent one = of_server(3, 100);
  ASSERT_TRUE(rank.client().put(&*file, std::span(&one, 1)).ok());
  const Status sealed = rank.client().seal(&*file);
  EXPECT_TRUE(sealed.ok()) << sealed.to_string();
}

}  // namespace
}  // namespace swale::meta::service_test
