// TierFs with each system call failing in turn: a call that fails leaves names and attributes as they were,
// and everything goes on.
//
// This program has its own chmod, fsetxattr and so on, which fail when they are told to, and else call those
// of the C library. So it is a program of its own.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "fs/testing/file_system_calls.h"
#include "fs/tier_fs.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::fs::tier_fs_failures_test {
namespace {

constexpr uint64_t kCallsMax = 40;  // of one call of TierFs; it makes fewer

// Of this thread: the n-th call from now on fails.
thread_local uint64_t fails_at = 0;
thread_local uint64_t calls = 0;
thread_local bool armed = false;

bool fails() { return armed && ++calls == fails_at; }
template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}
int refused() {
  errno = EIO;
  return -1;
}

class TierFsFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::current_path() / "tier-fs-failures-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override {
    close();
    std::filesystem::remove_all(root_);
  }
  void close() {
    calls_.reset();
    fs_.reset();
    store_.reset();
  }
  // Two files, one in the log, and a directory.
  void begin() {
    close();
    std::filesystem::remove_all(root_ + "/backing");
    std::filesystem::remove_all(root_ + "/ssd");
    std::filesystem::create_directory(root_ + "/backing");
    tier::StoreOptions options;
    options.ssd_directory = root_ + "/ssd";
    options.backing_directory = root_ + "/backing";
    options.engine.policy = tier::Policy::kSsdBlocking;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 64 * kKiB;
    options.queue_slots = 8;
    options.slot_bytes = 8 * kKiB;
    auto store = tier::Store::open(device_, options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    auto fs = TierFs::open(*store_, root_ + "/backing");
    ASSERT_TRUE(fs.ok()) << fs.status().to_string();
    fs_ = std::move(*fs);
    calls_.emplace(*fs_);
    int handle = 0;
    ASSERT_EQ(calls_->make_directory("folder", 0755), 0);
    ASSERT_EQ(calls_->open("data", O_RDWR | O_CREAT, 0640, &handle), 0);
    ASSERT_EQ(calls_->write(handle, 0, std::string(20'000, 'd')), 0);
    ASSERT_EQ(calls_->set_attribute("data", "user.kept", "kept"), 0);
    ASSERT_EQ(calls_->close(handle), 0);
    ASSERT_EQ(calls_->open("other", O_RDWR | O_CREAT, 0644, &handle), 0);
    ASSERT_EQ(calls_->close(handle), 0);
  }
  // Everything that a user can see.
  std::string state() {
    std::string text;
    for (const char* const directory : {"", "folder"}) {
      std::vector<std::string> names;
      EXPECT_EQ(calls_->list(directory, &names), 0);
      for (const std::string& name : names) {
        const std::string path = *directory == '\0' ? name : fmt::format("{}/{}", directory, name);
        struct stat found;
        EXPECT_EQ(calls_->look(path, &found), 0) << path;
        const bool is_file = S_ISREG(found.st_mode);
        text += fmt::format("{}: mode {:o} owner {} {} links {} size {} time {}.{}\n", path, found.st_mode,
                            found.st_uid, found.st_gid, found.st_nlink, is_file ? found.st_size : 0,
                            is_file ? found.st_mtim.tv_sec : 0, is_file ? found.st_mtim.tv_nsec : 0);
        std::vector<std::string> attributes;
        EXPECT_EQ(calls_->list_attributes(path, &attributes), 0);
        for (const std::string& attribute : attributes) {
          std::string value;
          EXPECT_EQ(calls_->get_attribute(path, attribute, &value), 0);
          text += fmt::format("  {}={}\n", attribute, value);
        }
      }
    }
    return text;
  }
  // The node of "data", changed.
  int change(const Change& wanted) {
    Entry entry;
    if (const int failed = fs_->lookup(*fs_->root(), "data", &entry); failed != 0) return failed;
    struct stat attributes;
    const int failed = fs_->change(*entry.node, wanted, Caller::this_thread(), &attributes);
    fs_->forget(entry.node, 1);
    return failed;
  }
  int make(const char* path, int flags) {
    int handle = 0;
    if (const int failed = calls_->open(path, flags, 0600, &handle); failed != 0) return failed;
    return calls_->close(handle);
  }
  void expect_that_it_goes_on() {
    int handle = 0;
    ASSERT_EQ(calls_->open("later", O_RDWR | O_CREAT, 0644, &handle), 0);
    ASSERT_EQ(calls_->write(handle, 0, "later"), 0);
    ASSERT_EQ(calls_->resize(handle, 3), 0);
    ASSERT_EQ(calls_->sync(handle), 0);
    ASSERT_EQ(calls_->close(handle), 0);
    ASSERT_EQ(calls_->open("data", O_RDWR | O_CREAT, 0644, &handle), 0);
    ASSERT_EQ(calls_->write(handle, 100, "more"), 0);
    ASSERT_EQ(calls_->sync(handle), 0);
    ASSERT_EQ(calls_->close(handle), 0);
    ASSERT_TRUE(store_->drain().ok());
  }

  tier::DescribedFaultDevice device_;
  std::string root_;
  std::unique_ptr<tier::Store> store_;
  std::unique_ptr<TierFs> fs_;
  std::optional<FileSystemCalls> calls_;
};

TEST_F(TierFsFailuresTest, ACallThatFailsLeavesNamesAndAttributesAsTheyWere) {
  const timespec old = {1'000'000, 5};
  const std::vector<std::pair<const char*, std::function<int()>>> all = {
      {"create", [this] { return make("new", O_RDWR | O_CREAT | O_EXCL); }},
      {"create in a folder", [this] { return make("folder/new", O_WRONLY | O_CREAT); }},
      {"open and cut", [this] { return make("data", O_RDWR | O_TRUNC); }},
      {"link", [this] { return calls_->link("data", "folder/linked"); }},
      {"rename", [this] { return calls_->rename("data", "folder/renamed", 0); }},
      {"replace", [this] { return calls_->rename("data", "other", 0); }},
      {"unlink", [this] { return calls_->unlink("data"); }},
      {"remove a folder", [this] { return calls_->remove_directory("folder"); }},
      {"mode", [this] { return change({.mode = 0604}); }},
      {"mode and time", [this, old] { return change({.mode = 0604, .accessed = old, .modified = old}); }},
      {"owner and mode",
       [this] { return change({.mode = 0604, .user = ::geteuid(), .group = ::getegid()}); }},
      {"mode, time and size", [this, old] { return change({.mode = 0604, .size = 100, .modified = old}); }},
      {"attribute", [this] { return calls_->set_attribute("data", "user.new", "value"); }},
  };
  for (const auto& [name, call] : all) {
    uint64_t failed = 0;
    for (uint64_t nth = 1; nth <= kCallsMax; ++nth) {
      SCOPED_TRACE(fmt::format("{}: system call {} fails", name, nth));
      begin();
      const std::string before = state();
      fails_at = nth;
      calls = 0;
      armed = true;
      const int answer = call();
      armed = false;
      failed += answer != 0;
      if (answer != 0) {
        EXPECT_EQ(state(), before);
      }
      expect_that_it_goes_on();
      if (HasFatalFailure() || HasNonfatalFailure()) return;
      if (calls < nth) break;
    }
    EXPECT_GT(failed, 0u) << name << ": nothing has failed";
    std::printf("%s: %lu calls failed\n", name, failed);
  }
}

// The backing directory refuses a truncate of what the log has. The size once was the new one, and the next
// write ended the process.
TEST_F(TierFsFailuresTest, ATruncateThatIsRefusedLeavesSizeModeAndTimesAndTheNextWriteGoesOn) {
  begin();
  const std::string before = state();
  io::Fault fault;
  fault.kind = io::CallKind::kTruncate;
  fault.path_part = "/proc/self/fd";  // as which files are adopted
  fault.from_then_on = true;
  device_.faults.inject(fault);
  EXPECT_EQ(change({.size = 100}), EIO);
  EXPECT_EQ(state(), before);
  EXPECT_EQ(change({.mode = 0604, .size = 100, .modified = timespec{1'000'000, 5}}), EIO);
  EXPECT_EQ(state(), before);
  ASSERT_TRUE(store_->drain().ok());  // a backing file that is empty need not be cut to nothing
  EXPECT_EQ(make("data", O_RDWR | O_TRUNC), EIO);
  EXPECT_EQ(state(), before);
  EXPECT_EQ(device_.faults.faults(), 3u);
  device_.faults.clear();
  expect_that_it_goes_on();
  EXPECT_EQ(change({.size = 100}), 0);
}

}  // namespace
}  // namespace swale::fs::tier_fs_failures_test

// Those of the C library, in front of them. What only looks (stat, getxattr) does not fail.
namespace failures = swale::fs::tier_fs_failures_test;

extern "C" {

int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, int, ...)>("openat");
  return next(directory, path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_PATH) == 0 && failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(const char*, int, ...)>("open");
  return next(path, flags, mode);
}
// openat2 has no function of its own. Other calls (a thread's user, for instance) do not fail.
long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long words[6];
  for (long& word : words) word = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat2 && (reinterpret_cast<const open_how*>(words[2])->flags & O_PATH) == 0 &&
      failures::fails())
    return failures::refused();
  static const auto next = failures::real<long (*)(long, ...)>("syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
int chmod(const char* path, mode_t mode) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(const char*, mode_t)>("chmod");
  return next(path, mode);
}
int fchmod(int fd, mode_t mode) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, mode_t)>("fchmod");
  return next(fd, mode);
}
int fchmodat(int directory, const char* path, mode_t mode, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, mode_t, int)>("fchmodat");
  return next(directory, path, mode, flags);
}
int fchownat(int directory, const char* path, uid_t user, gid_t group, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, uid_t, gid_t, int)>("fchownat");
  return next(directory, path, user, group, flags);
}
int utimensat(int directory, const char* path, const timespec times[2], int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, const timespec*, int)>("utimensat");
  return next(directory, path, times, flags);
}
int setxattr(const char* path, const char* name, const void* value, size_t size, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next =
      failures::real<int (*)(const char*, const char*, const void*, size_t, int)>("setxattr");
  return next(path, name, value, size, flags);
}
int fsetxattr(int fd, const char* name, const void* value, size_t size, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, const void*, size_t, int)>("fsetxattr");
  return next(fd, name, value, size, flags);
}
int linkat(int from, const char* path, int to, const char* name, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, int, const char*, int)>("linkat");
  return next(from, path, to, name, flags);
}
int renameat2(int from, const char* path, int to, const char* name, unsigned flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return next(from, path, to, name, flags);
}
int unlinkat(int directory, const char* path, int flags) {
  if (failures::fails()) return failures::refused();
  static const auto next = failures::real<int (*)(int, const char*, int)>("unlinkat");
  return next(directory, path, flags);
}

}  // extern "C"
