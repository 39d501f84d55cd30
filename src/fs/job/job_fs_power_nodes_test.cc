// fsync of several nodes whose folders are on disks: what it has promised is there after any of them, or all,
// have lost power, with all that their memory had and that their disks were not told to keep. The servers of
// the others are killed then. The backing is another machine's.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "fs/job/testing/nodes_world.h"
#include "fs/peers/remote_peers.h"

namespace swale::fs::job_fs_power_nodes_test {
namespace {

using Storage = NodesWorld::Storage;
constexpr size_t kNodes = 3;
using Nodes = std::vector<size_t>;
const std::vector<Nodes> kSubsets = {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};

uint64_t seeds() {
  const char* const factor = ::getenv("SWALE_SIM_SEEDS");
  return factor == nullptr ? 1 : std::strtoull(factor, nullptr, 10);
}

std::string text_of(char begin, size_t bytes) {
  std::string text(bytes, begin);
  for (size_t at = 1; at < bytes; ++at) text[at] = static_cast<char>('a' + (at * 7 + begin) % 26);
  return text;
}

enum class Then { kCloses, kSyncs };

int write(FileSystemCalls& calls, const std::string& path, const std::string& bytes, Then then,
          uint64_t offset = 0) {
  int handle = -1;
  if (const int failed = calls.open(path, O_RDWR | O_CREAT, 0644, &handle); failed != 0) return failed;
  int failed = calls.write(handle, offset, bytes);
  if (failed == 0 && then == Then::kSyncs) failed = calls.sync(handle);
  const int closed = calls.close(handle);
  return failed != 0 ? failed : closed;
}

std::string read(FileSystemCalls& calls, const std::string& path) {
  int handle = -1;
  if (const int failed = calls.open(path, O_RDONLY, 0, &handle); failed != 0)
    return failed == ENOENT ? "-" : "(error " + std::to_string(failed) + ")";
  std::string out;
  if (const int failed = calls.read(handle, 0, 1 << 20, &out); failed != 0)
    out = "(unreadable: " + std::to_string(failed) + ")";
  EXPECT_EQ(calls.close(handle), 0);
  return out;
}

// The same on all nodes, or what differs.
std::string read_all(NodesWorld& world, const std::string& path) {
  const std::string first = read(world.calls(0), path);
  for (size_t node = 1; node < world.nodes(); ++node)
    if (const std::string here = read(world.calls(node), path); here != first)
      return fmt::format("node {} reads {}, node 0 {}", node, here.substr(0, 30), first.substr(0, 30));
  return first;
}

// "" or what is wrong.
std::string drain(NodesWorld& world) {
  for (size_t node = 0; node < world.nodes(); ++node) {
    if (const Status drained = world.fs(node).drain_all(); !drained.ok()) return drained.to_string();
    if (world.fs(node).stats().kept_aside > 0) return "a file was kept aside, and nobody has changed it";
  }
  return "";
}

std::string expect_one_of(const std::string& found, const std::vector<std::string>& may_be) {
  if (std::find(may_be.begin(), may_be.end(), found) != may_be.end()) return "";
  return fmt::format("{} bytes: {}", found.size(), found.substr(0, 60));
}

const std::string kOne = text_of('A', 30'000), kTwo = text_of('B', 30'000), kThree = text_of('C', 30'000);

std::string both(const std::string& first, const std::string& second) { return first + second; }

struct Story {
  const char* name;
  std::function<void(NodesWorld&)> before;  // the power goes after it
  std::function<std::string(NodesWorld&)> wrong;
};

const std::vector<Story>& stories() {
  static const std::vector<Story> all = {
      {"a new file in a new directory in a new directory",
       [](NodesWorld& world) {
         EXPECT_EQ(world.calls(2).make_directory("new", 0755), 0);
         EXPECT_EQ(world.calls(1).make_directory("new/er", 0755), 0);
         for (const char* name : {"new/er/a", "new/er/b", "new/er/c", "new/er/d"})
           EXPECT_EQ(write(world.calls(0), name, kOne, Then::kSyncs), 0);
       },
       [](NodesWorld& world) -> std::string {
         for (const char* name : {"new/er/a", "new/er/b", "new/er/c", "new/er/d"})
           if (const std::string wrong = expect_one_of(read_all(world, name), {kOne}); !wrong.empty())
             return wrong;
         return "";
       }},
      {"two nodes have written it, and one syncs it",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kCloses), 0);
         EXPECT_EQ(write(world.calls(1), "f", kTwo, Then::kSyncs, kOne.size()), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "f"), {both(kOne, kTwo)}); }},
      {"synced by one that has written nothing",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kCloses), 0);
         EXPECT_EQ(write(world.calls(1), "f", "", Then::kSyncs), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "f"), {kOne}); }},
      {"another node has overwritten it since",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(write(world.calls(1), "f", kTwo, Then::kCloses), 0);
       },
       [](NodesWorld& world) {
         return expect_one_of(read_all(world, "f"), {kOne, kTwo});
       }},
      {"overwritten by the node that had it before, which has older bytes on its disk",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(write(world.calls(1), "f", kTwo, Then::kSyncs), 0);
         EXPECT_EQ(write(world.calls(0), "f", kThree, Then::kCloses), 0);
         EXPECT_EQ(write(world.calls(2), "other", kOne, Then::kSyncs), 0);
       },
       [](NodesWorld& world) {
         return expect_one_of(read_all(world, "f"), {kTwo, kThree});
       }},
      {"made longer since, by another node",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(write(world.calls(1), "f", kTwo, Then::kCloses, kOne.size()), 0);
       },
       [](NodesWorld& world) {
         return expect_one_of(read_all(world, "f"), {kOne, both(kOne, kTwo)});
       }},
      {"cut by another node, and made longer again",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", both(kOne, kTwo), Then::kSyncs), 0);
         EXPECT_EQ(world.calls(1).truncate("f", kOne.size()), 0);
         EXPECT_EQ(write(world.calls(2), "f", kThree, Then::kCloses, kOne.size()), 0);
       },
       [](NodesWorld& world) {
         return expect_one_of(read_all(world, "f"), {kOne, both(kOne, kThree)});
       }},
      {"cut to nothing",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(world.calls(1).truncate("f", 0), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "f"), {""}); }},
      {"of the backing, changed in places",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "old", "NEW", Then::kSyncs, 3), 0);
         EXPECT_EQ(write(world.calls(1), "old", "synced", Then::kSyncs, 10), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "old"), {"oldNEWd olsyncedo"}); }},
      {"brought to the backing, and overwritten by another node",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(drain(world), "");
         EXPECT_EQ(write(world.calls(1), "f", kTwo, Then::kCloses), 0);
       },
       [](NodesWorld& world) {
         return expect_one_of(read_all(world, "f"), {kOne, kTwo});
       }},
      {"replaced by a rename of another node",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(write(world.calls(1), "f.new", kTwo, Then::kSyncs), 0);
         EXPECT_EQ(world.calls(2).rename("f.new", "f", 0), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "f"), {kTwo}); }},
      {"renamed to another directory, then synced",
       [](NodesWorld& world) {
         EXPECT_EQ(world.calls(1).make_directory("to", 0755), 0);
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kCloses), 0);
         EXPECT_EQ(world.calls(2).rename("f", "to/g", 0), 0);
         EXPECT_EQ(write(world.calls(0), "to/g", "", Then::kSyncs), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "to/g"), {kOne}); }},
      {"removed by another node",
       [](NodesWorld& world) {
         EXPECT_EQ(write(world.calls(0), "f", kOne, Then::kSyncs), 0);
         EXPECT_EQ(world.calls(1).unlink("f"), 0);
       },
       [](NodesWorld& world) { return expect_one_of(read_all(world, "f"), {"-"}); }},
  };
  return all;
}

