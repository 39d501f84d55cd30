// JobFs: what files and directories have beside their bytes, while a drain is under way.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "fs/job/job_marks.h"
#include "fs/job/testing/job_world.h"

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
