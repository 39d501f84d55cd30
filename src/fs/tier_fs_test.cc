#include "fs/tier_fs.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

#include "fs/testing/file_system_calls.h"
#include "fs/testing/random_calls.h"
#include "io/posix_device.h"

namespace swale::fs::tier_fs_test {
namespace {

constexpr uint64_t kCallsOfALife = 2'000;

uint64_t scale() {
  const char* factor = std::getenv("SWALE_FS_LIVES");
  return factor ? std::strtoull(factor, nullptr, 10) : 6;
}

class TierFsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Beside the program: /tmp may be without extended attributes.
    root_ = (std::filesystem::current_path() / "tier-fs-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directory(backing());
    std::filesystem::create_directory(plain());
    old_mask_ = ::umask(0);
  }
  void TearDown() override {
    ::umask(old_mask_);
    fs_.reset();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  std::string backing() const { return root_ + "/backing"; }
  std::string plain() const { return root_ + "/plain"; }
  void open(tier::Policy policy = tier::Policy::kSsdBlocking,
            tier::Durability durability = tier::Durability::kPageCache) {
    tier::StoreOptions options;
    options.ssd_directory = root_ + "/ssd";
    options.backing_directory = backing();
    options.engine.policy = policy;
    options.engine.durability = durability;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 512 * kKiB;
    options.engine.queue_slots = 4;
    options.engine.swale.byte_budget_random = 0;
    options.queue_slots = 8;
    options.slot_bytes = 16 * kKiB;
    auto store = tier::Store::open(device_, options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    auto fs = TierFs::open(*store_, backing(), trace_.get());
    ASSERT_TRUE(fs.ok()) << fs.status().to_string();
    fs_ = std::move(*fs);
    calls_.emplace(*fs_);
  }
  void close(tier::Store::AtClose how) {
    calls_.reset();
    fs_.reset();
    ASSERT_TRUE(store_->close(how).ok());
    store_.reset();
  }
  int open_file(const std::string& path, int flags) {
    int handle = -1;
    EXPECT_EQ(calls_->open(path, flags, 0644, &handle), 0) << path;
    return handle;
  }
  std::string read(int handle) {
    std::string out;
    EXPECT_EQ(calls_->read(handle, 0, 1'000'000, &out), 0);
    return out;
  }

  io::PosixDevice device_;
  std::string root_;
  mode_t old_mask_ = 0;
  std::unique_ptr<tier::TraceWriter> trace_;
  std::unique_ptr<tier::Store> store_;
  std::unique_ptr<TierFs> fs_;
  std::optional<FileSystemCalls> calls_;
};

// From here on the kernel tells each system call by which this thread would become somebody else, in place of
// making it.
std::atomic<int> changes_of_identity{0};
void tell_changes_of_identity() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++changes_of_identity; };
  ASSERT_EQ(::sigaction(SIGSYS, &action, nullptr), 0);
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsuid, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsgid, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setgroups, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_capset, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_umask, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const sock_fprog filter = {static_cast<unsigned short>(std::size(steps)), steps};
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << ::strerror(errno);
}

// The open has checked; a write that changed the thread's identity would pay for nothing.
TEST_F(TierFsTest, CallsOnAnOpenHandleChangeNoIdentity) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, which may act for others";
  open();
  ASSERT_TRUE(fs_->switches());
  ASSERT_EQ(::chmod(backing().c_str(), 0777), 0);
  std::thread([this] {
    FileSystemCalls user(*fs_, {.user = 20001, .group = 20001});
    int file = -1;
    ASSERT_EQ(user.open("f", O_RDWR | O_CREAT, 0644, &file), 0);
    changes_of_identity = 0;
    tell_changes_of_identity();
    if (HasFatalFailure()) return;
    for (const size_t bytes : {size_t{4096}, size_t{16} * 1024})
      for (int i = 0; i < 50; ++i) {
        const auto place = static_cast<uint64_t>((i * 7 % 50)) * bytes;
        ASSERT_EQ(user.write(file, place, std::string(bytes, 'x')), 0);
      }
    std::string text;
    EXPECT_EQ(user.read(file, 0, 100, &text), 0);
    EXPECT_EQ(user.allocate(file, 0, 0, 1'000'000), 0);
    EXPECT_EQ(user.resize(file, 10), 0);
    EXPECT_EQ(user.sync(file), 0);
    EXPECT_EQ(changes_of_identity, 0);
    int other = -1;
    EXPECT_NE(user.open("g", O_RDWR | O_CREAT, 0644, &other), 0);
    EXPECT_GT(changes_of_identity, 0) << "canary: a name that is made is made as the caller";
    EXPECT_EQ(user.close(file), 0);
  }).join();
}