std::string lose_power(const Story& story, const Nodes& which, io::CrashMode mode, uint64_t seed,
                       const ShareRules& rules = {}) {
  NodesWorld world(kNodes, Storage::kLosesPower);
  std::ofstream(world.backing() + "/old") << "old old old old o";
  world.share_rules = rules;
  world.start();
  story.before(world);
  world.lose_power(which, seed, mode);
  std::string wrong = story.wrong(world);
  if (!wrong.empty()) return wrong;
  // What its next server writes counts, and not as a late copy.
  for (const size_t node : which) {
    const std::string again = fmt::format("again on {}", node);
    if (write(world.calls(node), "later", again, Then::kCloses) != 0) return "a later write fails";
    if (read_all(world, "later") != again) return "a later write is not seen";
  }
  if (wrong = drain(world); !wrong.empty()) return wrong;
  wrong = story.wrong(world);
  return wrong.empty() ? "" : "after a drain: " + wrong;
}

TEST(JobFsPowerNodes, WhatWasSyncedIsThere) {
  size_t runs = 0;
  for (const Story& story : stories())
    for (const Nodes& which : kSubsets) {
      const auto mode = runs % 2 == 0 ? io::CrashMode::kDropAll : io::CrashMode::kTearPages;
      EXPECT_EQ(lose_power(story, which, mode, 1 + runs), "")
          << story.name << ", nodes " << fmt::format("{}", fmt::join(which, " "));
      ++runs;
    }
  std::printf("%zu stories, %zu losses of power\n", stories().size(), runs);
}

