// The tree of a job between ranks with threads: one server each, and what a later opening finds.
#include "meta/store/job_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <tuple>

#include "base/rng.h"
#include "io/memory_device.h"
#include "net/meeting/bootstrap.h"

namespace swale::meta::job_names_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct RankOf {
  net::Job& job;
  JobNames& names;
  NamesClient& client;
};

std::string directory_of(net::Rank rank) { return "node" + std::to_string(rank) + "/names"; }

net::JobOptions loopback() {
  net::JobOptions options;
  options.transport = "loopback";
  options.posting = "direct";
  return options;
}

// `places`: the directory of each rank; empty: its own.
void run_nodes(int32_t size, io::Device& device, const std::function<void(RankOf&)>& body,
               const std::vector<net::Rank>& places = {}) {
  const auto group = std::make_shared<net::LocalGroup>(size);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto job =
          net::Job::open(size == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank), loopback());
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      JobNamesOptions options;
      options.deadline = seconds(60);
      const net::Rank place = places.empty() ? rank : places[static_cast<size_t>(rank)];
      auto names = JobNames::open(**job, device, directory_of(place), options);
      ASSERT_TRUE(names.ok()) << names.status().to_string();
      RankOf mine{**job, **names, (*names)->client()};
      body(mine);
      const Status closed = (*names)->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void barrier(RankOf& rank) { ASSERT_TRUE(rank.job.allgather("").ok()); }

int errno_of(const Status& status) { return status.posix_error(); }
template <class T>
int errno_of(const Result<T>& result) {
  return result.status().posix_error();
}

