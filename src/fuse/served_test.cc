// What the kernel has open when a mount goes is released with the session.
#include "fuse/served.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fs/job/testing/job_world.h"

namespace swale::fuse::served_test {
namespace {

// A file without a name keeps its bytes until its last open ends: so its bytes tell whether that has ended.
TEST(Served, ReleasesWhatTheKernelHasNotClosed) {
  fs::JobWorld world;
  ASSERT_NO_FATAL_FAILURE(world.start());
  fs::JobFs& tree = world.fs();
  const fs::Caller caller{::getuid(), ::getgid(), ::getpid(), 0};
  for (const bool closed : {true, false}) {
    fs::Entry entry;
    std::unique_ptr<fs::OpenFile> file;
    ASSERT_EQ(tree.create(*tree.root(), "f", 0644, O_RDWR, caller, &entry, &file), 0);
    const auto fill = [](MutableBytes out) {
      std::fill(out.begin(), out.end(), 'x');
      return Status();
    };
    ASSERT_EQ(tree.write(*file, 0, 100'000, caller, fill), 0);
    std::unique_ptr<fs::OpenDirectory> directory;
    ASSERT_EQ(tree.open_directory(*tree.root(), caller, &directory), 0);
    {
      Served served(tree);
      uint64_t number = 0, directory_number = 0;
      ASSERT_TRUE(served.keep(&file, &number));
      ASSERT_TRUE(served.keep(&directory, &directory_number));
      ASSERT_EQ(tree.unlink(*tree.root(), "f", caller), 0);
      EXPECT_GE(tree.stats().undrained_bytes, 100'000u);
      if (closed) {
        served.release_file(number);
        served.release_directory(directory_number);
        EXPECT_EQ(tree.stats().undrained_bytes, 0u);
      }
    }
    EXPECT_EQ(tree.stats().undrained_bytes, 0u) << "closed: " << closed;
    tree.forget(entry.node, 1);
  }
}

}  // namespace
}  // namespace swale::fuse::served_test
