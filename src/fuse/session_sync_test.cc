// Synchronous writes, and other changes of synchronous files, through the kernel: how often a file system is
// asked to sync, when, and by which thread; of files whose pages the kernel keeps, and of others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "fs/read_only.h"
#include "fuse/mounted.h"
#include "fuse/testing/test_mount.h"

namespace swale::fuse::session_sync_test {
namespace {

using fs::Caller;
using fs::Entry;
using fs::Node;
using Pages = fs::FileSystem::Pages;

// What the file system does, and has seen; in memory that its process shares with the test.
struct Shared {
  std::atomic<Pages> pages = Pages::kNone;
  std::atomic<bool> may_drop = false;
  std::atomic<int> sync_fails = 0;  // with this errno

  std::atomic<uint64_t> bytes = 0;  // the file's size
  std::atomic<uint32_t> writes = 0, syncs = 0;
  std::atomic<uint32_t> writes_synced = 0;  // before the last sync
  std::atomic<pid_t> writer = 0, syncer = 0;

  void count_anew() { writes = syncs = writes_synced = 0; }
};

struct OneNode final : Node {};
struct OneOpen final : fs::OpenFile {};

// A directory with one file, "f", which can be written; it keeps no bytes.
class OneFile final : public fs::ReadOnlyFileSystem {
 public:
  explicit OneFile(Shared& shared) : shared_(shared) { root_ = &top_; }

  fs::KernelUse kernel_use() const override { return {.keep_seconds = 0, .checks_acls = false}; }
  size_t nodes_known() const override { return 2; }
  int lookup(Node&, const char* name, Entry* entry) override {
    if (std::strcmp(name, "f") != 0) return ENOENT;
    entry->node = &file_;
    return attributes(file_, &entry->attributes);
  }
  void forget(Node*, uint64_t) override {}
  int open_directory(Node&, const Caller&, std::unique_ptr<fs::OpenDirectory>*) override { return EACCES; }
  int read_directory(fs::OpenDirectory&, off_t,
                     const std::function<bool(const fs::DirectoryEntry&)>&) override {
    return EACCES;
  }
  int attributes(Node& node, struct stat* attributes) override {
    *attributes = {};
    attributes->st_mode = &node == root_ ? S_IFDIR | 0755 : S_IFREG | 0644;
    attributes->st_nlink = 1;
    attributes->st_uid = ::geteuid();
    attributes->st_gid = ::getegid();
    if (&node != root_) attributes->st_size = static_cast<off_t>(shared_.bytes.load());
    return 0;
  }
  int statistics(struct statvfs* statistics) override { return *statistics = {}, 0; }
  int get_attribute(Node&, const char*, const Caller&, std::string*) override { return ENODATA; }
  int list_attributes(Node&, const Caller&, std::string*) override { return 0; }

  int open_file(Node&, int, const Caller&, std::unique_ptr<fs::OpenFile>* file) override {
    *file = std::make_unique<OneOpen>();
    return 0;
  }
  Pages pages(const fs::OpenFile&, bool) const override { return shared_.pages; }
  bool may_drop_pages(const Node*, std::optional<mode_t>) const override { return shared_.may_drop; }
  int read(fs::OpenFile&, uint64_t offset, MutableBytes out, size_t* got) override {
    *got = std::min<uint64_t>(out.size(), shared_.bytes - std::min(offset, shared_.bytes.load()));
    std::fill_n(out.data(), *got, '\0');
    return 0;
  }
  int change(Node& node, const fs::Change& change, const Caller&, struct stat* attributes) override {
    if (change.size) {
      shared_.bytes = *change.size;
      ++shared_.writes;
    }
    return this->attributes(node, attributes);
  }
  int allocate(fs::OpenFile&, int, uint64_t, uint64_t, const Caller&) override {
    ++shared_.writes;
    return 0;
  }
  int write(fs::OpenFile&, uint64_t offset, uint64_t length, const Caller&, const Fill& fill) override {
    std::string bytes(length, '\0');
    if (const Status filled = fill(MutableBytes(bytes)); !filled.ok()) return filled.posix_error();
    shared_.bytes = std::max(shared_.bytes.load(), offset + length);
    shared_.writer = ::gettid();
    ++shared_.writes;
    return 0;
  }
  void write(fs::OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
             const std::function<void(int)>& answered) override {
    answered(write(file, offset, length, caller, fill));
  }
  int sync(fs::OpenFile&) override {
    shared_.writes_synced = shared_.writes.load();
    shared_.syncer = ::gettid();
    ++shared_.syncs;
    return shared_.sync_fails;
  }
  int seek(fs::OpenFile&, uint64_t, int, uint64_t*) override { return ENXIO; }

