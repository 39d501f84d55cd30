// IondFs beside a plain directory, without a kernel and through it: random calls, what two mounts see of each
// other, and a server that has died.
#include "fuse/iond_fs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "fs/testing/file_system_calls.h"
#include "fs/testing/random_calls.h"
#include "fuse/mounted.h"
#include "fuse/testing/test_mount.h"
#include "io/descriptor.h"
#include "iond/testing/iond_rig.h"

namespace swale::fuse::iond_fs_test {
namespace {

using iond::iond_test::IondTest;

class IondFsTest : public IondTest {
 protected:
  void SetUp() override {
    IondTest::SetUp();
    old_mask_ = ::umask(0);
    std::filesystem::create_directory(plain());
  }
  void TearDown() override {
    ::umask(old_mask_);
    IondTest::TearDown();
  }
  std::string plain() const { return root_ + "/plain"; }
  // A file system of a rank, for `body`.
  static void with_fs(RankOf& here, const std::function<void(IondFs&)>& body) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    const auto fs = IondFs::open(**here.iond);
    ASSERT_TRUE(fs.ok()) << fs.status().to_string();
    body(**fs);
  }

  mode_t old_mask_ = 0;
};

TEST_F(IondFsTest, RandomCallsGiveWhatAPlainDirectoryGives) {
  constexpr uint64_t kCalls = 3'000;
  fs::PosixCalls plain_calls(plain());
  for (const int32_t servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    for (uint64_t life = 0; life < 2; ++life)
      run_ranks(servers + 1, servers, [&](RankOf& here) {
        with_fs(here, [&](IondFs& fs) {
          fs::FileSystemCalls calls(fs);
          fs::RandomCalls random(calls, plain_calls, 100 * static_cast<uint64_t>(servers) + life);
          ASSERT_EQ(random.compare_trees(), "");
          ASSERT_EQ(random.run(kCalls), "");
          ASSERT_EQ(random.compare_trees(), "");
          random.close_all();
          ASSERT_EQ(random.compare_trees(), "");
          if (servers == 3 && life == 1) std::printf("%s\n", random.summary().c_str());
        });
      });
    if (HasFailure()) return;
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
    std::filesystem::create_directory(plain());
  }
}

// As programs call: the kernel asks for pages of mappings, sizes of appends, and each name anew.
TEST_F(IondFsTest, RandomCallsThroughTheKernelGiveTheSame) {
  if (const std::string why = why_no_mounts(); !why.empty()) GTEST_SKIP() << "no FUSE mounts here: " << why;
  constexpr uint64_t kCalls = 4'000;
  Mounted mounted;
  mounted.mountpoint = root_ + "/mnt";
  mounted.name = "iond";
  mounted.threads = 4;
  std::filesystem::create_directory(mounted.mountpoint);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();  // before any thread: with the servers, too
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ends[0]);
    run_ranks(3, 2, [&](RankOf& here) {
      with_fs(here, [&](IondFs& fs) {
        const Status served = serve_mounted(mounted, &fs, raise_descriptor_limit(),
                                            [&] { EXPECT_EQ(::write(ends[1], "m", 1), 1); });
        EXPECT_TRUE(served.ok()) << served.to_string();
      });
    });
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }
  ::close(ends[1]);
  constexpr int kPatienceMs = 60'000;
  pollfd says = {ends[0], POLLIN, 0};
  char byte = 0;
  const bool is_there = ::poll(&says, 1, kPatienceMs) == 1 && ::read(ends[0], &byte, 1) == 1;
  ::close(ends[0]);
  EXPECT_TRUE(is_there);
  if (is_there) {
    fs::PosixCalls tested(mounted.mountpoint), plain_calls(plain());
    fs::RandomCalls random(tested, plain_calls, 77);
    EXPECT_EQ(random.run(kCalls), "");
    EXPECT_EQ(random.compare_trees(), "");
    random.close_all();
    EXPECT_EQ(random.compare_trees(), "");
    std::printf("%s\n", random.summary().c_str());
    EXPECT_EQ(::system(("fusermount3 -u -z " + mounted.mountpoint).c_str()), 0);
  }
  const io::Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd over = {handle.get(), POLLIN, 0};
  if (::poll(&over, 1, kPatienceMs) != 1) ::kill(child, SIGKILL);
  int state = -1;
  ::waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
}