TEST_F(TierFsTest, AllocatedSpaceIsAChange) {
  open();
  const int file = open_file("f", O_RDWR | O_CREAT);
  EXPECT_EQ(calls_->write(file, 0, "0123456789"), 0);
  for (const int mode : {FALLOC_FL_KEEP_SIZE, 0}) {
    struct stat before, after;
    ASSERT_EQ(calls_->set_time("f", 1'000'000), 0);
    ASSERT_EQ(calls_->state(file, &before), 0);
    EXPECT_EQ(before.st_mtim.tv_sec, 1'000'000);
    ASSERT_EQ(calls_->allocate(file, mode, 0, 5), 0);
    ASSERT_EQ(calls_->state(file, &after), 0);
    EXPECT_GT(after.st_mtim.tv_sec, 1'000'000) << "mode " << mode;
    EXPECT_EQ(after.st_size, 10);
  }
  EXPECT_EQ(calls_->close(file), 0);
}

TEST_F(TierFsTest, RequestsAreRecordedAsTheyCome) {
  auto trace = tier::TraceWriter::open(device_, root_ + "/trace");
  ASSERT_TRUE(trace.ok()) << trace.status().to_string();
  trace_ = std::move(*trace);
  open();
  const int file = open_file("f", O_RDWR | O_CREAT);
  EXPECT_EQ(calls_->write(file, 5, "0123456789"), 0);
  EXPECT_EQ(read(file).size(), 15u);
  EXPECT_EQ(calls_->resize(file, 4), 0);
  EXPECT_EQ(calls_->allocate(file, 0, 0, 100), 0);
  EXPECT_EQ(calls_->sync(file), 0);
  EXPECT_EQ(calls_->link("f", "other"), 0);
  EXPECT_EQ(calls_->rename("f", "g", 0), 0);
  EXPECT_EQ(calls_->unlink("g"), 0);
  EXPECT_EQ(calls_->unlink("other"), 0);
  EXPECT_NE(calls_->unlink("other"), 0);
  struct stat state;
  EXPECT_EQ(calls_->state(file, &state), 0);
  EXPECT_EQ(calls_->close(file), 0);
  close(tier::Store::AtClose::kKeep);
  trace_.reset();
  using Kind = tier::TraceRecord::Kind;
  struct Seen {
    Kind kind;
    uint64_t offset, length;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  const auto bytes = device_.open(root_ + "/trace", io::OpenMode::kRead);
  ASSERT_TRUE(bytes.ok());
  const auto read = tier::read_trace(**bytes, [&](const tier::TraceRecord& record) {
    EXPECT_EQ(record.file, state.st_ino);
    seen.push_back({record.kind, record.offset, record.length});
  });
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->complete);
  const std::vector<Seen> wanted = {
      {Kind::kWrite, 5, 10}, {Kind::kRead, 0, 1'000'000}, {Kind::kTruncate, 4, 0}, {Kind::kTruncate, 100, 0},
      {Kind::kSync, 0, 0},   {Kind::kRename, 0, 0},       {Kind::kUnlink, 1, 0},   {Kind::kUnlink, 0, 0}};
  EXPECT_TRUE(seen == wanted);
}

