// Times that programs set of files whose bytes are on the backing: they come there, too, with one node and
// with several, whatever is killed; nobody takes them for a change by others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fs/job/job_marks.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/hanging_calls.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_times_test {
namespace {

constexpr int64_t kTime = 1'500'000'000;

struct stat look(FileCalls& on, const std::string& path) {
  struct stat found = {};
  EXPECT_EQ(on.look(path, &found), 0) << path;
  return found;
}
int64_t modified(FileCalls& on, const std::string& path) { return nanos_of(look(on, path).st_mtim); }
std::vector<int64_t> times(FileCalls& on, const std::string& path) {
  const struct stat found = look(on, path);
  return {nanos_of(found.st_atim), nanos_of(found.st_mtim), nanos_of(found.st_ctim)};
}

void write(FileCalls& on, const std::string& path, uint64_t offset, const std::string& bytes) {
  int handle = -1;
  ASSERT_EQ(on.open(path, O_RDWR | O_CREAT, 0644, &handle), 0) << path;
  EXPECT_EQ(on.write(handle, offset, bytes), 0);
  EXPECT_EQ(on.close(handle), 0);
}

// A job of one node alone, or of several.
struct Tree {
  std::function<JobFs&(size_t)> fs;
  std::function<FileCalls&(size_t)> calls;
  size_t nodes = 1;
  std::string backing;
  std::function<void()> restart;
};

void on_each_tree(const std::function<void(Tree&)>& body) {
  for (const size_t nodes : {0, 1, 2, 3}) {
    SCOPED_TRACE(std::to_string(nodes) + " nodes that may write each other's files");
    if (nodes == 0) {
      JobWorld world;
      world.start();
      Tree tree{[&](size_t) -> JobFs& { return world.fs(); },
                [&](size_t) -> FileCalls& { return world.calls(); }, 1, world.backing(),
                [&] { world.restart(); }};
      body(tree);
      continue;
    }
    NodesWorld world(nodes);
    world.start();
    Tree tree{[&](size_t node) -> JobFs& { return world.fs(node); },
              [&](size_t node) -> FileCalls& { return world.calls(node); }, nodes, world.backing(),
              [&] { world.restart(); }};
    body(tree);
  }
}

// All is on the backing, and nothing was kept aside.
void drain(Tree& tree) {
  const Status drained = tree.fs(0).drain_everywhere();
  EXPECT_TRUE(drained.ok()) << drained.to_string();
  for (size_t node = 0; node < tree.nodes; ++node) {
    EXPECT_EQ(tree.fs(node).stats().undrained_files, 0u) << node;
    EXPECT_EQ(tree.fs(node).stats().kept_aside, 0u) << node;
  }
}

TEST(JobFsTimes, TheyComeToTheBackingWithoutAChangeThatProgramsSee) {
  on_each_tree([](Tree& tree) {
    PlainCalls plain(tree.backing);
    for (size_t node = 0; node < tree.nodes; ++node)
      std::ofstream(tree.backing + "/f" + std::to_string(node)) << "old bytes";
    for (size_t node = 0; node < tree.nodes; ++node) {
      const std::string name = "f" + std::to_string(node);
      ASSERT_EQ(tree.calls(node).set_time(name, kTime + static_cast<int64_t>(node)), 0);
      std::vector<std::vector<int64_t>> before;
      for (size_t on = 0; on < tree.nodes; ++on) before.push_back(times(tree.calls(on), name));
      EXPECT_EQ(before[0][1], (kTime + static_cast<int64_t>(node)) * kSecondNanos);
      drain(tree);
      EXPECT_EQ(modified(plain, name), before[0][1]);
      EXPECT_EQ(nanos_of(look(plain, name).st_atim), before[0][0]);
      for (size_t on = 0; on < tree.nodes; ++on)
        EXPECT_EQ(times(tree.calls(on), name), before[on]) << "node " << on;
    }
    for (size_t node = 0; node < tree.nodes; ++node) {
      const std::string name = "f" + std::to_string(node);
      write(tree.calls(tree.nodes - 1 - node), name, 0, "NEW");
      const int64_t written = modified(tree.calls(0), name);
      drain(tree);
      EXPECT_EQ(content(tree.backing + "/" + name), "NEW bytes") << "in its place";
      EXPECT_EQ(modified(plain, name), written);
    }
  });
}

TEST(JobFsTimes, OfAFileThatADrainHasBroughtAndOfOneWithBytesToDrain) {
  on_each_tree([](Tree& tree) {
    PlainCalls plain(tree.backing);
    const size_t last = tree.nodes - 1;
    write(tree.calls(0), "f", 0, "bytes");
    drain(tree);
    ASSERT_EQ(tree.calls(last).set_time("f", kTime), 0);
    drain(tree);
    EXPECT_EQ(modified(plain, "f"), kTime * kSecondNanos);
    write(tree.calls(0), "f", 5, " more");
    ASSERT_EQ(tree.calls(last).set_time("f", kTime + 1), 0);
    drain(tree);
    EXPECT_EQ(modified(plain, "f"), (kTime + 1) * kSecondNanos);
    ASSERT_EQ(tree.calls(0).set_time("f", kTime + 2), 0);
    ASSERT_EQ(tree.calls(last).rename("f", "g", 0), 0);
    ASSERT_EQ(tree.calls(last).set_time("g", kTime + 3), 0);
    drain(tree);
    EXPECT_EQ(modified(plain, "g"), (kTime + 3) * kSecondNanos);
    ASSERT_EQ(tree.calls(0).set_time("g", kTime), 0);
    ASSERT_EQ(tree.calls(last).unlink("g"), 0);
    drain(tree);
    EXPECT_EQ(content(tree.backing + "/f") + content(tree.backing + "/g"), "(missing)(missing)");
  });
}

// The file is open to be written meanwhile, and known by what it was before. Its root is the node of the
// writer, or another one.
void write_later(Tree& tree, FileCalls& writer, const std::string& name) {
  SCOPED_TRACE(name);
  PlainCalls plain(tree.backing);
  std::ofstream(tree.backing + "/" + name) << "old bytes";
  int handle = -1;
  ASSERT_EQ(writer.open(name, O_RDWR, 0, &handle), 0);
  ASSERT_EQ(tree.calls(0).set_time(name, kTime), 0);
  drain(tree);
  EXPECT_EQ(modified(plain, name), kTime * kSecondNanos);
  ASSERT_EQ(tree.calls(0).set_time(name, kTime + 1), 0);
  ASSERT_EQ(writer.write(handle, 0, "NEW"), 0);
  drain(tree);
  ASSERT_EQ(writer.close(handle), 0);
  drain(tree);
  EXPECT_EQ(content(tree.backing + "/" + name), "NEW bytes");
  const int64_t written = modified(tree.calls(0), name);
  EXPECT_GT(written, (kTime + 1) * kSecondNanos);
  for (size_t node = 0; node < tree.nodes; ++node) EXPECT_EQ(modified(tree.calls(node), name), written);
  EXPECT_EQ(modified(plain, name), written);
}

TEST(JobFsTimes, AWriteThatComesLaterWins) {
  on_each_tree([](Tree& tree) {
    for (size_t file = 0; file < 6; ++file)
      write_later(tree, tree.calls(file % tree.nodes), "f" + std::to_string(file));
  });
}

TEST(JobFsTimes, TheyOutliveAKillOfAllServers) {
  on_each_tree([](Tree& tree) {
    PlainCalls plain(tree.backing);
    for (size_t node = 0; node < tree.nodes; ++node) {
      const std::string name = "f" + std::to_string(node);
      std::ofstream(tree.backing + "/" + name) << "old bytes";
      ASSERT_EQ(tree.calls(node).set_time(name, kTime), 0);
    }
    tree.restart();
    drain(tree);
    for (size_t node = 0; node < tree.nodes; ++node) {
      const std::string name = "f" + std::to_string(node);
      EXPECT_EQ(modified(plain, name), kTime * kSecondNanos);
      EXPECT_EQ(modified(tree.calls(node), name), kTime * kSecondNanos);
    }
    tree.restart();
    for (size_t node = 0; node < tree.nodes; ++node) EXPECT_EQ(tree.fs(node).stats().undrained_files, 0u);
  });
}

TEST(JobFsTimes, AFileThatOthersHaveChangedKeepsTheirs) {
  NodesWorld world(2);
  PlainCalls plain(world.backing());
  world.start();
  write(world.calls(0), "f", 0, "bytes");
  ASSERT_TRUE(world.fs(0).drain_everywhere().ok());
  ASSERT_EQ(world.calls(1).set_time("f", kTime), 0);
  std::ofstream(world.backing() + "/f") << "theirs";
  const int64_t theirs = modified(plain, "f");
  EXPECT_TRUE(world.fs(0).drain_everywhere().ok());
  EXPECT_EQ(modified(plain, "f"), theirs);
  std::filesystem::remove(world.backing() + "/f");
  ASSERT_EQ(world.calls(1).set_time("f", kTime), ENOENT);
}

// The root of the file, which is the one node, fails at each call of a drain, is killed there or goes on. The
// file is written in its place afterwards.
struct Failing {
  bool restarts = false;
  bool announces = true;