// Two nodes: what one was answered for, the other finds at its next call, and never another file.
TEST_F(IondFsTest, OneMountSeesWhatTheOtherHasDone) {
  std::atomic<int> turn = 0;
  const auto when = [&](int mine, const std::function<void()>& act) {
    const Nanos until = system_clock().now() + seconds(60);
    for (int now = turn; now != mine; now = turn) {
      ASSERT_LT(system_clock().now(), until);
      turn.wait(now);
    }
    act();
    turn = mine + 1;
    turn.notify_all();
  };
  run_ranks(4, 2, [&](RankOf& here) {
    with_fs(here, [&](IondFs& fs) {
      fs::FileSystemCalls calls(fs);
      int handle = -1;
      std::string bytes;
      struct stat found = {};
      if (here.rank == 2) {
        when(0, [&] {
          EXPECT_EQ(calls.make_directory("d", 0750), 0);
          EXPECT_EQ(calls.open("d/f", O_CREAT | O_RDWR, 0440, &handle), 0);
          EXPECT_EQ(calls.write(handle, 100'000, "one"), 0);
        });
        when(2, [&] {
          EXPECT_EQ(calls.look("d/f", &found), ENOENT);
          EXPECT_EQ(calls.look("e/f", &found), 0);
          EXPECT_EQ(calls.read(handle, 100'003, 10, &bytes), 0);
          EXPECT_EQ(bytes, "two");
          EXPECT_EQ(calls.state(handle, &found), 0);
          EXPECT_TRUE(found.st_size == 100'006 && found.st_nlink == 1) << found.st_size;
          EXPECT_EQ(calls.unlink("e/f"), 0);
          EXPECT_EQ(calls.state(handle, &found), 0);
          EXPECT_EQ(found.st_nlink, 0u);
          EXPECT_EQ(calls.close(handle), 0);
        });
      } else {
        when(1, [&] {
          EXPECT_EQ(calls.look("d", &found), 0);
          EXPECT_EQ(found.st_mode, 0750u | S_IFDIR);
          EXPECT_EQ(calls.look("d/f", &found), 0);
          EXPECT_TRUE(found.st_mode == (0440u | S_IFREG) && found.st_size == 100'003) << found.st_size;
          EXPECT_EQ(calls.open("d/f", O_RDWR | O_APPEND, 0, &handle), 0);
          EXPECT_EQ(calls.write(handle, 0, "two"), 0);
          EXPECT_EQ(calls.rename("d", "e", 0), 0);
        });
        when(3, [&] {
          EXPECT_EQ(calls.look("e/f", &found), ENOENT);
          EXPECT_EQ(calls.read(handle, 100'000, 10, &bytes), 0);
          EXPECT_EQ(bytes, "onetwo");
          EXPECT_EQ(calls.close(handle), 0);
        });
      }
    });
  });
}

// A node whose name leads to another file now is ESTALE, which the kernel answers by a new look-up.
TEST_F(IondFsTest, ANodeNeverMeetsAnotherFile) {
  run_ranks(3, 2, [&](RankOf& here) {
    with_fs(here, [&](IondFs& fs) {
      iond::Iond& behind = **here.iond;  // as another node would
      fs::FileSystemCalls calls(fs);
      int handle = -1;
      ASSERT_EQ(calls.open("f", O_CREAT | O_RDWR, 0644, &handle), 0);
      ASSERT_EQ(calls.close(handle), 0);
      fs::Entry entry;
      ASSERT_EQ(fs.lookup(*fs.root(), "f", &entry), 0);
      ASSERT_TRUE(behind.rename("f", "g").ok());
      auto file = behind.open_file("f", iond::kIondCreate);
      ASSERT_TRUE(file.ok() && behind.close_file(&*file).ok());
      struct stat found = {};
      std::unique_ptr<fs::OpenFile> open;
      const fs::Caller caller = fs::Caller::this_thread();
      EXPECT_EQ(fs.attributes(*entry.node, &found), ESTALE);
      EXPECT_EQ(fs.open_file(*entry.node, O_RDWR, caller, &open), ESTALE);
      EXPECT_EQ(fs.change(*entry.node, {.mode = 0600}, caller, &found), ESTALE);
      EXPECT_EQ(fs.change(*entry.node, {.size = 7}, caller, &found), ESTALE);
      EXPECT_EQ(fs.set_attribute(*entry.node, "user.a", "b", 0, caller), ESTALE);
      EXPECT_EQ(behind.stat("f")->mode, 0644u);
      // Names that are the servers' own are nobody's.
      EXPECT_EQ(calls.look(".swale-tier", &found), ENOENT);
      EXPECT_EQ(calls.make_directory(".swale-parts", 0700), EPERM);
      EXPECT_EQ(calls.rename("f", ".swale-tier", 0), EPERM);
      EXPECT_EQ(fs.change(*fs.root(), {.user = ::geteuid() + 1}, caller, &found), EPERM);
      fs.forget(entry.node, 1);
      EXPECT_EQ(fs.nodes_known(), 1u);
    });
  });
}

TEST_F(IondFsTest, AServerThatIsGoneIsEioAndNamed) {
  expect_clean_ = false;
  options_.deadline = seconds(5);
  std::atomic<bool> written = false;
  std::string told;
  run_ranks(
      3, 2,
      [&](RankOf& here) {
        with_fs(here, [&](IondFs& fs) {
          fs::FileSystemCalls calls(fs);
          int handle = -1;
          ASSERT_EQ(calls.open("f", O_CREAT | O_RDWR, 0644, &handle), 0);
          ASSERT_EQ(calls.write(handle, 0, std::string(4 * iond::kStripeBytesMin, 'x')), 0);
          written = true;
          written.notify_all();
          int failed = 0;
          const Nanos until = system_clock().now() + seconds(60);
          while (failed == 0 && system_clock().now() < until)
            failed = calls.write(handle, 0, std::string(4 * iond::kStripeBytesMin, 'y'));
          EXPECT_EQ(failed, EIO);
          EXPECT_EQ(calls.sync(handle), EIO);
          EXPECT_EQ(calls.close(handle), EIO);
          struct stat found = {};
          EXPECT_EQ(calls.look("f", &found), EIO);
          const Status refused = (*here.iond)->stat("f").status();
          told = refused.to_string();
        });
      },
      [&](RankOf& here) {
        if (here.rank != 1) return;
        written.wait(false);
        here.dies = true;
      });
  EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
}

}  // namespace
}  // namespace swale::fuse::iond_fs_test