// Random calls beside a plain directory, in all policies, with closings and openings between; after each life
// the names and bytes are the same, and after a drain the backing directory itself is.
TEST_F(TierFsTest, RandomCallsGiveWhatAPlainDirectoryGives) {
  constexpr tier::Policy kPolicies[] = {tier::Policy::kSsdBlocking, tier::Policy::kSwale,
                                        tier::Policy::kBacking, tier::Policy::kSsdOverflowing};
  PosixCalls plain_calls(plain());
  uint64_t calls = 0;
  for (uint64_t life = 0; life < scale(); ++life) {
    open(kPolicies[life % 4], life % 7 == 6 ? tier::Durability::kGroupCommit : tier::Durability::kPageCache);
    RandomCalls random(*calls_, plain_calls, 1000 + life);
    const uint64_t wanted = life % 7 == 6 ? kCallsOfALife / 10 : kCallsOfALife;
    ASSERT_EQ(random.run(wanted), "") << "life " << life;
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    random.close_all();
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    calls += random.calls();
    const bool drains = life % 2 == 1;
    close(drains ? tier::Store::AtClose::kDrain : tier::Store::AtClose::kKeep);
    if (drains) {
      PosixCalls on_backing(backing());
      RandomCalls compare(on_backing, plain_calls, 0);
      ASSERT_EQ(compare.compare_trees(), "") << "life " << life << ", the backing directory";
    }
    if (life + 1 == scale()) std::printf("%s\n", random.summary().c_str());
  }
  std::printf("%lu calls\n", calls);
}

