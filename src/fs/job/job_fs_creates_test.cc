// JobFs on several nodes: a file that is made, which waits for no turn, between the two halves of another
// node's change of names: on the backing, and in the tree.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs {
namespace {

class JobFsCreates : public testing::Test {
 protected:
  std::string backing(const std::string& path) const { return world_.backing() + "/" + path; }
  std::string read(size_t node, const std::string& path) {
    int handle = -1;
    std::string out;
    const int failed = world_.calls(node).open(path, O_RDONLY, 0, &handle);
    if (failed != 0) return std::strerror(failed);
    EXPECT_EQ(world_.calls(node).read(handle, 0, 1000, &out), 0);
    EXPECT_EQ(world_.calls(node).close(handle), 0);
    return out;
  }
  // As a create of node 1 does that has found no such name before node 0 began its next change of names.
  void start_and_make_between(const std::string& directory, const std::string& name) {
    world_.between = [this, directory, name](size_t node) {
      if (node != 0 || std::exchange(made_, true)) return;
      const auto at = world_.names(1).walk(directory);
      ASSERT_TRUE(at.ok()) << at.status().to_string();
      const auto made = world_.names(1).create(at->file, name, {.mode = 0644}, true);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_TRUE(world_.names(1).release(made->file).ok());
    };
    world_.start();
    if (directory.empty()) return;
    Entry entry;  // node 1 has it by descriptor
    ASSERT_EQ(world_.fs(1).lookup(*world_.fs(1).root(), directory.c_str(), &entry), 0);
    directory_ = entry.node;
  }
  void write_what_was_made(const std::string& path) {
    EXPECT_TRUE(made_);
    int handle = -1;
    ASSERT_EQ(world_.calls(1).open(path, O_RDWR, 0, &handle), 0);
    EXPECT_EQ(world_.calls(1).write(handle, 0, "NEW"), 0);
    EXPECT_EQ(world_.calls(1).close(handle), 0);
  }
  // All paths.
  std::set<std::string> names_on(size_t node, const std::string& directory) {
    std::set<std::string> found;
    std::vector<std::string> names;
    EXPECT_EQ(world_.calls(node).list(directory, &names), 0) << directory;
    for (const std::string& name : names) {
      const std::string path = directory.empty() ? name : directory + "/" + name;
      struct stat state = {};
      EXPECT_EQ(world_.calls(node).look(path, &state), 0) << path;
      found.insert(path);
      if (S_ISDIR(state.st_mode)) found.merge(names_on(node, path));
    }
    return found;
  }
  std::set<std::string> names_there() {
    std::set<std::string> found;
    for (const auto& each : std::filesystem::recursive_directory_iterator(world_.backing())) {
      const std::string path = std::filesystem::relative(each.path(), world_.backing());
      if (!path.starts_with(".swale")) found.insert(path);
    }
    return found;
  }
  // All nodes and the backing have the same.
  void drain_and_compare() {
    if (directory_ != nullptr) world_.fs(1).forget(directory_, 1);
    for (size_t node = 0; node < kNodes; ++node) {
      const Status drained = world_.fs(node).drain_all();
      EXPECT_TRUE(drained.ok()) << "node " << node << ": " << drained.to_string();
    }
    for (size_t node = 0; node < kNodes; ++node) {
      EXPECT_EQ(world_.fs(node).stats().undrained_files, 0u) << node;
      EXPECT_EQ(names_on(node, ""), names_there()) << node;
    }
    for (const auto& each : std::filesystem::recursive_directory_iterator(world_.backing())) {
      const std::string path = std::filesystem::relative(each.path(), world_.backing());
      if (path.starts_with(".swale")) continue;
      struct stat there;
      for (size_t node = 0; node < kNodes; ++node) {
        EXPECT_EQ(world_.calls(node).look(path, &there), 0) << path << " on node " << node;
        EXPECT_EQ(S_ISDIR(there.st_mode), each.is_directory()) << path << " on node " << node;
        if (each.is_regular_file()) {
          EXPECT_EQ(read(node, path), content(each.path())) << path << " on node " << node;
        }
      }
    }
    for (const auto& each : std::filesystem::recursive_directory_iterator(world_.backing() + "/.swale"))
      EXPECT_FALSE(each.path().filename().string().starts_with("removed-")) << each.path();
  }

