// A store whose servers are in directories of several nodes: found in whatever order the nodes come, and named where one is
// missing, doubled, older, or another store's.
#include "meta/store/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

using testing::HasSubstr;

constexpr int kFiles = 12;
using Nodes = std::vector<std::string>;  // whose storage each rank has, in the order of ranks

void copy(io::Device& device, const std::string& from, const std::string& to) {
  ASSERT_TRUE(io::make_directories(device, to).ok());
  const auto names = device.list(from);
  for (const std::string& name : *names) {
    if (name == kLockName) continue;
    const std::string bytes = *io::read_file(device, from + "/" + name, kGiB);
    ASSERT_TRUE(io::replace_file(device, to + "/" + name, bytes).ok());
  }
}
void remove_all(io::Device& device, const std::string& directory) {
  const auto names = device.list(directory);
  for (const std::string& name : *names) ASSERT_TRUE(device.remove(directory + "/" + name).ok());
}

// A rank on each node, each with a directory NODE/store. The status of opening, which is the same on all. `leave`: without
// closing, as a job that was killed.
Status run_nodes(const Nodes& nodes, io::Device& device, const std::function<void(RankOf&)>& body,
                 bool leave = false) {
  const auto group = std::make_shared<net::LocalGroup>(static_cast<int32_t>(nodes.size()));
  std::vector<Status> opened(nodes.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      net::JobOptions options;
      options.transport = "loopback";
      options.posting = "direct";
      options.node = nodes[rank] + fmt::format(" seat {}", rank);
      auto job = net::Job::open(nodes.size() == 1 ? net::solo_bootstrap()
                                                  : net::local_bootstrap(group, static_cast<net::Rank>(rank)),
                                options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      StoreOptions of_store = small_ranges();
      of_store.servers_per_node = 1;
      const std::string directory = nodes[rank] + "/store";
      auto store = Store::open(**job, device, directory, of_store);
      opened[rank] = store.status();
      if (store.ok()) {
        RankOf mine{**job, **store, (*store)->client()};
        if (body) body(mine);
        mine.client.reset();
        if (leave) {
          barrier(mine);
          static_cast<void>(device.remove(directory + "/" + kLockName));
        } else {
          const Status closed = (*store)->close();
          EXPECT_TRUE(closed.ok()) << closed.to_string();
        }
      }
      store = error(Code::kAborted, Scope::kNode, "left");
      static_cast<void>((*job)->close());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& each : opened) EXPECT_EQ(each.code(), opened[0].code()) << each.to_string();
  return opened[0];
}

Extent piece(int file, uint64_t range) {
  return {range * 4096, 100, {static_cast<LogId>(file), range * 100}};
}

void write(RankOf& rank) {
  for (int i = 0; i < kFiles; ++i) {
    if (i % rank.job.size() != rank.job.rank()) continue;
    auto file = rank.client->open(fmt::format("f{}", i), Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    for (uint64_t range = 0; range < 6; ++range) {
      const Extent one = piece(i, range);
      ASSERT_TRUE(rank.client->put(&*file, std::span(&one, 1)).ok());
    }
  }
  barrier(rank);
}

void expect_all(RankOf& rank) {
  for (int i = 0; i < kFiles; ++i) {
    const auto file = rank.client->open(fmt::format("f{}", i), 0, 0, 0);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    std::vector<Extent> all, expected;
    uint64_t next = 0;
    ASSERT_TRUE(rank.client->scan(*file, 0, 100, &all, &next).ok());
    for (uint64_t range = 0; range < 6; ++range) expected.push_back(piece(i, range));
    EXPECT_EQ(all, expected);
  }
  barrier(rank);
}

class OfThreeNodes : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { ASSERT_TRUE(run_nodes({"a", "b", "c"}, device_, write, GetParam()).ok()); }
  void expect_refused(const Nodes& nodes, std::initializer_list<std::string> words) {
    const Status refused = run_nodes(nodes, device_, nullptr);
    EXPECT_EQ(refused.code(), Code::kCorruption) << refused.to_string();
    for (const std::string& each : words) EXPECT_THAT(std::string(refused.message()), HasSubstr(each));
  }
  io::MemoryDevice device_;
};
INSTANTIATE_TEST_SUITE_P(Store, OfThreeNodes, testing::Bool(),
                         [](const auto& each) { return each.param ? "NotClosed" : "Closed"; });

TEST_P(OfThreeNodes, ServersAreFoundInWhateverOrderTheNodesCome) {
  for (const Nodes& order :
       {Nodes{"c", "a", "b"}, Nodes{"b", "a", "c"}, Nodes{"c", "b", "a"}, Nodes{"a", "b", "c"}}) {
    const Status opened = run_nodes(order, device_, expect_all, GetParam());
    ASSERT_TRUE(opened.ok()) << opened.to_string();
  }
  // With a node more, which has none of them and gets none.
  const Status opened = run_nodes({"d", "c", "a", "b"}, device_, expect_all, GetParam());
  ASSERT_TRUE(opened.ok()) << opened.to_string();
  EXPECT_EQ(read_manifest(device_, "d/store").status().code(), Code::kNotFound);
  EXPECT_EQ(read_manifest(device_, "b/store")->generation, 6u);
}

TEST_P(OfThreeNodes, AMissingOneIsNamedWithWhereItWas) {
  const Manifest manifest = *read_manifest(device_, "c/store");
  EXPECT_EQ(manifest.places.size(), 3u);
  const std::string id = fmt::format("{:016x}", manifest.places[1].id);
  expect_refused({"a", "c"}, {"server 1", id, "rank 1", "b/store", host_name(), "servers 0, 2"});
  expect_refused({"c"}, {"server 0", "a/store", "here is server 2"});
  expect_refused({"d", "c", "b"}, {"server 0", "a/store", "servers 1, 2"});
  // Nothing was changed.
  EXPECT_TRUE(run_nodes({"b", "c", "a"}, device_, expect_all).ok());
}

// Where the job that is looked for was last, not where the store was made.
TEST_P(OfThreeNodes, OnesThatWereMovedAreFoundAndRememberedThere) {
  copy(device_, "b/store", "e/store");
  remove_all(device_, "b/store");
  ASSERT_TRUE(run_nodes({"e", "c", "a"}, device_, expect_all, GetParam()).ok());
  expect_refused({"a", "c"}, {"server 1", "e/store", "rank 0"});
}

TEST_P(OfThreeNodes, ACopyIsNoSecondServer) {
  copy(device_, "b/store", "e/store");
  expect_refused({"c", "a", "b", "e"}, {"server 1", "is in two places", "b/store", "e/store"});
}

TEST_P(OfThreeNodes, AnOlderCopyIsRefused) {
  copy(device_, "b/store", "old/store");
  ASSERT_TRUE(run_nodes({"a", "b", "c"}, device_, expect_all, GetParam()).ok());
  ASSERT_TRUE(run_nodes({"a", "b", "c"}, device_, write, GetParam()).ok());
  const Status refused = run_nodes({"a", "old", "c"}, device_, nullptr);
  EXPECT_EQ(refused.code(), Code::kCorruption) << refused.to_string();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("old/store"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("older copy"));
}

TEST_P(OfThreeNodes, AnotherStoresDirectoryIsRefused) {
  ASSERT_TRUE(run_nodes({"x", "y", "z"}, device_, write, GetParam()).ok());
  expect_refused({"a", "y", "c"}, {"directories of two stores"});
  // Its server's files alone.
  copy(device_, "y/store", "b/store");
  ASSERT_TRUE(io::replace_file(device_, "b/store/" + std::string(kManifestName),
                               encode_manifest(*read_manifest(device_, "a/store")))
                  .ok());
  expect_refused({"a", "b", "c"}, {"of store", "server-00001.json"});
}

// The logs of a server are gone, and its name is there: also if the store was not closed.
TEST_P(OfThreeNodes, AServerWithoutItsLogsIsDamaged) {
  for (const char* const part : {"attributes-", "shard-"}) {
    copy(device_, "b/store", "part/store");
    const auto names = device_.list("part/store");
    for (const std::string& name : *names) {
      if (!name.starts_with(part)) continue;
      ASSERT_TRUE(device_.remove("part/store/" + name).ok());
    }
    expect_refused({"a", "part", "c"}, {"part/store", part, "is missing"});
    remove_all(device_, "part/store");
  }
}

}  // namespace
}  // namespace swale::meta::store_test