// The checker's own test: a file system that is wrong in a byte now and then, or ignores truncates, does not
// pass.
TEST_F(TierFsTest, CanaryTheRandomTestFindsWrongBytesAndLostTruncates) {
  class Wrong final : public PosixCalls {
   public:
    Wrong(const std::string& root, bool in_bytes) : PosixCalls(root), in_bytes_(in_bytes) {}
    int write(int handle, uint64_t offset, Bytes data) override {
      std::string bytes(data);
      if (in_bytes_ && ++writes_ % 50 == 0) bytes.back() ^= 1;
      return PosixCalls::write(handle, offset, bytes);
    }
    int truncate(const std::string& path, uint64_t size) override {
      struct stat state;
      if (!in_bytes_ && look(path, &state) == 0) return 0;
      return PosixCalls::truncate(path, size);
    }

   private:
    const bool in_bytes_;
    int writes_ = 0;
  };
  for (const bool in_bytes : {true, false}) {
    const std::string other = root_ + (in_bytes ? "/bytes" : "/truncates");
    const std::string model = other + "-plain";
    std::filesystem::create_directory(other);
    std::filesystem::create_directory(model);
    PosixCalls plain_calls(model);
    Wrong wrong(other, in_bytes);
    RandomCalls random(wrong, plain_calls, 1);
    std::string found = random.run(3'000);
    if (found.empty()) found = random.compare_trees();
    EXPECT_NE(found, "");
    random.close_all();
    std::printf("found: %s\n", found.c_str());
  }
}

TEST_F(TierFsTest, NodesAndHandlesAreGivenBack) {
  open();
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto make_and_unlink = [&](int i) {
    const std::string name = "f" + std::to_string(i);
    const int handle = open_file(name, O_CREAT | O_RDWR);
    ASSERT_EQ(calls_->write(handle, 0, "abc"), 0);
    ASSERT_EQ(calls_->close(handle), 0);
    ASSERT_EQ(calls_->unlink(name), 0);
  };
  // The storage thread opens its ring when it begins: before the first file is forgotten.
  make_and_unlink(-1);
  ASSERT_TRUE(store_->drain().ok());
  const auto before = descriptors();
  for (int i = 0; i < 50; ++i) make_and_unlink(i);
  // The engine forgets a file by the storage thread.
  for (int i = 0; i < 6000 && descriptors() > before; ++i) ::usleep(10'000);
  EXPECT_LE(descriptors(), before) << "files without names keep nothing";
}

TEST_F(TierFsTest, TheStoresOwnThingsAreNeitherSeenNorTouched) {
  open();
  Entry entry;
  EXPECT_EQ(fs_->lookup(*fs_->root(), tier::kPrivateDirectory, &entry), ENOENT);
  EXPECT_EQ(calls_->make_directory(tier::kPrivateDirectory, 0755), EPERM);
  EXPECT_EQ(calls_->remove_directory(tier::kPrivateDirectory), ENOENT);
  EXPECT_EQ(calls_->rename(tier::kPrivateDirectory, "mine", 0), ENOENT);
  std::vector<std::string> names;
  ASSERT_EQ(calls_->list("", &names), 0);
  EXPECT_EQ(names, std::vector<std::string>());
  ASSERT_EQ(calls_->close(open_file("f", O_CREAT | O_RDWR)), 0);
  std::string value;
  EXPECT_EQ(calls_->get_attribute("f", tier::kIdAttribute, &value), ENODATA);
  EXPECT_EQ(calls_->set_attribute("f", tier::kIdAttribute, "12345678"), EPERM);
  const Caller me = Caller::this_thread();
  const auto removed = [&](Node& node) { return fs_->remove_attribute(node, tier::kIdAttribute, me); };
  ASSERT_EQ(fs_->lookup(*fs_->root(), "f", &entry), 0);
  EXPECT_EQ(removed(*entry.node), ENODATA);
  std::string list;
  ASSERT_EQ(fs_->list_attributes(*entry.node, me, &list), 0);
  EXPECT_EQ(list.find(tier::kIdAttribute), std::string::npos);
  fs_->forget(entry.node, 1);
}

// A reader that came before the first writer sees what the writer does.
TEST_F(TierFsTest, AFileThatWasOpenedToReadBeforeItHadAHandleIsReadThroughTheStore) {
  open();
  const int made = open_file("f", O_CREAT | O_RDWR);
  ASSERT_EQ(calls_->close(made), 0);
  const int reader = open_file("f", O_RDONLY);
  EXPECT_EQ(read(reader), "");
  const int writer = open_file("f", O_WRONLY);
  ASSERT_EQ(calls_->write(writer, 0, "abc"), 0);
  EXPECT_EQ(read(reader), "abc");
  ASSERT_EQ(calls_->close(writer), 0);
  EXPECT_EQ(read(reader), "abc");
  ASSERT_EQ(calls_->close(reader), 0);
}

TEST_F(TierFsTest, WhatIsMadeBelongsToTheCaller) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, which may act for others";
  ASSERT_EQ(::chmod(backing().c_str(), 0777), 0);
  open();
  const Caller caller = {.user = 1234, .group = 2345, .umask = 027};
  Entry entry;
  std::unique_ptr<OpenFile> file;
  ASSERT_EQ(fs_->create(*fs_->root(), "f", 0666, O_RDWR, caller, &entry, &file), 0);
  EXPECT_EQ(entry.attributes.st_uid, 1234u);
  EXPECT_EQ(entry.attributes.st_gid, 2345u);
  EXPECT_EQ(entry.attributes.st_mode & 07777, 0640u);
  fs_->release(std::move(file));
  fs_->forget(entry.node, 1);
  ASSERT_EQ(fs_->make_directory(*fs_->root(), "d", 0777, caller, &entry), 0);
  struct stat state;
  ASSERT_EQ(fs_->change(*entry.node, {.mode = 02777}, caller, &state), 0);
  Entry inside;
  ASSERT_EQ(fs_->make_directory(*entry.node, "e", 0755, {.user = 1, .group = 1}, &inside), 0);
  EXPECT_EQ(inside.attributes.st_gid, 2345u) << "of the directory, which has S_ISGID";
  EXPECT_EQ(inside.attributes.st_mode & 07777, 02755u);
  fs_->forget(inside.node, 1);
  fs_->forget(entry.node, 1);
}

// Without a kernel above that would refuse it first.
TEST_F(TierFsTest, TheBackingFileSystemDecidesWhatACallerMayDo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, which may act for others";
  open();
  ASSERT_EQ(calls_->close(open_file("f", O_CREAT | O_RDWR)), 0);
  ASSERT_EQ(calls_->set_mode("f", 0640), 0);
  ASSERT_EQ(calls_->make_directory("d", 0700), 0);
  FileSystemCalls other(*fs_, {.user = 1234, .group = 1234});
  int handle = -1;
  std::vector<std::string> names;
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC})
    EXPECT_EQ(other.open("f", flags, 0, &handle), EACCES) << flags;
  EXPECT_EQ(other.open("new", O_CREAT | O_RDWR, 0644, &handle), EACCES);
  EXPECT_EQ(other.truncate("f", 0), EACCES);
  EXPECT_EQ(other.set_mode("f", 0777), EPERM);
  EXPECT_EQ(other.set_time("f", 5), EPERM);
  EXPECT_EQ(other.set_attribute("f", "user.x", "y"), EACCES);
  std::string value;
  EXPECT_EQ(other.get_attribute("f", "user.x", &value), EACCES);
  EXPECT_EQ(other.unlink("f"), EACCES);
  EXPECT_EQ(other.rename("f", "g", 0), EACCES);
  EXPECT_NE(other.link("f", "g"), 0);  // EPERM where links to others' files are protected
  EXPECT_EQ(other.make_directory("e", 0755), EACCES);
  EXPECT_EQ(other.make_symlink("f", "s"), EACCES);
  EXPECT_EQ(other.remove_directory("d"), EACCES);
  EXPECT_EQ(other.list("d", &names), EACCES);
  // The same file by a group, and the thread is root again afterwards.
  ASSERT_EQ(::chown((backing() + "/f").c_str(), 0, 2345), 0);
  FileSystemCalls member(*fs_, {.user = 1234, .group = 2345});
  ASSERT_EQ(member.open("f", O_RDONLY, 0, &handle), 0);
  ASSERT_EQ(member.close(handle), 0);
  EXPECT_EQ(member.open("f", O_WRONLY, 0, &handle), EACCES);
  ASSERT_EQ(calls_->set_mode("f", 0600), 0);
  EXPECT_EQ(member.open("f", O_RDONLY, 0, &handle), EACCES);
}