size_t failing(const ShareRules& rules) {
  size_t wrong = 0;
  for (const Story& story : stories())
    wrong += !lose_power(story, {0, 1, 2}, io::CrashMode::kDropAll, 1, rules).empty();
  return wrong;
}
TEST(JobFsPowerNodes, CanaryARootThatDoesNotSyncACommit) {
  ShareRules rules;
  rules.syncs_commits = false;
  EXPECT_GT(failing(rules), 0u);
}
TEST(JobFsPowerNodes, CanaryANodeThatTellsTheRootBeforeItsBytesAreDurable) {
  ShareRules rules;
  rules.keeps_first = false;
  EXPECT_GT(failing(rules), 0u);
}
TEST(JobFsPowerNodes, CanaryARootThatDoesNotAskForTheBytesOfOthers) {
  ShareRules rules;
  rules.asks_owners = false;
  EXPECT_GT(failing(rules), 0u);
}

// A file whose root is that node.
std::string file_of(NodesWorld& world, NodeId root) {
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("file{}", i);
    EXPECT_EQ(write(world.calls(0), name, kOne, Then::kSyncs), 0);
    const auto entry = world.names(0).find(meta::kRootDirectory, name);
    if (entry.ok() && root_of(entry->file) == root) return name;
    EXPECT_EQ(world.calls(0).unlink(name), 0);
  }
  ADD_FAILURE() << "no name has node " << root << " as its root";
  return "";
}

