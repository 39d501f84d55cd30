// The paths that nodes keep of the files in their logs, for when the server of a name is lost: they follow
// renames, also of directories above, by whichever node.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>

#include "fs/job/testing/nodes_world.h"
#include "fs/node/known_paths.h"

namespace swale::fs::job_fs_paths_test {
namespace {

using Paths = std::set<std::string>;

class JobFsPaths : public testing::Test {
 protected:
  void SetUp() override { world_.start(); }
  void make(size_t node, const std::string& path) {
    int handle = -1;
    ASSERT_EQ(calls(node).open(path, O_RDWR | O_CREAT, 0644, &handle), 0) << path;
    EXPECT_EQ(calls(node).write(handle, 0, "bytes of " + path), 0);
    EXPECT_EQ(calls(node).close(handle), 0);
  }
  void make_directory(const std::string& path) { ASSERT_EQ(calls(0).make_directory(path, 0755), 0); }
  // What a recovery finds after all servers were killed.
  Paths kept_by(size_t node) {
    world_.stop();
    io::PosixDevice device;
    Paths found;
    const auto kept = KnownPaths::open(device, world_.state(node) + "/paths");
    EXPECT_TRUE(kept.ok()) << kept.status().to_string();
    if (kept.ok())
      for (const auto& [file, path] : (*kept)->paths()) found.insert(path);
    return found;
  }
  FileSystemCalls& calls(size_t node) { return world_.calls(node); }

  NodesWorld world_{3};
};

TEST_F(JobFsPaths, ADirectoryThatAnotherNodeRenamesTakesItsFilesAlong) {
  make_directory("d");
  make_directory("d/e");
  make_directory("dd");
  for (const char* const path : {"d/e/f", "d/g", "dd/h", "i"}) make(1, path);
  ASSERT_EQ(calls(0).rename("d", "x", 0), 0);
  ASSERT_EQ(calls(2).rename("x/e", "dd/y", 0), 0);
  EXPECT_EQ(kept_by(1), (Paths{"dd/y/f", "x/g", "dd/h", "i"}));
}

TEST_F(JobFsPaths, ADirectoryThatTheNodeItselfRenamesDoesSoToo) {
  make_directory("d");
  make_directory("d/e");
  for (const char* const path : {"d/e/f", "d/g"}) make(0, path);
  ASSERT_EQ(calls(0).rename("d", "x", 0), 0);
  ASSERT_EQ(calls(0).rename("x/g", "x/e/g", 0), 0);
  EXPECT_EQ(kept_by(0), (Paths{"x/e/f", "x/e/g"}));
}

// Each file keeps its own directory, although both have had both names.
TEST_F(JobFsPaths, DirectoriesThatAreExchanged) {
  make_directory("a");
  make_directory("b");
  for (size_t node : {0, 1}) {
    make(node, fmt::format("a/{}", node));
    make(node, fmt::format("b/of-{}", node));
  }
  ASSERT_EQ(calls(0).rename("a", "b", RENAME_EXCHANGE), 0);
  EXPECT_EQ(kept_by(1), (Paths{"b/1", "a/of-1"}));
  EXPECT_EQ(kept_by(0), (Paths{"b/0", "a/of-0"}));
}

}  // namespace
}  // namespace swale::fs::job_fs_paths_test
