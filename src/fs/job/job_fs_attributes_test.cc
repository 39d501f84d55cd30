// JobFs: what files and directories have beside their bytes, while a drain is under way.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fs/job/job_marks.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_attributes_test {
namespace {

constexpr const char* kAttribute = "user.kept";

struct Change {
  const char* name;
  std::function<int(FileCalls& on, const std::string& path)> make;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"chmod", [](FileCalls& on, const std::string& path) { return on.set_mode(path, 0700); }},
      {"utimens", [](FileCalls& on, const std::string& path) { return on.set_time(path, 1'500'000'000); }},
      {"removexattr",
       [](FileCalls& on, const std::string& path) { return on.remove_attribute(path, kAttribute); }},
      {"setxattr",
       [](FileCalls& on, const std::string& path) { return on.set_attribute(path, kAttribute, "anew"); }},
  };
  return all;
}

void write(FileCalls& on, const std::string& path, const std::string& bytes) {
  int handle = -1;
  ASSERT_EQ(on.open(path, O_RDWR | O_CREAT, 0644, &handle), 0) << path;
  EXPECT_EQ(on.write(handle, 0, bytes), 0);
  EXPECT_EQ(on.close(handle), 0);
}

// A drain hides its own changes of a directory, and none of a program's.
TEST(JobFsAttributes, WhatAProgramChangesOfADirectoryMovesItsTimeAlsoWhileFilesComeThere) {
  JobWorld world;
  world.devices_may_fail = true;
  world.start();
  FileCalls& calls = world.calls();
  ASSERT_EQ(calls.make_directory("d", 0755), 0);
  ASSERT_EQ(calls.set_attribute("d", kAttribute, "value"), 0);
  const auto changed_ns = [&] {
    struct stat found = {};
    EXPECT_EQ(calls.look("d", &found), 0);
    return nanos_of(found.st_ctim);
  };
  size_t points = 0;
  for (const Change& change : changes()) {
    SCOPED_TRACE(change.name);
    write(calls, std::string("d/") + change.name, "bytes");
    const int64_t before = changed_ns();
    int64_t at_once = 0;
    world.backing_faults().set_hook([&](const io::Call& call) -> Status {
      if (call.kind != io::CallKind::kRename || at_once != 0) return {};
      EXPECT_EQ(changed_ns(), before) << "canary: the drain is hidden";
      EXPECT_EQ(change.make(calls, "d"), 0);
      at_once = changed_ns();
      ++points;
      return {};
    });
    EXPECT_TRUE(world.fs().drain_all().ok());
    world.backing_faults().clear();
    EXPECT_LT(before, at_once);
    EXPECT_EQ(changed_ns(), at_once) << "after the drain";
  }
  std::printf("%zu changes of a directory while a drain gave names in it\n", points);
  EXPECT_EQ(points, changes().size());
}

// The root of a file, which any node may be, gives it its name there.
TEST(JobFsAttributes, ADrainOfAnotherNodeChangesNoTimeOfADirectoryThatProgramsSee) {
  NodesWorld world(2);
  world.start();
  ASSERT_EQ(world.calls(0).make_directory("d", 0755), 0);
  const auto times = [&](FileCalls& on) {
    struct stat found = {};
    EXPECT_EQ(on.look("d", &found), 0);
    return std::pair(nanos_of(found.st_mtim), nanos_of(found.st_ctim));
  };
  PlainCalls plain(world.backing());
  constexpr size_t kFiles = 8;
  for (size_t i = 0; i < kFiles; ++i) {
    FileCalls& maker = world.calls(i % 2);
    int handle = -1;
    ASSERT_EQ(maker.open("d/f" + std::to_string(i), O_RDWR | O_CREAT, 0644, &handle), 0);
    EXPECT_EQ(maker.write(handle, 0, "bytes"), 0);
    const auto first = times(world.calls(0)), second = times(world.calls(1)), there = times(plain);
    EXPECT_EQ(maker.sync(handle), 0);  // a drain
    EXPECT_EQ(times(world.calls(0)), first) << i;
    EXPECT_EQ(times(world.calls(1)), second) << i;
    EXPECT_LT(there.second, times(plain).second) << "canary: the drain has changed the directory";
    EXPECT_EQ(maker.close(handle), 0);
  }
  for (const size_t node : {0, 1}) {
    const auto before = times(world.calls(1 - node));
    EXPECT_EQ(world.calls(node).set_mode("d", node == 0 ? 0700 : 0750), 0);
    EXPECT_LT(before.second, times(world.calls(1 - node)).second) << "a program of the other node";
  }
}

// ---- what a file has beside its bytes

enum class Before { kNothing, kOther };  // what the backing has when the file is written

struct Drained {
  const Change& change;
  Before before;
  bool dresses_again = true;

  size_t points = 0, lost = 0;

  void change_at_each_call();
  bool change_at(JobWorld& world, size_t nth);  // false: the drain makes fewer calls
  void compare(JobWorld& world, const std::string& name);
};

// The change is made by another thread: one that comes while the file gets its name waits for the drain.
bool Drained::change_at(JobWorld& world, size_t nth) {
  constexpr auto kUsually = std::chrono::milliseconds(30);  // after which the drain goes on
  const std::string name = "f" + std::to_string(nth);
  FileCalls& calls = world.calls();
  if (before == Before::kOther) std::ofstream(world.backing() + "/" + name) << "what was there";
  write(calls, name, "bytes");
  if (before == Before::kNothing) {
    EXPECT_EQ(calls.set_attribute(name, kAttribute, "value"), 0);
  }
  std::thread changer;
  size_t made = 0;
  std::promise<void> changed;
  world.backing_faults().set_hook([&](const io::Call&) -> Status {
    if (++made != nth) return {};
    changer = std::thread([&] {
      FileSystemCalls own(world.fs());
      const int failed = change.make(own, name);
      EXPECT_TRUE(failed == 0 || (failed == ENODATA && before == Before::kOther)) << failed;
      changed.set_value();
    });
    static_cast<void>(changed.get_future().wait_for(kUsually));
    return {};
  });
  EXPECT_TRUE(world.fs().drain_all().ok());
  world.backing_faults().clear();
  if (!changer.joinable()) return false;
  changer.join();
  compare(world, name);
  return true;
}

void Drained::compare(JobWorld& world, const std::string& name) {
  PlainCalls plain(world.backing());
  struct stat in_tree = {}, there = {};
  std::string value, value_there;
  EXPECT_EQ(world.calls().look(name, &in_tree), 0);
  EXPECT_EQ(plain.look(name, &there), 0);
  const int has = world.calls().get_attribute(name, kAttribute, &value);
  const int has_there = plain.get_attribute(name, kAttribute, &value_there);
  const bool same = in_tree.st_mode == there.st_mode &&
                    nanos_of(in_tree.st_mtim) == nanos_of(there.st_mtim) &&
                    in_tree.st_size == there.st_size && has == has_there && value == value_there;
  lost += same ? 0 : 1;
  ++points;
  EXPECT_TRUE(same || !dresses_again) << name;
}

void Drained::change_at_each_call() {
  JobWorld world;
  world.devices_may_fail = true;
  world.options().dresses_again = dresses_again;
  world.start();
  for (size_t nth = 1; change_at(world, nth); ++nth) {
  }
  EXPECT_EQ(world.fs().stats().kept_aside, 0u);
}

TEST(JobFsAttributes, WhatAProgramChangesOfAFileWhileItIsDrainedIsOnTheBackingAfterwards) {
  size_t points = 0;
  for (const Change& change : changes()) {
    for (const Before before : {Before::kNothing, Before::kOther}) {
      SCOPED_TRACE(std::string(change.name) + (before == Before::kOther ? " of a file that was there" : ""));
      Drained drained{change, before};
      drained.change_at_each_call();
      points += drained.points;
    }
  }
  std::printf("%zu changes at calls of a drain\n", points);
  EXPECT_GT(points, 100u);
}

TEST(JobFsAttributes, CanaryADrainThatDressesAFileOnceLosesChanges) {
  for (const Change& change : changes()) {
    Drained drained{change, Before::kNothing, false};
    drained.change_at_each_call();
    EXPECT_GT(drained.lost, 0u) << change.name;
  }
}

// The drain must not take the time that this node has set for a change by others.
TEST(JobFsAttributes, AFileWhoseTimeIsSetBetweenItsWritesIsDrainedInItsPlace) {
  JobWorld world;
  std::ofstream(world.backing() + "/f") << "what was there";
  world.start();
  int handle = -1;
  ASSERT_EQ(world.calls().open("f", O_RDWR, 0, &handle), 0);
  for (const int64_t time : {1'500'000'000, 1'600'000'000, 1'700'000'000}) {
    EXPECT_EQ(world.calls().set_time("f", time), 0);
    EXPECT_EQ(world.calls().write(handle, 0, std::to_string(time)), 0);
    EXPECT_EQ(world.calls().set_time("f", time), 0);
    ASSERT_TRUE(world.fs().drain_all().ok());
    struct stat there = {};
    EXPECT_EQ(::stat((world.backing() + "/f").c_str(), &there), 0);
    EXPECT_EQ(there.st_mtim.tv_sec, time);
  }
  EXPECT_EQ(world.calls().close(handle), 0);
  EXPECT_EQ(world.fs().stats().kept_aside, 0u);
}

}  // namespace
}  // namespace swale::fs::job_fs_attributes_test