  static constexpr size_t kNodes = 3;
  NodesWorld world_{kNodes};
  bool made_ = false;
  Node* directory_ = nullptr;
};

TEST_F(JobFsCreates, AFileIsRenamedOverOneThatWasJustMade) {
  std::ofstream(backing("a")) << "OLD";
  start_and_make_between("", "b");
  EXPECT_EQ(world_.calls(0).rename("a", "b", 0), 0);
  EXPECT_TRUE(made_);
  drain_and_compare();
  EXPECT_FALSE(std::filesystem::exists(backing("a")));
  EXPECT_EQ(content(backing("b")), "OLD");
}

TEST_F(JobFsCreates, ARenameThatMustNotReplaceFindsTheFileThatWasJustMade) {
  std::ofstream(backing("a")) << "OLD";
  start_and_make_between("", "b");
  EXPECT_EQ(world_.calls(0).rename("a", "b", RENAME_NOREPLACE), EEXIST);
  write_what_was_made("b");
  drain_and_compare();
  EXPECT_EQ(content(backing("a")), "OLD");
  EXPECT_EQ(content(backing("b")), "NEW");
}

TEST_F(JobFsCreates, ADirectoryIsNotRenamedOverAFileThatWasJustMade) {
  std::filesystem::create_directory(backing("a"));
  std::ofstream(backing("a/f")) << "OLD";
  start_and_make_between("", "b");
  EXPECT_EQ(world_.calls(0).rename("a", "b", 0), ENOTDIR);
  write_what_was_made("b");
  drain_and_compare();
  EXPECT_EQ(content(backing("a/f")), "OLD");
  EXPECT_EQ(content(backing("b")), "NEW");
}

TEST_F(JobFsCreates, ADirectoryIsNotRemovedInWhichAFileWasJustMade) {
  std::filesystem::create_directory(backing("d"));
  start_and_make_between("d", "x");
  EXPECT_EQ(world_.calls(0).remove_directory("d"), ENOTEMPTY);
  write_what_was_made("d/x");
  drain_and_compare();
  EXPECT_EQ(content(backing("d/x")), "NEW");
}

TEST_F(JobFsCreates, ADirectoryIsNotReplacedInWhichAFileWasJustMade) {
  std::filesystem::create_directory(backing("a"));
  std::filesystem::create_directory(backing("d"));
  start_and_make_between("d", "x");
  EXPECT_EQ(world_.calls(0).rename("a", "d", 0), ENOTEMPTY);
  write_what_was_made("d/x");
  drain_and_compare();
  EXPECT_TRUE(std::filesystem::is_directory(backing("a")));
  EXPECT_EQ(content(backing("d/x")), "NEW");
}

// Files and directories that move between directories, while files are brought to the backing.
TEST_F(JobFsCreates, AllNodesChangeATreeOfNamesWhileItIsDrained) {
  for (const char* const each : {"d", "e", "d/e"}) std::filesystem::create_directory(backing(each));
  std::ofstream(backing("d/a")) << "of the backing";
  world_.start();
  static uint64_t repeat = 0;  // --gtest_repeat finds others
  ++repeat;
  std::vector<std::thread> threads;
  for (size_t node = 0; node < kNodes; ++node) {
    threads.emplace_back([&, node] {
      Rng rng(kNodes * repeat + node);
      FileSystemCalls& calls = world_.calls(node);
      const auto any = [&] {
        static constexpr const char* kAbove[] = {"", "d/", "e/", "d/e/", "e/d/"};
        return std::string(kAbove[rng.below(5)]) + "abde"[rng.below(4)];
      };
      for (int i = 0; i < 60; ++i) {
        int failed = 0, handle = -1;
        std::string out;
        switch (rng.below(8)) {
          case 0:
          case 1:
            failed = calls.open(any(), O_RDWR | O_CREAT, 0644, &handle);
            if (failed == 0) {
              EXPECT_EQ(calls.write(handle, 0, fmt::format("node {}, {}", node, i)), 0);
            }
            break;
          case 2:
            failed = calls.unlink(any());
            break;
          case 3:
            failed = calls.make_directory(any(), 0755);
            break;
          case 4:
            failed = calls.remove_directory(any());
            break;
          case 5:
            failed = calls.rename(any(), any(), static_cast<unsigned>(rng.below(3)));
            break;
          case 6:
            failed = calls.open(any(), O_RDWR, 0, &handle);
            if (failed == 0) {
              const int synced = calls.sync(handle);
              EXPECT_TRUE(synced == 0 || synced == EBUSY || synced == ENOENT) << std::strerror(synced);
            }
            break;
          default:
            failed = calls.open(any(), O_RDONLY, 0, &handle);
            if (failed == 0) {
              const int got = calls.read(handle, 0, 100, &out);
              EXPECT_EQ(got, 0) << std::strerror(got);
            }
        }
        if (handle >= 0) {
          EXPECT_EQ(calls.close(handle), 0);
        }
        static const std::set<int> kAllowed = {
            0,     ENOENT,    EEXIST, EISDIR, ENOTDIR,
            ELOOP, ENOTEMPTY, EBUSY,  EINVAL, ESTALE};  // its name has gone twice while it was opened
        EXPECT_TRUE(kAllowed.contains(failed)) << std::strerror(failed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  drain_and_compare();
}

TEST_F(JobFsCreates, AnEmptyDirectoryIsReplacedOrRemovedAndNothingStays) {
  std::filesystem::create_directory(backing("a"));
  std::filesystem::create_directory(backing("d"));
  world_.start();
  EXPECT_EQ(world_.calls(0).rename("a", "d", 0), 0);
  drain_and_compare();
  EXPECT_FALSE(std::filesystem::exists(backing("a")));
  EXPECT_EQ(world_.calls(1).remove_directory("d"), 0);
  drain_and_compare();
  EXPECT_FALSE(std::filesystem::exists(backing("d")));
}

}  // namespace
}  // namespace swale::fs