std::vector<std::string> names_in(NamesClient& client, const FileId& directory, uint32_t most = 3) {
  std::vector<std::string> names;
  ListCursor cursor;
  while (!cursor.end()) {
    const auto part = client.list(directory, &cursor, most);
    EXPECT_TRUE(part.ok()) << part.status().to_string();
    if (!part.ok()) break;
    for (const ListedEntry& each : *part) names.push_back(each.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(JobNames, EveryCallOfThePageOnOneNode) {
  io::MemoryDevice device;
  run_nodes(1, device, [](RankOf& rank) {
    NamesClient& client = rank.client;
    const auto made =
        client.create(kRootDirectory, "f", {.mode = 0640, .uid = 5, .gid = 6, .now_ns = 7}, true);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_TRUE(made->made);
    EXPECT_EQ(made->node.mode, 0640u);
    EXPECT_EQ(errno_of(client.create(kRootDirectory, "f", {}, true)), EEXIST);
    const auto again = client.create(kRootDirectory, "f", {}, false);
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(again->made);
    EXPECT_EQ(again->file, made->file);

    const auto directory = client.make_directory(kRootDirectory, "d", {.mode = 0755});
    ASSERT_TRUE(directory.ok());
    const FileId d = directory->entry.file;
    ASSERT_TRUE(client.symlink(d, "l", "../f", {}).ok());
    EXPECT_EQ(client.read_link(client.find(d, "l")->file).value(), "../f");
    EXPECT_EQ(client.walk("/d/l")->type, NodeType::kLink);
    EXPECT_EQ(errno_of(client.walk("f/x")), ENOTDIR);
    EXPECT_EQ(errno_of(client.remove_directory(kRootDirectory, "d", 1)), ENOTEMPTY);
    EXPECT_EQ(errno_of(client.rename(kRootDirectory, "f", d, "l", kNoReplace, 1)), EEXIST);
    EXPECT_TRUE(client.rename(kRootDirectory, "f", d, "g", 0, 1).ok());
    EXPECT_EQ(errno_of(client.look_up(kRootDirectory, "f")), ENOENT);
    EXPECT_THAT(names_in(client, d, 1), ElementsAre("g", "l"));

    const auto changed =
        client.set_attributes(made->file, {.set = kMode | kModified, .mode = 0600, .modified_ns = 99});
    ASSERT_TRUE(changed.ok());
    EXPECT_EQ(client.stat(made->file)->mode, 0600u);
    EXPECT_EQ(client.stat(made->file)->modified_ns, 99);
    const std::string value(kUserBytesMax - 6, 'v');
    ASSERT_TRUE(client.set_user(made->file, "user.a", value).ok());
    EXPECT_EQ(client.read_user(made->file, "user.a").value(), value);
    EXPECT_EQ(errno_of(client.set_user(made->file, "user.b", "1")), ENOSPC);
    EXPECT_EQ(errno_of(client.set_user(made->file, "user.a", "1", kCreateOnly)), EEXIST);
    EXPECT_THAT(client.list_users(made->file).value(), ElementsAre("user.a"));
    EXPECT_TRUE(client.remove_user(made->file, "user.a").ok());
    EXPECT_EQ(errno_of(client.read_user(made->file, "user.a")), ENODATA);

    // Two hold it: it lives until the last lets go.
    EXPECT_TRUE(client.unlink(d, "g", 1).ok());
    EXPECT_TRUE(client.stat(made->file)->unlinked);
    EXPECT_TRUE(client.release(made->file).ok());
    EXPECT_TRUE(client.stat(made->file).ok());
    EXPECT_TRUE(client.release(made->file).ok());
    EXPECT_TRUE(client.finish().ok());
    EXPECT_EQ(errno_of(client.stat(made->file)), ENOENT);
    EXPECT_FALSE(client.release(made->file).ok());
  });
}

// All make the same names at once: each has one winner, and everybody sees what he has made.
// The records of the log so far, which are one a commit.
uint64_t commits_of(RankOf& rank) {
  uint64_t groups = 0;
  rank.names.with_server([&](NamesServer& server) { groups = server.shard().counters().groups; });
  return groups;
}

TEST(JobNames, WhatAThreadAsksForTogetherIsOneRecord) {
  io::MemoryDevice device;
  run_nodes(1, device, [](RankOf& rank) {
    NamesClient& client = rank.client;
    constexpr int kFiles = 20;
    EXPECT_EQ(errno_of(client.find(kRootDirectory, "f0")), ENOENT);  // by now it knows the server's life
    const uint64_t before = commits_of(rank);
    std::vector<std::unique_ptr<NamesClient::Creating>> creates;
    {
      const auto together = client.together();
      for (int i = 0; i < kFiles; ++i)
        creates.push_back(std::make_unique<NamesClient::Creating>(client, kRootDirectory,
                                                                  "f" + std::to_string(i), NewNode()));
      creates.push_back(std::make_unique<NamesClient::Creating>(client, kRootDirectory, "f0", NewNode()));
      EXPECT_EQ(commits_of(rank), before);
    }
    EXPECT_EQ(commits_of(rank), before + 1);
    for (int i = 0; i < kFiles; ++i) EXPECT_TRUE(creates[static_cast<size_t>(i)]->end().ok());
    EXPECT_EQ(errno_of(creates.back()->end()), EEXIST);
    EXPECT_EQ(names_in(client, kRootDirectory).size(), size_t{kFiles});
    for (int i = 0; i < kFiles; ++i)
      EXPECT_TRUE(client.release(client.find(kRootDirectory, "f" + std::to_string(i))->file).ok());
  });
}

TEST(JobNames, NobodyWaitsForAThreadThatKeepsItsCommitsBack) {
  io::MemoryDevice device;
  run_nodes(1, device, [](RankOf& rank) {
    NamesClient& client = rank.client;
    const auto together = client.together();
    using Hold = NamesClient::Hold;
    for (const auto& [name, changes, hold] :
         {std::tuple("f", false, Hold::kYes), std::tuple("g", true, Hold::kYes),
          std::tuple("h", false, Hold::kNo), std::tuple("i", true, Hold::kNo)}) {
      NamesClient::Creating create(client, kRootDirectory, name, NewNode(), hold);
      std::thread other([&client, name = name, changes = changes] {
        const auto seen = client.look_up(kRootDirectory, name);
        EXPECT_TRUE(seen.ok()) << seen.status().to_string();
        if (!seen.ok() || !changes) return;
        EXPECT_TRUE(client.set_attributes(seen->entry.file, {.set = kMode, .mode = 0600}).ok());
      });
      other.join();
      const auto made = create.end();
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(client.release(made->file).ok(), hold == Hold::kYes);
    }
    // Nobody has asked for the end of one: the node lets the file go.
    { const NamesClient::Creating left(client, kRootDirectory, "left", NewNode()); }
    EXPECT_TRUE(client.unlink(kRootDirectory, "left", 1).ok());
  });
}

// By a thread that writes the log itself.
TEST(JobNames, AFileThatNobodyHoldsIsMadeWithoutAMessage) {
  using Creating = NamesClient::Creating;
  io::MemoryDevice device;
  FileId last;
  run_nodes(1, device, [&](RankOf& rank) {
    NamesClient& client = rank.client;
    const FileId below = client.make_directory(kRootDirectory, "d", NewNode())->entry.file;
    for (const FileId& directory : {kRootDirectory, below}) {
      const auto together = client.together();
      const uint64_t before = commits_of(rank);
      Creating first(client, directory, "one", {.mode = 0640, .uid = 7, .gid = 8, .now_ns = 9},
                     NamesClient::Hold::kNo);
      Creating again(client, directory, "one", NewNode(), NamesClient::Hold::kNo);
      Creating other(client, directory, "other", NewNode(), NamesClient::Hold::kNo);
      const auto made = first.end();
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_TRUE(made->made);
      EXPECT_EQ(errno_of(again.end()), EEXIST);
      EXPECT_TRUE(other.end().ok());
      // The first entry of a directory is one that the server asks for.
      EXPECT_EQ(commits_of(rank) == before + 1, directory == kRootDirectory);
      const auto seen = client.look_up(directory, "one");
      ASSERT_TRUE(seen.ok()) << seen.status().to_string();
      EXPECT_EQ(seen->entry.file, made->file);
      EXPECT_EQ(seen->node, made->node);
      EXPECT_EQ(seen->node.mode, 0640u);
      EXPECT_EQ(seen->node.changed_ns, 9);
      last = made->file;
    }
    Creating wrong(client, kRootDirectory, "a/b", NewNode(), NamesClient::Hold::kNo);
    EXPECT_EQ(errno_of(wrong.end()), EINVAL);
    // Nobody holds it: it goes with its name.
    EXPECT_TRUE(client.unlink(below, "one", 1).ok());
    EXPECT_EQ(errno_of(client.stat(last)), ENOENT);
  });
  run_nodes(1, device, [&](RankOf& rank) {
    EXPECT_THAT(names_in(rank.client, kRootDirectory), ElementsAre("d", "one", "other"));
    const auto made = rank.client.create(kRootDirectory, "new", NewNode(), true);
    ASSERT_TRUE(made.ok());
    EXPECT_GT(made->file.low, last.low);  // no id is given twice
    EXPECT_TRUE(rank.client.release(made->file).ok());
  });
}

TEST(JobNames, OneNodeMakesEachExclusiveFile) {
  constexpr int kFiles = 40;
  io::MemoryDevice device;
  std::atomic<int> winners{0};
  run_nodes(4, device, [&](RankOf& rank) {
    for (int i = 0; i < kFiles; ++i) {
      const auto made = rank.client.create(kRootDirectory, "x" + std::to_string(i), {}, true);
      if (made.ok()) ++winners;
      EXPECT_TRUE(made.ok() || errno_of(made) == EEXIST) << made.status().to_string();
    }
    barrier(rank);
    EXPECT_EQ(names_in(rank.client, kRootDirectory).size(), static_cast<size_t>(kFiles));
  });
  EXPECT_EQ(winners, kFiles);
}

// Each node with threads of its own in directories that all share; each knows what its own names must be.
TEST(JobNames, ManyThreadsOfManyNodesInOneTreeAndALaterOpeningFindsIt) {
  constexpr int32_t kNodes = 3;
  constexpr int kThreads = 4, kSteps = 120;
  io::MemoryDevice device;
  std::vector<std::vector<std::string>> names(kNodes * kThreads);
  run_nodes(kNodes, device, [&](RankOf& rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto me = static_cast<size_t>(rank.job.rank() * kThreads + t);
        Rng rng(me + 1);
        const auto shared = rank.client.make_directory(kRootDirectory, "shared", {});
        EXPECT_TRUE(shared.ok() || errno_of(shared) == EEXIST);
        const auto d = rank.client.walk("shared");
        ASSERT_TRUE(d.ok()) << d.status().to_string();
        std::set<std::string> mine;
        for (int i = 0; i < kSteps; ++i) {
          const auto name = [&] { return fmt::format("{}-{}", me, rng.below(8)); };
          const std::string from = name(), to = name();
          const bool there = mine.contains(from);
          switch (rng.below(4)) {
            case 0: {
              const auto made = rank.client.create(d->file, from, {}, true);
              EXPECT_EQ(errno_of(made), there ? EEXIST : 0);
              if (made.ok()) {
                EXPECT_TRUE(rank.client.release(made->file).ok());
              }
              mine.insert(from);
              break;
            }
            case 1:
              EXPECT_EQ(errno_of(rank.client.unlink(d->file, from, 1)), there ? 0 : ENOENT);
              mine.erase(from);
              break;
            case 2:
              EXPECT_EQ(errno_of(rank.client.rename(d->file, from, d->file, to, 0, 1)), there ? 0 : ENOENT);
              if (there) {
                mine.erase(from);
                mine.insert(to);
              }
              break;
            default:
              EXPECT_EQ(errno_of(rank.client.look_up(d->file, from)), there ? 0 : ENOENT);
          }
        }
        names[me].assign(mine.begin(), mine.end());
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::vector<std::string> all;
  for (const auto& each : names) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  // The nodes come in another order.
  run_nodes(kNodes, device,
            [&](RankOf& rank) {
              const auto d = rank.client.walk("shared");
              ASSERT_TRUE(d.ok()) << d.status().to_string();
              EXPECT_EQ(names_in(rank.client, d->file), all);
            },
            {2, 0, 1});
}

TEST(JobNames, WhatNodesOfAnEarlierJobHaveHeldIsLetGo) {
  io::MemoryDevice device;
  FileId held;
  run_nodes(2, device, [&](RankOf& rank) {
    if (rank.job.rank() != 0) return;
    const auto made = rank.client.create(kRootDirectory, "f", {}, true);
    ASSERT_TRUE(made.ok());
    held = made->file;
    EXPECT_TRUE(rank.client.unlink(kRootDirectory, "f", 1).ok());
    EXPECT_TRUE(rank.client.stat(held).ok());
  });
  run_nodes(2, device, [&](RankOf& rank) { EXPECT_EQ(errno_of(rank.client.stat(held)), ENOENT); });
}

TEST(JobNames, AServerThatIsNowhereFailsTheOpeningByName) {
  io::MemoryDevice device;
  run_nodes(3, device, [](RankOf& rank) {
    if (rank.job.rank() == 0) {
      EXPECT_TRUE(rank.client.make_directory(kRootDirectory, "d", {}).ok());
    }
  });
  const auto group = std::make_shared<net::LocalGroup>(2);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = net::Job::open(net::local_bootstrap(group, rank), loopback());
      ASSERT_TRUE(job.ok());
      const auto names = JobNames::open(**job, device, directory_of(rank), {});
      EXPECT_THAT(names.status().to_string(), HasSubstr("server 2 of 3"));
      EXPECT_TRUE((*job)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace swale::meta::job_names_test