// Node 0 syncs what it and node 2 have written, of a file whose root is node 1. The disk of `fails` makes one
// call less each time, and then `which` lose power.
size_t at_each_step(size_t fails, const Nodes& which) {
  size_t points = 0, acknowledged = 0;
  for (uint64_t step = 1; acknowledged == 0; ++step, ++points) {
    NodesWorld world(kNodes, Storage::kLosesPower);
    world.start();
    const std::string file = file_of(world, 1);
    EXPECT_EQ(write(world.calls(2), file, kTwo, Then::kCloses, kOne.size()), 0);
    int handle = -1;
    EXPECT_EQ(world.calls(0).open(file, O_RDWR, 0, &handle), 0);
    EXPECT_EQ(world.calls(0).write(handle, 0, kThree), 0);
    io::Fault fault;
    fault.nth = step;
    fault.from_then_on = true;
    fault.status = errno_status(EIO, "the power fails");
    world.disk(fails).inject(fault);
    const bool synced = world.calls(0).sync(handle) == 0;
    const bool reached = world.disk(fails).faults() > 0;
    EXPECT_TRUE(synced || reached);
    world.lose_power(which, step, step % 2 == 0 ? io::CrashMode::kDropAll : io::CrashMode::kTearPages);
    // Not acknowledged: each node's bytes are old or new, and what was synced before is there.
    const std::string now = read_all(world, file);
    std::vector<std::string> may_be = {both(kThree, kTwo)};
    if (!synced) may_be.insert(may_be.end(), {kOne, kThree, both(kOne, kTwo)});
    EXPECT_EQ(expect_one_of(now, may_be), "") << "step " << step << (synced ? ", acknowledged" : "");
    EXPECT_EQ(drain(world), "");
    EXPECT_EQ(read_all(world, file), now);
    if (!reached) ++acknowledged;
    if (step > 500) return points;
  }
  return points;
}

TEST(JobFsPowerNodes, PowerFailsAtEachStepOfAnFsync) {
  size_t points = 0;
  const std::vector<std::pair<const char*, size_t>> roles = {{"writer", 0}, {"root", 1}, {"other writer", 2}};
  for (const auto& [name, node] : roles)
    for (const Nodes& which : {Nodes{node}, Nodes{0, 1, 2}}) {
      const size_t visited = at_each_step(node, which);
      std::printf("the disk of the %s: %zu points, %zu nodes without power\n", name, visited, which.size());
      EXPECT_GT(visited, 0u);
      points += visited;
    }
  EXPECT_GT(points, 12u);
}

// Nodes write, sync, cut and drain one file, and lose power, in any order: each block is what it was when it
// was synced last, or what came later.
class Mixed {
 public:
  explicit Mixed(uint64_t seed) : rng_(seed), world_(kNodes, Storage::kLosesPower) {}

  std::string run() {
    world_.start();
    for (int i = 0; i < 60 && problem_.empty(); ++i) step();
    return problem_;
  }
  std::map<std::string, int> counts;

 private:
  static constexpr size_t kBlockBytes = 700, kBlocks = 8;
  struct Version {
    uint64_t number = 0;
    bool durable = false;
  };

  void step() {
    const size_t node = rng_.below(kNodes);
    const uint64_t what = rng_.below(100);
    if (what < 45) return write_block(node, Then::kCloses);
    if (what < 65) return write_block(node, Then::kSyncs);
    if (what < 72) return sync(node);
    if (what < 82) return bring();
    lose();
  }
  void write_block(size_t node, Then then) {
    const size_t block = rng_.below(kBlocks);
    const uint64_t number = ++numbers_;
    expect(write(world_.calls(node), "f", block_of(number), then, block * kBlockBytes), "a write");
    history_[block].push_back({number, false});
    ++counts[then == Then::kSyncs ? "write and sync" : "write"];
    if (then == Then::kSyncs) all_durable();
  }
  void sync(size_t node) {
    expect(write(world_.calls(node), "f", "", Then::kSyncs), "a sync");
    all_durable();
    ++counts["sync"];
  }
  void bring() {
    if (const std::string wrong = drain(world_); !wrong.empty()) problem_ = wrong;
    all_durable();
    ++counts["drain"];
  }
  void lose() {
    Nodes which;
    for (size_t node = 0; node < kNodes; ++node)
      if (rng_.chance(1, 2)) which.push_back(node);
    world_.lose_power(which, rng_.next(),
                      rng_.chance(1, 2) ? io::CrashMode::kDropAll : io::CrashMode::kTearPages);
    ++counts["loss of power"];
    std::string now = read_all(world_, "f");
    if (now == "-") now.clear();  // nobody has ever synced it
    for (size_t block = 0; block < kBlocks && problem_.empty(); ++block) check(block, now);
  }
  void check(size_t block, const std::string& now) {
    std::vector<Version>& versions = history_[block];
    const std::string here =
        now.size() <= block * kBlockBytes ? "" : now.substr(block * kBlockBytes, kBlockBytes);
    const std::string none(here.size(), '\0');
    size_t at = versions.size();
    while (at > 0 && here != block_of(versions[at - 1].number)) --at;
    const bool durable = std::any_of(versions.begin() + static_cast<ptrdiff_t>(at), versions.end(),
                                     [](const Version& each) { return each.durable; });
    if (at == 0 && (here != none || durable))
      problem_ = fmt::format("block {}: {} is none of its bytes", block, here.substr(0, 20));
    else if (durable)
      problem_ = fmt::format("block {}: it has version {}, and a later one was synced", block,
                             versions[at - 1].number);
    // What came later is gone for good; what is there may still go.
    versions.resize(at);
  }
  void all_durable() {
    for (auto& [block, versions] : history_)
      if (!versions.empty()) versions.back().durable = true;
  }
  void expect(int failed, const char* what) {
    if (failed != 0 && problem_.empty()) problem_ = fmt::format("{} fails: {}", what, failed);
  }
  static std::string block_of(uint64_t number) {
    std::string text = fmt::format("version {} ", number);
    text.resize(kBlockBytes, static_cast<char>('a' + number % 26));
    return text;
  }

