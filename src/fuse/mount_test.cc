// A mount as programs see it: through the kernel. The mount runs in a child process, which some tests kill.
#include "fuse/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fs/testing/random_calls.h"
#include "fs/tier_fs.h"
#include "fuse/testing/test_mount.h"
#include "io/posix_device.h"
#include "tier/store/serving_options.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::fuse::mount_test {
namespace {

uint64_t lives() {
  const char* factor = std::getenv("SWALE_MOUNT_LIVES");
  return factor ? std::strtoull(factor, nullptr, 10) : 8;
}
constexpr uint64_t kCallsOfALife = 1'300;

using MountTest = MountRig;

// Lives of a mount that end by a clean unmount, a drain or SIGKILL. After each, what the programs had been
// told is there.
std::string random_lives(uint64_t count, const std::function<std::string(uint64_t life)>& mount,
                         const std::function<bool(uint64_t life)>& kills,
                         const std::function<void(uint64_t life)>& end, const std::string& mountpoint,
                         const std::string& plain) {
  fs::PosixCalls tested(mountpoint), model(plain);
  uint64_t calls = 0;
  for (uint64_t life = 0; life < count; ++life) {
    if (const std::string failed = mount(life); !failed.empty()) return failed;
    fs::RandomCalls random(tested, model, 7000 + life);
    if (life > 0 && kills(life - 1)) random.even_times();
    std::string wrong = random.compare_trees();
    if (wrong.empty()) wrong = random.run(kCallsOfALife);
    if (wrong.empty()) wrong = random.compare_trees();
    end(life);
    random.close_all();
    calls += random.calls();
    if (!wrong.empty()) return fmt::format("life {}: {}", life, wrong);
    if (life + 1 == count) std::printf("%s\n%lu calls\n", random.summary().c_str(), calls);
  }
  return "";
}

TEST_F(MountTest, RandomCallsGiveWhatAPlainDirectoryGivesAlsoAfterKills) {
  constexpr tier::Policy kPolicies[] = {tier::Policy::kSsdBlocking, tier::Policy::kSwale,
                                        tier::Policy::kBacking};
  const auto begin = [&](uint64_t life) {
    MountOptions wanted = options();
    wanted.store.engine.policy = kPolicies[life % 3];
    wanted.store.engine.queue_slots = 4;
    wanted.store.engine.swale.byte_budget_random = 0;
    wanted.at_unmount = life % 4 == 1 ? tier::Store::AtClose::kDrain : tier::Store::AtClose::kKeep;
    return mount(wanted);
  };
  const auto kills = [](uint64_t life) { return life % 2 == 0; };
  const auto end = [&](uint64_t life) {
    if (kills(life)) return kill_mount();
    // Handles may be open: the kernel goes on when they are closed, so the mount is detached.
    ::kill(child_, SIGTERM);
    EXPECT_EQ(wait_for_mount(), 0);
    EXPECT_FALSE(mounted());
  };
  EXPECT_EQ(random_lives(lives(), begin, kills, end, mountpoint(), plain()), "");
}

// As if the mount had lost the last byte that it had taken. (A queue that is not sealed is the canary of the
// store's own test: what a kill of a mount meets there is a matter of luck.)
TEST_F(MountTest, CanaryAByteThatAKillHasLostIsFound) {
  const auto begin = [&](uint64_t) { return mount(options()); };
  const auto end = [&](uint64_t) {
    std::ofstream(mountpoint() + "/last") << "some tex";
    std::ofstream(plain() + "/last") << "some text";
    kill_mount();
  };
  const std::string found = random_lives(
      2, begin, [](uint64_t) { return true; }, end, mountpoint(), plain());
  EXPECT_NE(found.find("life 1"), std::string::npos) << found;
  EXPECT_NE(found.find("last"), std::string::npos) << found;
}

TEST_F(MountTest, AnUnmountThatDrainsLeavesEverythingInTheBackingDirectory) {
  MountOptions wanted = options();
  wanted.at_unmount = tier::Store::AtClose::kDrain;
  ASSERT_EQ(mount(wanted), "");
  std::filesystem::create_directory(mountpoint() + "/d");
  std::ofstream(mountpoint() + "/d/f") << "some text";
  EXPECT_EQ(content(mountpoint() + "/d/f"), "some text");
  EXPECT_EQ(unmount(), 0);
  EXPECT_FALSE(mounted());
  EXPECT_EQ(content(backing() + "/d/f"), "some text");
}

TEST_F(MountTest, AnUnmountThatKeepsLeavesTheBytesToTheNextMount) {
  ASSERT_EQ(mount(options()), "");
  std::ofstream(mountpoint() + "/f") << "some text";
  EXPECT_EQ(unmount(), 0);
  EXPECT_EQ(content(backing() + "/f"), "");
  ASSERT_EQ(mount(options()), "");
  EXPECT_EQ(content(mountpoint() + "/f"), "some text");
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountTest, TwoMountsOnOneSsdDirectoryAreRefused) {
  ASSERT_EQ(mount(options()), "");
  MountOptions second = options();
  second.mountpoint = plain();
  const Status refused = run_mount(second);
  EXPECT_EQ(refused.code(), Code::kBusy) << refused.to_string();
  second.store.ssd_directory = root_ + "/ssd2";
  EXPECT_EQ(run_mount(second).code(), Code::kBusy) << "of one backing directory";
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountTest, AMountpointThatAKilledMountHasLeftIsToldWithTheRemedy) {
  ASSERT_EQ(mount(options()), "");
  ::kill(child_, SIGKILL);
  wait_for_mount();
  const Status refused = run_mount(options());
  EXPECT_EQ(refused.code(), Code::kBusy);
  EXPECT_NE(refused.message().find("fusermount3 -u"), std::string::npos) << refused.to_string();
  EXPECT_TRUE(take_mount_away());
  ASSERT_EQ(mount(options()), "");
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountTest, MountpointsThatCannotBeAreRefused) {
  MountOptions wanted = options();
  wanted.mountpoint = backing() + "/inside";
  std::filesystem::create_directory(wanted.mountpoint);
  EXPECT_EQ(run_mount(wanted).code(), Code::kInvalidArgument);
  wanted.mountpoint = root_;
  EXPECT_EQ(run_mount(wanted).code(), Code::kInvalidArgument) << "it would hide both";
  wanted.mountpoint = root_ + "/nowhere";
  EXPECT_EQ(run_mount(wanted).code(), Code::kNotFound);
  std::ofstream(root_ + "/file") << "x";
  wanted.mountpoint = root_ + "/file";
  EXPECT_EQ(run_mount(wanted).code(), Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/ssd")) << "nothing was made";
}

TEST_F(MountTest, LocksHoldBetweenOpensOfOneFile) {
  ASSERT_EQ(mount(options()), "");
  const std::string path = mountpoint() + "/f";
  const int one = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  const int two = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(::flock(one, LOCK_EX), 0);
  EXPECT_NE(::flock(two, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(::flock(one, LOCK_UN), 0);
  EXPECT_EQ(::flock(two, LOCK_EX | LOCK_NB), 0);
  ::close(one);
  ::close(two);
  EXPECT_EQ(unmount(), 0);
}

// How the store stands can be asked through the mount; no copy takes it along.
TEST_F(MountTest, TheRootTellsHowTheStoreStands) {
  ASSERT_EQ(mount(options()), "");
  const int file = ::open((mountpoint() + "/f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_EQ(::pwrite(file, std::string(5000, 'x').data(), 5000, 0), 5000);
  ::close(file);
  char text[65536] = {};
  const ssize_t bytes = ::getxattr(mountpoint().c_str(), fs::kStatsAttribute, text, sizeof(text));
  ASSERT_GT(bytes, 0);
  const std::string stats(text, static_cast<size_t>(bytes));
  for (const char* name : {"write.bytes", "ssd.bytes"})
    EXPECT_NE(stats.find(fmt::format("\"{}\":{{\"unit\":\"bytes\",\"sum\":5000,", name)), std::string::npos)
        << stats;
  EXPECT_LT(::getxattr((mountpoint() + "/f").c_str(), fs::kStatsAttribute, text, sizeof(text)), 0);
  const ssize_t listed = ::listxattr(mountpoint().c_str(), text, sizeof(text));
  EXPECT_EQ(std::string(text, static_cast<size_t>(std::max<ssize_t>(0, listed))).find(fs::kStatsAttribute),
            std::string::npos);
  EXPECT_EQ(unmount(), 0);
}

// A program that runs as its owner does not do so with another content, unless root has written it, as on
// every file system. The kernel leaves that to the mount.
TEST_F(MountTest, AChangeOfTheContentTakesTheRightToRunAsTheOwner) {
  MountOptions wanted = options();
  wanted.allow_other = ::geteuid() == 0;
  ASSERT_EQ(mount(wanted), "");
  const std::string path = mountpoint() + "/f";
  const auto mode = [](const std::string& of) {
    struct stat state = {};
    EXPECT_EQ(::stat(of.c_str(), &state), 0);
    return state.st_mode & 07777;
  };
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0755);
  const auto changes = [&](bool cuts, uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(1);
      ::_exit(cuts ? ::ftruncate(file, 1) != 0 : ::pwrite(file, "x", 1, 5) != 1);
    }
    int state = 0;
    return ::waitpid(child, &state, 0) == child && state == 0;
  };
  const uid_t self = ::geteuid(), other = self == 0 ? 20001 : self;
  for (const bool cuts : {false, true, false}) {
    ASSERT_EQ(::chmod(path.c_str(), 06755), 0);
    ASSERT_EQ(mode(path), 06755u);
    ASSERT_TRUE(changes(cuts, self));
    EXPECT_EQ(mode(path), self == 0 ? 06755u : 0755u) << cuts;
    ASSERT_TRUE(changes(cuts, other));
    EXPECT_EQ(mode(path), 0755u) << cuts;
    EXPECT_EQ(mode(backing() + "/f"), 0755u) << cuts;
  }
  ASSERT_EQ(::chmod(path.c_str(), 02745), 0);  // not a right to run, but an old mark for locks
  ASSERT_TRUE(changes(false, other));
  EXPECT_EQ(mode(path), 02745u);
  ::close(file);
  EXPECT_EQ(unmount(), 0);
}

// What the backing device refuses reaches the program by its own name: at the write if that waits, at fsync
// and close otherwise.
TEST_F(MountTest, AFullOrFailingBackingDirectoryIsToldByItsErrno) {
  for (const auto& [code, number] : {std::pair{Code::kNoSpace, ENOSPC}, std::pair{Code::kIoError, EIO}}) {
    for (const tier::Policy policy : {tier::Policy::kBacking, tier::Policy::kSsdBlocking}) {
      tier::DescribedFaultDevice device;
      io::Fault fault;
      fault.kind = io::CallKind::kWrite;
      fault.path_part = "/proc/self/fd/";  // by which the mount opens files of the backing directory
      fault.from_then_on = true;
      fault.status = error(code, Scope::kFile, "refused by the test");
      MountOptions with_fault = options();
      with_fault.device = &device;
      with_fault.store.engine.policy = policy;
      with_fault.store.engine.retry_ns = 1'000'000;
      with_fault.ready = [&](const tier::RecoveryReport&) { device.faults.inject(fault); };
      ASSERT_EQ(mount(with_fault), "");
      const int file = ::open((mountpoint() + "/f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
      const std::string bytes(kMiB, 'x');
      int refused = 0, writes = 0;
      while (refused == 0 && writes < 40)  // more than the log has space for
        if (::pwrite(file, bytes.data(), bytes.size(), writes++ * static_cast<off_t>(kMiB)) < 0)
          refused = errno;
      if (policy == tier::Policy::kSsdBlocking) {
        EXPECT_EQ(refused, number) << writes;
        ::close(file);
      } else {
        EXPECT_TRUE(refused == 0 || refused == number) << refused;
        for (int closes = 0; closes < 2; ++closes) {
          EXPECT_EQ(::close(::dup(file)), -1);
          EXPECT_EQ(errno, number);
        }
        EXPECT_EQ(::fsync(file), -1);
        EXPECT_EQ(errno, number);
        ::close(file);  // the fsync has told
      }
      std::printf("%s, %s: told after %d writes\n", std::string(tier::policy_name(policy)).c_str(),
                  ::strerror(number), writes);
      kill_mount();
      std::filesystem::remove_all(root_ + "/ssd");
      std::filesystem::remove_all(backing());
      std::filesystem::create_directory(backing());
    }
  }
}

// Each write reaches the store by itself and at once: the detector sees the program's own order.
// 600 files in two folders, every second one renamed, as rsync does; all are closed.
constexpr int kIdleFiles = 600;

std::string idle_name(int i) {
  return fmt::format("/folder-{}/{}-{}", i % 2, i % 4 < 2 ? "renamed" : "file", i);
}

void make_idle_files(const std::string& mountpoint) {
  for (const char* folder : {"/folder-0", "/folder-1"})
    std::filesystem::create_directory(mountpoint + folder);
  for (int i = 0; i < kIdleFiles; ++i) {
    const std::string path = fmt::format("{}/folder-{}/file-{}", mountpoint, i % 2, i);
    std::ofstream(path) << "content of " << i;
    if (i % 4 < 2) std::filesystem::rename(path, mountpoint + idle_name(i));
  }
}

size_t descriptors_of(pid_t process) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process)))
    ++count;
  return count;
}

TEST_F(MountTest, IdleFilesGiveTheirDescriptorsBack) {
  MountOptions few = options();
  few.nodes_max = 64;
  few.store.open_files_max = 16;
  few.at_unmount = tier::Store::AtClose::kDrain;
  ASSERT_EQ(mount(few), "");
  const size_t at_first = descriptors_of(child_);
  std::ofstream(mountpoint() + "/open") << "open all the time";
  const int open = ::open((mountpoint() + "/open").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(open, 0);
  make_idle_files(mountpoint());
  const size_t allowed = at_first + few.nodes_max + few.store.open_files_max + 16;
  for (int tries = 0; tries < 12'000 && descriptors_of(child_) > allowed; ++tries) ::usleep(10'000);
  EXPECT_LE(descriptors_of(child_), allowed);

  for (int i = 0; i < kIdleFiles; ++i)
    ASSERT_EQ(content(mountpoint() + idle_name(i)), fmt::format("content of {}", i)) << idle_name(i);
  char text[32] = {};
  EXPECT_EQ(::pread(open, text, sizeof(text), 0), 17);
  EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", open)).string(),
            std::filesystem::canonical(mountpoint()).string() + "/open")
      << "a file that is open was forgotten";
  ::close(open);
  EXPECT_EQ(unmount(), 0);
  for (int i = 0; i < kIdleFiles; ++i)
    ASSERT_EQ(content(backing() + idle_name(i)), fmt::format("content of {}", i)) << idle_name(i);
}

TEST_F(MountTest, CanaryFilesThatNobodyAsksTheKernelToForgetKeepTheirDescriptors) {
  MountOptions many = options();
  many.nodes_max = 100'000;
  ASSERT_EQ(mount(many), "");
  make_idle_files(mountpoint());
  EXPECT_GT(descriptors_of(child_), size_t{kIdleFiles});
  EXPECT_EQ(unmount(), 0);
}

// The thread that asks the kernel to forget may wait for a lock of a call that nobody answers any more.
TEST_F(MountTest, AMountThatLetsFilesBeForgottenEndsWhileCallsCome) {
  for (int round = 0; round < 5; ++round) {
    MountOptions few = options();
    few.nodes_max = 16;
    ASSERT_EQ(mount(few), "");
    const pid_t caller = ::fork();
    if (caller == 0) {
      for (int i = 0;; ++i) {
        const std::string path = fmt::format("{}/f{}", mountpoint(), i);
        const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0 || !mounted()) ::_exit(0);
        ::close(fd);
      }
    }
    ::usleep(100'000 + 40'000 * static_cast<unsigned>(round));
    ASSERT_EQ(::kill(child_, SIGTERM), 0);
    EXPECT_EQ(wait_for_mount(), 0);
    ::kill(caller, SIGKILL);
    ::waitpid(caller, nullptr, 0);
    for (const auto& each : std::filesystem::directory_iterator(backing()))
      if (each.is_regular_file()) std::filesystem::remove(each.path());
    for (const auto& each : std::filesystem::directory_iterator(mountpoint()))
      std::filesystem::remove(each.path());
  }
}

TEST_F(MountTest, SignalsComeToTheFirstThreadAlone) {
  ASSERT_EQ(mount(options()), "");
  std::ofstream(mountpoint() + "/f") << "some text";
  EXPECT_EQ(threads_that_take(SIGTERM), std::vector{std::to_string(child_)});
  EXPECT_EQ(unmount(), 0);
}

// A signal that interrupts nobody's wait, as one may that comes at once after SIGCONT. Here a thread takes it
// that has nothing to do with the mount.
TEST_F(MountTest, ASignalThatDoesNotWakeTheFirstThreadEndsTheMountAllTheSame) {
  MountOptions wanted = options();
  wanted.ready = [](const tier::RecoveryReport&) {
    std::thread([] {
      ::usleep(300'000);  // most likely the first thread waits by then: else it sees the mark at once
      ::raise(SIGTERM);
      for (;;) ::pause();
    }).detach();
  };
  ASSERT_EQ(mount(wanted), "");
  EXPECT_EQ(wait_for_mount(), 0);
  EXPECT_FALSE(mounted());
}

TEST_F(MountTest, TheKernelKeepsNoWritesBack) {
  ASSERT_EQ(mount(options()), "");
  const int file = ::open((mountpoint() + "/f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  for (const off_t at : {8192, 0, 4096})
    ASSERT_EQ(::pwrite(file, std::string(4096, 'x').data(), 4096, at), 4096);
  ::kill(child_, SIGKILL);  // nothing is left in the kernel
  wait_for_mount();
  ::close(file);
  std::system(("fusermount3 -uz " + mountpoint()).c_str());
  std::vector<std::string> lines;
  io::PosixDevice device;
  const auto report = tier::Store::inspect(
      device, root_ + "/ssd", [&](const tier::LogRecord& record) { lines.push_back(record.text()); });
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->records, 3u) << testing::PrintToString(lines);
}

}  // namespace
}  // namespace swale::fuse::mount_test