  size_t points = 0, aside = 0;

  bool fail(size_t nth) {
    NodesWorld world(1);
    world.drain_rules.mark = announces;
    PlainCalls plain(world.backing());
    std::ofstream(world.backing() + "/f") << "old bytes";
    world.start();
    EXPECT_EQ(world.calls(0).set_time("f", kTime), 0);
    Status drained;
    HangingCalls calls(
        world.backing(), nth, [&] { drained = world.fs(0).drain_all(); }, EIO);
    const bool failed_call = calls.hangs();
    calls.let_go();
    SCOPED_TRACE(calls.where() + ": " + drained.to_string());
    EXPECT_EQ(world.fs(0).stats().undrained_files, drained.ok() ? 0u : 1u);
    if (restarts) world.restart();
    EXPECT_TRUE(world.fs(0).drain_all().ok());
    EXPECT_EQ(modified(plain, "f"), kTime * kSecondNanos);
    write(world.calls(0), "f", 0, "NEW");
    const bool in_place = world.fs(0).drain_all().ok() && content(world.backing() + "/f") == "NEW bytes";
    EXPECT_TRUE(in_place || !announces);
    aside += in_place ? 0 : 1;
    points += failed_call ? 1 : 0;
    return failed_call;
  }
  void fail_each_call() {
    for (size_t nth = 1; !testing::Test::HasFailure() && aside == 0 && fail(nth);) ++nth;
  }
};

TEST(JobFsTimes, ADrainOfThemThatFailsIsMadeAgainByThisServerOrTheNext) {
  for (const bool restarts : {false, true}) {
    Failing failing{restarts};
    failing.fail_each_call();
    std::printf("%zu calls failed\n", failing.points);
    EXPECT_GE(failing.points, 4u);
  }
}

TEST(JobFsTimes, CanaryARootThatDoesNotSayWhatTheFileBecomesTakesItForAnotherOne) {
  Failing failing{true, false};
  failing.fail_each_call();
  EXPECT_GT(failing.aside, 0u);
}

TEST(JobFsTimes, CanaryTimesThatAreNothingToDrainStayBehind) {
  NodesWorld world(2);
  world.adjust = [](JobFsOptions& options) { options.brings_times = false; };
  PlainCalls plain(world.backing());
  std::ofstream(world.backing() + "/f") << "old bytes";
  world.start();
  ASSERT_EQ(world.calls(0).set_time("f", kTime), 0);
  EXPECT_EQ(modified(world.calls(1), "f"), kTime * kSecondNanos);
  EXPECT_TRUE(world.fs(0).drain_everywhere().ok());
  EXPECT_NE(modified(plain, "f"), kTime * kSecondNanos);
}

// One node sets times, one writes, one drains: what the tree has in the end is what the backing gets.
TEST(JobFsTimes, NodesThatSetTimesWriteAndDrainAtOnceAgreeWithTheBacking) {
  constexpr size_t kFiles = 3;
  constexpr int kRounds = 40;
  NodesWorld world(3);
  PlainCalls plain(world.backing());
  const auto name = [](size_t file) { return "f" + std::to_string(file); };
  for (size_t file = 0; file < kFiles; ++file) std::ofstream(world.backing() + "/" + name(file)) << "old";
  world.start();
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i)
      for (size_t file = 0; file < kFiles; ++file)
        EXPECT_EQ(world.calls(0).set_time(name(file), kTime + i), 0);
  });
  threads.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) write(world.calls(1), name(1 + i % 2), 3, std::to_string(i));
  });
  threads.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      const Status drained = world.fs(2).drain_everywhere();
      EXPECT_TRUE(drained.ok()) << drained.to_string();
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(world.fs(2).drain_everywhere().ok());
  for (size_t node = 0; node < world.nodes(); ++node) {
    EXPECT_EQ(world.fs(node).stats().kept_aside, 0u);
    EXPECT_EQ(world.fs(node).stats().failed_drains, 0u) << world.fs(node).stats().last_failure;
    for (size_t file = 0; file < kFiles; ++file)
      EXPECT_EQ(modified(world.calls(node), name(file)), modified(plain, name(file))) << name(file);
  }
  EXPECT_EQ(modified(plain, "f0"), (kTime + kRounds - 1) * kSecondNanos);
  EXPECT_EQ(content(world.backing() + "/f2"), "old39");
}

}  // namespace
}  // namespace swale::fs::job_fs_times_test
