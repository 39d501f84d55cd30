// A store whose servers are in directories of several nodes: found in whatever order the nodes come, and
// named where one is missing, doubled, older, or another store's.
#include "meta/store/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>

#include "io/memory_device.h"
#include "meta/index/snapshot.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

using testing::HasSubstr;

constexpr int kRosterFiles = 12;
using Nodes = std::vector<std::string>;  // whose storage each rank has, in the order of ranks

void copy(io::Device& device, const std::string& from, const std::string& to) {
  ASSERT_TRUE(io::make_directories(device, to).ok());
  const auto names = device.list(from);
  for (const std::string& name : *names) {
    if (name == kLockName || name.ends_with(".claims")) continue;
    const std::string bytes = *io::read_file(device, from + "/" + name, kGiB);
    ASSERT_TRUE(io::replace_file(device, to + "/" + name, bytes).ok());
  }
}
void remove_all(io::Device& device, const std::string& directory) {
  const auto names = device.list(directory);
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    if (name.ends_with(".claims")) {
      const auto claims = device.list(path);
      for (const std::string& claim : *claims) ASSERT_TRUE(device.remove(path + "/" + claim).ok());
    } else {
      ASSERT_TRUE(device.remove(path).ok());
    }
  }
}

// A rank on each node, each with a directory NODE/store. The status of opening, which is the same on all.
// `leave`: without closing, as a job that was killed.
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
  for (int i = 0; i < kRosterFiles; ++i) {
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
  for (int i = 0; i < kRosterFiles; ++i) {
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

// By one generation only, and the job that ran since did not end: what it has acknowledged would read as
// holes.
TEST_P(OfThreeNodes, ACopyOfBeforeAJobThatCrashedIsRefused) {
  copy(device_, "b/store", "old/store");
  ASSERT_TRUE(run_nodes({"a", "b", "c"}, device_, write, true).ok());
  expect_refused({"a", "old", "c"}, {"old/store", "older copy"});
  ASSERT_TRUE(device_.remove("old/store/swale.json").ok());
  expect_refused({"a", "old", "c"}, {"old/store/swale.json", "is missing"});
  EXPECT_TRUE(run_nodes({"a", "b", "c"}, device_, expect_all).ok());
}

// An opening writes swale.json of each directory twice. Those that fail here are all that a crash or a full
// disk may leave: in the first or the second round any of them.
class Interrupted {
 public:
  explicit Interrupted(io::Device& below) : device(below) {}
  Status open(const Nodes& nodes, uint64_t round, unsigned failing) {
    std::mutex mutex;
    std::map<std::string, uint64_t> writes;
    device.set_hook([&, failing, round](const io::Call& call) -> Status {
      const std::string name = std::string("/store/") + kManifestName;
      const size_t at = call.path.find(name);
      if (call.kind != io::CallKind::kWrite || at == std::string::npos) return {};
      const std::string node = call.path.substr(0, at);
      const std::lock_guard hold(mutex);
      const auto which = std::find(nodes.begin(), nodes.end(), node) - nodes.begin();
      if (++writes[node] != round || (failing >> which & 1) == 0) return {};
      return error(Code::kNoSpace, Scope::kFile, "no space left on the device");
    });
    const Status opened = run_nodes(nodes, device, nullptr, true);
    device.clear();
    return opened;
  }
  io::FaultDevice device;
};

TEST_P(OfThreeNodes, OpeningsThatAreInterruptedChangeNothing) {
  Interrupted interrupted(device_);
  const Nodes nodes = {"a", "b", "c"};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(interrupted.open(nodes, 1, 2).code(), Code::kNoSpace) << i;  // b's disk is full
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    const uint64_t round = 1 + random() % 2;
    const unsigned failing = 1 + static_cast<unsigned>(random() % 7);
    const Status opened = interrupted.open(nodes, round, failing);
    ASSERT_EQ(opened.code(), Code::kNoSpace) << i << ": " << opened.to_string();
  }
  EXPECT_TRUE(run_nodes(nodes, device_, expect_all).ok());
}

// What a closed store had is compared until an opening has reached all directories.
TEST_P(OfThreeNodes, AnInterruptedOpeningLeavesAClosedStoreClosed) {
  Interrupted interrupted(device_);
  EXPECT_EQ(interrupted.open({"a", "b", "c"}, 1, 2).code(), Code::kNoSpace);
  const Manifest manifest = *read_manifest(device_, "a/store");
  EXPECT_EQ(manifest.generation, 2u);
  EXPECT_EQ(manifest.opened, 1u);
  EXPECT_EQ(manifest.closed, !GetParam());
  if (GetParam()) return;  // nothing to compare with
  const auto names = device_.list("b/store");
  for (const std::string& name : *names) {
    if (name.find(".log-") == std::string::npos) continue;
    std::string bytes = *io::read_file(device_, "b/store/" + name, kGiB);
    bytes.pop_back();
    ASSERT_TRUE(io::replace_file(device_, "b/store/" + name, bytes).ok());
  }
  expect_refused({"a", "b", "c"}, {".log-", "the store was closed"});
}

// Copies that were made between two openings, neither of which came to an end: older, once a job has changed
// something.
TEST_P(OfThreeNodes, CopiesOfInterruptedOpeningsAreOlder) {
  Interrupted interrupted(device_);
  const Nodes nodes = {"a", "b", "c"};
  std::set<std::string> copies;
  for (const uint64_t round : {1, 2}) {
    for (unsigned failing = 1; failing < 8; ++failing) {
      ASSERT_EQ(interrupted.open(nodes, round, failing).code(), Code::kNoSpace);
      const std::string name = fmt::format("copy{}-{}", round, failing);
      copy(device_, "b/store", name + "/store");
      copies.insert(name);
    }
  }
  ASSERT_TRUE(run_nodes(nodes, device_, write, true).ok());
  for (const std::string& each : copies) {
    const Status refused = run_nodes({"a", each, "c"}, device_, nullptr);
    EXPECT_EQ(refused.code(), Code::kCorruption) << each << ": " << refused.to_string();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("older copy"));
  }
  EXPECT_TRUE(run_nodes(nodes, device_, expect_all).ok());
}