TEST_F(TierFsTest, WhatCannotBeDoneIsRefusedAsPosixSays) {
  open();
  const int handle = open_file("f", O_CREAT | O_RDWR);
  EXPECT_EQ(calls_->write(handle, uint64_t{1} << 48, "x"), EFBIG);
  EXPECT_EQ(calls_->resize(handle, uint64_t{1} << 50), EFBIG);
  EXPECT_EQ(calls_->allocate(handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1), EOPNOTSUPP);
  uint64_t found = 0;
  EXPECT_EQ(calls_->seek(handle, 0, SEEK_DATA, &found), ENXIO);
  EXPECT_EQ(calls_->close(handle), 0);
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(fs_->open_file(*fs_->root(), O_RDONLY, Caller::this_thread(), &file), EISDIR);
}

TEST_F(TierFsTest, ManyThreadsUseManyFilesAtATime) {
  open(tier::Policy::kSwale);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      FileSystemCalls calls(*fs_);
      for (int i = 0; i < 60; ++i) {
        const std::string name = "f" + std::to_string((t + i) % 6), mine = "t" + std::to_string(t);
        int shared = -1, own = -1;
        std::string out;
        const bool fine =
            calls.open(name, O_CREAT | O_RDWR, 0644, &shared) == 0 &&
            calls.write(shared, static_cast<uint64_t>(t) * 5'000, std::string(5'000, 'a')) == 0 &&
            calls.open(mine, O_CREAT | O_RDWR, 0644, &own) == 0 &&
            calls.write(own, 0, std::string(100, static_cast<char>('a' + i % 26))) == 0 &&
            calls.read(own, 0, 100, &out) == 0 && out == std::string(100, static_cast<char>('a' + i % 26)) &&
            calls.close(shared) == 0 && calls.close(own) == 0;
        if (!fine) ++failures;
        if (i % 7 == 0 && calls.unlink(mine) != 0) ++failures;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace swale::fs::tier_fs_test
