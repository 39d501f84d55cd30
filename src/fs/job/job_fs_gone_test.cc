// Files whose names go on one node of several, by removal or by a rename over them, while others open or read
// them, before and after their bytes were brought to the backing.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_gone_test {
namespace {

class JobFsGone : public testing::Test {
 protected:
  void SetUp() override { world_.start(); }
  int open(size_t node, const std::string& path, int flags) {
    int handle = -1;
    const int failed = calls(node).open(path, flags, 0644, &handle);
    return failed == 0 ? handle : -failed;
  }
  void close(size_t node, int handle) { EXPECT_EQ(calls(node).close(handle), 0); }
  void make(size_t node, const std::string& path, const std::string& bytes) {
    const int handle = open(node, path, O_RDWR | O_CREAT);
    ASSERT_GT(handle, 0) << std::strerror(-handle);
    EXPECT_EQ(calls(node).write(handle, 0, bytes), 0);
    close(node, handle);
  }
  std::string read(size_t node, int handle) {
    std::string out;
    const int failed = calls(node).read(handle, 0, 1000, &out);
    return failed == 0 ? out : "(" + std::string(std::strerror(failed)) + ")";
  }
  void drain(size_t node, const std::string& path) {
    const int handle = open(node, path, O_RDWR);
    ASSERT_GT(handle, 0);
    EXPECT_EQ(calls(node).sync(handle), 0);
    close(node, handle);
  }
  // Takes the name from the file as node 0, by either way.
  void take_name(const std::string& path, bool by_rename) {
    if (by_rename) make(0, "other", "of another file");
    EXPECT_EQ(by_rename ? calls(0).rename("other", path, 0) : calls(0).unlink(path), 0);
  }
  // As the kernel does that has looked the name up before, and has not opened the file yet.
  int open_late(size_t node, const std::string& path, bool by_rename) {
    JobFs& fs = world_.fs(node);
    Entry entry;
    EXPECT_EQ(fs.lookup(*fs.root(), path.c_str(), &entry), 0);
    take_name(path, by_rename);
    std::unique_ptr<OpenFile> file;
    const int failed = fs.open_file(*entry.node, O_RDONLY, Caller::this_thread(), &file);
    if (failed == 0) fs.release(std::move(file));
    fs.forget(entry.node, 1);
    return failed;
  }
  FileSystemCalls& calls(size_t node) { return world_.calls(node); }

  NodesWorld world_{3};
};

// ESTALE has the kernel look the name up again: it finds the file that has it now, or ENOENT.
TEST_F(JobFsGone, AnOpenThatComesAfterTheNameHasGoneIsMadeAnew) {
  for (const bool held : {false, true})
    for (const bool drained : {false, true})
      for (const bool by_rename : {false, true}) {
        const std::string path = fmt::format("f{}{}{}", held, drained, by_rename);
        make(0, path, "bytes");
        if (drained) drain(0, path);
        const int holder = held ? open(1, path, O_RDONLY) : 0;
        EXPECT_EQ(open_late(2, path, by_rename), ESTALE) << path;
        const int now = open(2, path, O_RDONLY);
        if (by_rename) {
          ASSERT_GT(now, 0) << path << ": " << std::strerror(-now);
          EXPECT_EQ(read(2, now), "of another file") << path;
          close(2, now);
        } else {
          EXPECT_EQ(now, -ENOENT) << path;
        }
        if (!held) continue;
        EXPECT_EQ(read(1, holder), "bytes") << path;
        close(1, holder);
      }
}

// Several names: their roots are several nodes. What node 2 has written is no part of the drain, unless it is
// the root: so it has bytes of the file in its logs when it opens the file again.
TEST_F(JobFsGone, ADrainedFileIsReadByAllThatHaveItOpenAfterItsNameHasGone) {
  for (int i = 0; i < 12; ++i) {
    const std::string path = fmt::format("f{}", i);
    make(0, path, "AAAAAAAA");
    const int writer = open(2, path, O_RDWR);
    ASSERT_GT(writer, 0);
    EXPECT_EQ(calls(2).write(writer, 8, "CC"), 0);
    drain(0, path);
    close(2, writer);
    const int reader = open(2, path, O_RDONLY), other = open(1, path, O_RDONLY);
    ASSERT_GT(reader, 0);
    ASSERT_GT(other, 0);
    take_name(path, i % 2 == 1);
    EXPECT_EQ(read(2, reader), "AAAAAAAACC") << path;
    EXPECT_EQ(read(1, other), "AAAAAAAACC") << path;
    close(2, reader);
    close(1, other);
  }
}

}  // namespace
}  // namespace swale::fs::job_fs_gone_test
