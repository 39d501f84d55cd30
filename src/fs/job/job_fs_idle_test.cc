// What comes to the backing while nobody writes, without anybody asking.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "fs/job/testing/content.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_idle_test {
namespace {

constexpr int kLooksMax = 6'000;  // 10 ms apart; reached by what never comes only
constexpr int kCanaryLooks = 50;  // for what must not come
constexpr int64_t kTime = 1'500'000'000;

bool comes(const std::function<bool()>& is_there, int looks = kLooksMax) {
  for (int i = 0; i < looks; ++i) {
    if (is_there()) return true;
    ::usleep(10'000);
  }
  return is_there();
}

int write(FileCalls& on, const std::string& path, const std::string& bytes) {
  int handle = -1;
  EXPECT_EQ(on.open(path, O_RDWR | O_CREAT, 0644, &handle), 0);
  EXPECT_EQ(on.write(handle, 0, bytes), 0);
  return handle;
}

void drain_alone(JobFsOptions& options) {
  options.drains_alone = true;
  options.idle = milliseconds(1);
}

TEST(JobFsIdle, AFileThatIsClosedComesToTheBacking) {
  JobWorld world;
  drain_alone(world.options());
  world.start();
  ASSERT_EQ(world.calls().close(write(world.calls(), "f", "bytes")), 0);
  EXPECT_TRUE(comes([&] { return content(world.backing() + "/f") == "bytes"; }));
  EXPECT_TRUE(comes([&] { return world.fs().stats().undrained_files == 0; }));
  EXPECT_TRUE(comes([&] { return world.fs().stats().drained_files == 1; })) << "counted when it is over";
}

TEST(JobFsIdle, AFileThatStaysOpenComesToTheBackingToo) {
  JobWorld world;
  drain_alone(world.options());
  world.start();
  const int file = write(world.calls(), "f", "bytes");
  EXPECT_TRUE(comes([&] { return content(world.backing() + "/f") == "bytes"; }));
  ASSERT_EQ(world.calls().write(file, 5, ", and more"), 0);
  std::string out;
  EXPECT_EQ(world.calls().read(file, 0, 100, &out), 0);
  EXPECT_EQ(out, "bytes, and more");
  EXPECT_TRUE(comes([&] { return content(world.backing() + "/f") == "bytes, and more"; }));
  EXPECT_EQ(world.calls().close(file), 0);
  EXPECT_EQ(world.fs().stats().kept_aside, 0u);
}

TEST(JobFsIdle, SoDoFilesAndTimesOfSeveralNodes) {
  NodesWorld world(2);
  world.adjust = drain_alone;
  std::ofstream(world.backing() + "/old") << "was there";
  world.start();
  for (const size_t node : {0, 1}) {
    const std::string name = "f" + std::to_string(node);
    ASSERT_EQ(world.calls(node).close(write(world.calls(node), name, "bytes")), 0);
    EXPECT_TRUE(comes([&] { return content(world.backing() + "/" + name) == "bytes"; })) << name;
    ASSERT_EQ(world.calls(node).set_time("old", kTime + static_cast<int64_t>(node)), 0);
    EXPECT_TRUE(comes([&] {
      struct stat there = {};
      return ::stat((world.backing() + "/old").c_str(), &there) == 0 &&
             there.st_mtim.tv_sec == kTime + static_cast<int64_t>(node);
    })) << node;
  }
}

// As if others had done it at any moment of the job: its end finds nothing to drain, and fails.
TEST(JobFsIdle, WhatItKeepsAsideFailsTheEndWhichNamesIt) {
  constexpr size_t kFiles = 3;
  JobWorld world;
  drain_alone(world.options());
  for (size_t i = 0; i < kFiles; ++i) std::ofstream(world.backing() + fmt::format("/f{}", i)) << "old";
  world.options().drains_alone = false;  // not before others have changed it
  world.start();
  for (size_t i = 0; i < kFiles; ++i) {
    const int file = write(world.calls(), fmt::format("f{}", i), "ours");
    if (i > 0) std::ofstream(world.backing() + fmt::format("/f{}", i)) << "theirs, longer";
    ASSERT_EQ(world.calls().close(file), 0);
  }
  EXPECT_TRUE(world.fs().kept_aside().ok());
  world.stop();
  world.options().drains_alone = true;
  world.start();
  EXPECT_TRUE(comes([&] { return world.fs().stats().kept_aside == kFiles - 1; }));
  EXPECT_TRUE(comes([&] { return world.fs().stats().undrained_files == 0; }));
  const Status ended = world.fs().drain_all();
  EXPECT_NE(ended.message().find("f1, f2: others have changed them"), std::string::npos) << ended.message();
  EXPECT_EQ(content(world.backing() + "/f0"), "ours");
  EXPECT_EQ(content(world.backing() + "/f1"), "theirs, longer");
}

TEST(JobFsIdle, ThatOfSeveralNodesFailsTheEndOfTheOneThatAskedForIt) {
  NodesWorld world(2);
  std::ofstream(world.backing() + "/f") << "old";
  world.start();
  const int file = write(world.calls(1), "f", "ours");
  std::ofstream(world.backing() + "/f") << "theirs, longer";
  ASSERT_EQ(world.calls(1).close(file), 0);
  world.stop();
  world.adjust = drain_alone;
  world.start();
  EXPECT_TRUE(comes([&] { return world.fs(0).stats().kept_aside + world.fs(1).stats().kept_aside == 1; }));
  const Status ended[] = {world.fs(0).drain_all(), world.fs(1).drain_all()};
  EXPECT_NE(ended[0].ok(), ended[1].ok());
  const std::string said = ended[ended[0].ok() ? 1 : 0].to_string();
  EXPECT_NE(said.find("f: others have changed it"), std::string::npos) << said;
}

TEST(JobFsIdle, CanaryWithoutTheDrainInTheBackgroundNothingComes) {
  JobWorld world;
  drain_alone(world.options());
  world.options().drains_alone = false;
  world.start();
  ASSERT_EQ(world.calls().close(write(world.calls(), "f", "bytes")), 0);
  EXPECT_FALSE(comes([&] { return content(world.backing() + "/f") == "bytes"; }, kCanaryLooks));
  EXPECT_EQ(world.fs().stats().undrained_files, 1u);
}

}  // namespace
}  // namespace swale::fs::job_fs_idle_test