  Rng rng_;
  NodesWorld world_;
  uint64_t numbers_ = 0;
  std::map<size_t, std::vector<Version>> history_;
  std::string problem_;
};

TEST(JobFsPowerNodes, NoBlockIsOlderThanItsLastSync) {
  std::map<std::string, int> counts;
  for (uint64_t seed = 1; seed <= 6 * seeds(); ++seed) {
    Mixed mixed(seed);
    ASSERT_EQ(mixed.run(), "") << "seed " << seed;
    for (const auto& [what, count] : mixed.counts) counts[what] += count;
  }
  for (const auto& [what, count] : counts) {
    std::printf("  %6d %s\n", count, what.c_str());
    EXPECT_GT(count, 5) << what;
  }
}

// Predicted: a sync of the node's journal, one of the root's log and one of its names.
TEST(JobFsPowerNodes, AnFsyncTakesThreeSyncsAndBringsNothingToTheBacking) {
  NodesWorld world(2, Storage::kLosesPower);
  world.start();
  const std::string file = file_of(world, 1);
  int handle = -1;
  ASSERT_EQ(world.calls(0).open(file, O_RDWR, 0, &handle), 0);
  const auto syncs = [&](size_t node) { return world.disk(node).calls(io::CallKind::kSync); };
  constexpr uint64_t kTimes = 10;
  const uint64_t before[] = {syncs(0), syncs(1)};
  for (uint64_t i = 0; i < kTimes; ++i) {
    ASSERT_EQ(world.calls(0).write(handle, i * kOne.size(), kOne), 0);
    ASSERT_EQ(world.calls(0).sync(handle), 0);
  }
  std::printf("an fsync: %.1f syncs on its node, %.1f on the root\n",
              static_cast<double>(syncs(0) - before[0]) / kTimes,
              static_cast<double>(syncs(1) - before[1]) / kTimes);
  EXPECT_EQ(syncs(0) - before[0], kTimes);
  EXPECT_EQ(syncs(1) - before[1], 2 * kTimes);
  EXPECT_EQ(world.calls(0).close(handle), 0);
  EXPECT_EQ(world.fs(0).stats().drained_files, 0u);
  EXPECT_FALSE(std::filesystem::exists(world.backing() + "/" + file));
  EXPECT_FALSE(world.fs(0).stats().fsync_drains);
}

}  // namespace
}  // namespace swale::fs::job_fs_power_nodes_test