 private:
  Shared& shared_;
  OneNode top_, file_;
};

struct Way {
  const char* name;
  int opened = 0;   // with these flags, besides those of all
  int written = 0;  // of pwritev2
  uint32_t syncs = 1;
};
constexpr Way kWays[] = {
    {"plain", 0, 0, 0},
    {"appended", O_APPEND, 0, 0},
    {"O_DSYNC", O_DSYNC},
    {"O_SYNC", O_SYNC},
    {"O_SYNC, appended", O_SYNC | O_APPEND},
    {"RWF_DSYNC", 0, RWF_DSYNC},
    {"RWF_SYNC", 0, RWF_SYNC},
};

class SessionSyncTest : public MountRig {
 protected:
  void SetUp() override {
    MountRig::SetUp();
    if (IsSkipped()) return;
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    ASSERT_EQ(start([this](const std::function<void()>& ready) {
                Mounted mounted;
                mounted.mountpoint = mountpoint();
                mounted.name = "one-file";
                mounted.threads = 4;
                OneFile fs(*shared_);
                return serve_mounted(mounted, &fs, raise_descriptor_limit(), ready);
              }),
              "");
  }
  void TearDown() override {
    if (child_ > 0) {
      EXPECT_EQ(unmount(), 0);
    }
    if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
    MountRig::TearDown();
  }
  // 0, or the errno of the write.
  int write(const Way& way) {
    const int file = ::open((mountpoint() + "/f").c_str(), O_RDWR | O_CLOEXEC | way.opened);
    EXPECT_GE(file, 0) << ::strerror(errno);
    shared_->count_anew();
    char bytes[] = "some bytes";
    const iovec part = {bytes, sizeof(bytes)};
    const ssize_t written = ::pwritev2(file, &part, 1, 0, way.written);
    const int failed = written < 0 ? errno : 0;
    EXPECT_TRUE(failed != 0 || written == static_cast<ssize_t>(sizeof(bytes))) << written;
    ::close(file);
    return failed;
  }
  // Each way, of files whose pages the kernel keeps, or does not; with pages that a sync drops, or without.
  template <class Check>
  void each_way(const Check& check) {
    for (const Pages pages : {Pages::kNone, Pages::kOfOpen, Pages::kKept})
      for (const bool may_drop : {false, true})
        for (const Way& way : kWays) {
          SCOPED_TRACE(fmt::format("{}, pages {}, may drop {}", way.name, static_cast<int>(pages), may_drop));
          shared_->pages = pages;
          shared_->may_drop = may_drop;
          check(way);
        }
  }

  Shared* shared_ = nullptr;
};

// Where the kernel keeps pages it asks for the sync itself.
TEST_F(SessionSyncTest, ASynchronousWriteIsSyncedOnceBeforeItIsAnsweredAndNoOtherIs) {
  each_way([this](const Way& way) {
    EXPECT_EQ(write(way), 0);
    EXPECT_EQ(shared_->writes, 1u);
    EXPECT_EQ(shared_->syncs, way.syncs);
    EXPECT_EQ(shared_->writes_synced, way.syncs) << "it came before the write";
  });
}

TEST_F(SessionSyncTest, ASyncThatFailsIsAnErrorOfTheWrite) {
  shared_->sync_fails = EIO;
  each_way([this](const Way& way) { EXPECT_EQ(write(way), way.syncs > 0 ? EIO : 0); });
}

struct ChangeCall {
  const char* name;
  ssize_t (*call)(int file);
};
constexpr ChangeCall kChanges[] = {
    {"ftruncate", [](int file) -> ssize_t { return ::ftruncate(file, 50); }},
    {"ftruncate that extends", [](int file) -> ssize_t { return ::ftruncate(file, 5000); }},
    {"fallocate", [](int file) -> ssize_t { return ::fallocate(file, 0, 0, 200); }},
    {"a hole",
     [](int file) -> ssize_t {
       return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10);
     }},
    {"copy_file_range",
     [](int file) -> ssize_t {
       off_t from = 0, to = 50;
       return ::copy_file_range(file, &from, file, &to, 10, 0) == 10 ? 0 : -1;
     }},
};

TEST_F(SessionSyncTest, OtherChangesOfASynchronousFileAreSyncedBeforeTheyAreAnswered) {
  for (const bool may_drop : {false, true})
    for (const int opened : {0, O_DSYNC, O_SYNC})
      for (const int sync_fails : {0, EIO})
        for (const ChangeCall& change : kChanges) {
          SCOPED_TRACE(fmt::format("{}, opened {:#x}, may drop {}, sync fails {}", change.name, opened,
                                   may_drop, sync_fails));
          shared_->may_drop = may_drop;
          shared_->bytes = 100;
          const int file = ::open((mountpoint() + "/f").c_str(), O_RDWR | O_CLOEXEC | opened);
          ASSERT_GE(file, 0) << ::strerror(errno);
          shared_->sync_fails = sync_fails;
          shared_->count_anew();
          const ssize_t done = change.call(file);
          const int failed = done < 0 ? errno : 0;
          const uint32_t syncs = opened != 0 ? 1 : 0;
          EXPECT_EQ(failed, syncs > 0 ? sync_fails : 0);
          EXPECT_EQ(shared_->writes, 1u);
          EXPECT_EQ(shared_->syncs, syncs);
          EXPECT_EQ(shared_->writes_synced, syncs) << "it came before the change";
          shared_->sync_fails = 0;
          ::close(file);
        }
}

// As that of fsync: a sync that may wait until the kernel has dropped pages must not hinder its reads.
TEST_F(SessionSyncTest, ASyncThatMayDropPagesHoldsNoThreadOfTheSession) {
  const Way* const synchronous = &kWays[2];
  ASSERT_GT(synchronous->syncs, 0u);
  for (const bool may_drop : {false, true}) {
    shared_->may_drop = may_drop;
    EXPECT_EQ(write(*synchronous), 0);
    EXPECT_EQ(shared_->writer != shared_->syncer, may_drop);
  }
}

}  // namespace
}  // namespace swale::fuse::session_sync_test