// Its servers are elsewhere now; the manifest that was left behind grows old, and says nothing of them.
TEST_P(OfThreeNodes, ADirectoryWhoseServersWereMovedAwayMayStay) {
  copy(device_, "b/store", "e/store");
  const std::string left = *io::read_file(device_, "b/store/swale.json", kMiB);
  remove_all(device_, "b/store");
  ASSERT_TRUE(io::replace_file(device_, "b/store/swale.json", left).ok());
  for (int i = 0; i < 3; ++i) {
    const Status opened = run_nodes({"a", "e", "c", "b"}, device_, expect_all, GetParam());
    ASSERT_TRUE(opened.ok()) << i << ": " << opened.to_string();
  }
}

// What is in a directory is listed once, however many servers look for their logs there.
TEST(Roster, ADirectoryIsListedOnce) {
  io::MemoryDevice memory;
  ASSERT_TRUE(io::make_directories(memory, "store").ok());
  Manifest manifest;
  manifest.servers = 20;
  for (uint32_t server = 0; server < manifest.servers; ++server) {
    manifest.places.push_back({.id = 100 + server});
    ASSERT_TRUE(io::replace_file(memory, "store/" + server_file_name(server),
                                 encode_server_file({manifest.store, 100 + server, server}))
                    .ok());
    ShardManifest index;
    index.shard = server;
    index.job = 1;
    const std::string path = fmt::format("store/shard-{:06}.j0001.manifest", server);
    ASSERT_TRUE(io::replace_file(memory, path, index.encode()).ok());
  }
  io::FaultDevice device(memory);
  std::atomic<int> listed{0};
  device.set_hook([&](const io::Call& call) {
    listed += call.kind == io::CallKind::kQuery && call.path == "store";
    return ok_status();
  });
  const auto names = device.list("store");
  const auto here = servers_in(device, "store", *names, manifest);
  ASSERT_TRUE(here.ok()) << here.status().to_string();
  EXPECT_EQ(here->size(), 20u);
  EXPECT_EQ(listed, 1);
}

// Ranks of a new store that is not made leave no server's name that a later store would find.
TEST(Roster, ANewStoreThatWasInterruptedLeavesNoServer) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  find_no_space(&device, "b/store/shard-");
  EXPECT_EQ(run_nodes({"a", "b"}, device, nullptr).code(), Code::kNoSpace);
  device.clear();
  EXPECT_TRUE(io::read_file(memory, "a/store/server-00000.json", kMiB).ok());  // else this tests nothing
  ASSERT_TRUE(run_nodes({"b", "a"}, device, write).ok());
  for (const Nodes& order : {Nodes{"b", "a"}, Nodes{"a", "b"}}) {
    const Status opened = run_nodes(order, device, expect_all);
    ASSERT_TRUE(opened.ok()) << opened.to_string();
  }
}

// All servers stand, and some directories, or none, have heard of the store: it is there, or it is made anew.
TEST(Roster, ANewStoreWhoseManifestsAreInterruptedIsThere) {
  for (const uint64_t round : {1, 2}) {
    for (unsigned failing = 1; failing < 8; ++failing) {
      io::MemoryDevice memory;
      Interrupted interrupted(memory);
      const Nodes nodes = {"a", "b", "c"};
      ASSERT_EQ(interrupted.open(nodes, round, failing).code(), Code::kNoSpace);
      ASSERT_TRUE(run_nodes({"c", "a", "b"}, memory, write).ok()) << round << " " << failing;
      EXPECT_TRUE(run_nodes(nodes, memory, expect_all).ok());
    }
  }
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
  for (const char* const part : {".log-", "shard-"}) {
    copy(device_, "b/store", "part/store");
    const auto names = device_.list("part/store");
    for (const std::string& name : *names) {
      if (name.find(part) == std::string::npos || name.ends_with(".claims")) continue;
      ASSERT_TRUE(device_.remove("part/store/" + name).ok());
    }
    expect_refused({"a", "part", "c"}, {"part/store", part, "is missing"});
    remove_all(device_, "part/store");
  }
}

}  // namespace
}  // namespace swale::meta::store_test
