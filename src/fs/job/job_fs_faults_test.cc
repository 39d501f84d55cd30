// A server that is killed between a change of a name on the backing and the same change in the tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "fs/job/testing/job_world.h"
#include "fs/testing/random_calls.h"

namespace swale::fs::job_fs_faults_test {
namespace {

struct Killed {};

struct Operation {
  const char* name;
  std::function<int(FileCalls&)> make;
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"unlink", [](FileCalls& on) { return on.unlink("a"); }},
      {"unlink of a link", [](FileCalls& on) { return on.unlink("l"); }},
      {"rmdir", [](FileCalls& on) { return on.remove_directory("empty"); }},
      {"rename", [](FileCalls& on) { return on.rename("a", "d/new", 0); }},
      {"rename over", [](FileCalls& on) { return on.rename("a", "b", 0); }},
      {"rename of a written file over another", [](FileCalls& on) { return on.rename("written", "b", 0); }},
      {"rename of a directory", [](FileCalls& on) { return on.rename("d", "empty", 0); }},
      {"exchange", [](FileCalls& on) { return on.rename("a", "d/c", RENAME_EXCHANGE); }},
  };
  return all;
}

void write(FileCalls& on, const std::string& path, const std::string& bytes) {
  int handle = -1;
  ASSERT_EQ(on.open(path, O_RDWR | O_CREAT, 0644, &handle), 0);
  ASSERT_EQ(on.write(handle, 6, bytes), 0);
  ASSERT_EQ(on.close(handle), 0);
}

void list_into(FileCalls& on, const std::string& path, std::string* text) {
  std::vector<std::string> names;
  if (on.list(path, &names) != 0) return;
  for (const std::string& name : names) {
    if (name == kSwaleDirectory) continue;
    const std::string below = path.empty() ? name : path + "/" + name;
    struct stat found = {};
    int handle = -1;
    std::string bytes;
    if (on.look(below, &found) != 0) bytes = "(vanished)";
    if (S_ISREG(found.st_mode)) {
      if (on.open(below, O_RDONLY, 0, &handle) != 0) {
        bytes = "(cannot be opened)";
      } else {
        if (on.read(handle, 0, 1000, &bytes) != 0) bytes = "(cannot be read)";
        EXPECT_EQ(on.close(handle), 0);
      }
    }
    *text += below + "=" + bytes + "\n";
    if (S_ISDIR(found.st_mode)) list_into(on, below, text);
  }
}
std::string tree(FileCalls& on) {
  std::string text;
  list_into(on, "", &text);
  return text;
}

// "" or what is wrong: the tree after the restart, or the backing after a drain.
std::string kill_in(const Operation& operation, bool intents) {
  JobWorld world;
  make_small_tree(world.backing());
  make_small_tree(world.plain());
  PlainCalls plain(world.plain());
  bool killed = false;
  world.options().intents = intents;
  world.options().between = [&] {
    killed = true;
    throw Killed();
  };
  world.start();
  for (FileCalls* const on : {static_cast<FileCalls*>(&world.calls()), static_cast<FileCalls*>(&plain)}) {
    tree(*on);  // all names are adopted
    write(*on, "a", "WRITTEN");
    write(*on, "written", "new");
  }
  try {
    EXPECT_EQ(operation.make(world.calls()), 0);
  } catch (const Killed&) {
  }
  EXPECT_TRUE(killed) << operation.name;
  world.options().between = nullptr;
  world.restart();
  // It had happened on the backing: so it has happened.
  EXPECT_EQ(operation.make(plain), 0);
  const std::string wanted = tree(plain);
  if (const std::string found = tree(world.calls()); found != wanted)
    return fmt::format("{}: the tree is\n{}instead of\n{}", operation.name, found, wanted);
  if (const Status drained = world.fs().drain_all(); !drained.ok())
    return fmt::format("{}: {}", operation.name, drained.to_string());
  PlainCalls backing(world.backing());
  if (const std::string found = tree(backing); found != wanted)
    return fmt::format("{}: the backing is\n{}instead of\n{}", operation.name, found, wanted);
  return "";
}

TEST(JobFsFaults, AKillBetweenTheBackingAndTheNamesIsFinishedByTheNextServer) {
  for (const Operation& operation : operations()) EXPECT_EQ(kill_in(operation, true), "") << operation.name;
  std::printf("%zu operations\n", operations().size());
}

TEST(JobFsFaults, CanaryWithoutIntentsTheTreeAndTheBackingDiffer) {
  size_t found = 0;
  for (const Operation& operation : operations()) {
    const std::string wrong = kill_in(operation, false);
    if (!wrong.empty() && ++found == 1) std::printf("found: %s\n", wrong.c_str());
  }
  EXPECT_GE(found, 3u);
}

// A file that was never on the backing is gone with its bytes, not back with older ones.
TEST(JobFsFaults, WhatOnlyTheTreeHasChangesThereAlone) {
  JobWorld world;
  bool between = false;
  world.options().between = [&] { between = true; };
  world.start();
  write(world.calls(), "a", "1");
  write(world.calls(), "b", "2");
  EXPECT_EQ(world.calls().rename("a", "b", 0), 0);
  EXPECT_EQ(world.calls().unlink("b"), 0);
  EXPECT_FALSE(between);
  world.restart();
  EXPECT_EQ(tree(world.calls()), "");
}

}  // namespace
}  // namespace swale::fs::job_fs_faults_test
