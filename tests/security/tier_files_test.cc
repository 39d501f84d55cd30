// The tier's files against other users of the machine: who can read and change them, which planted ones are
// refused, whose ids are believed. Root runs it as two users; without root, what needs a second one is
// skipped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/coding.h"
#include "io/posix_device.h"
#include "tier/store/store.h"

namespace swale::tier::tier_files_test {
namespace {

namespace files = std::filesystem;

constexpr uid_t kNeighbour = 65532;

// What below a directory, itself included, lets anybody but its owner in.
std::vector<std::string> loose(const std::string& directory) {
  std::vector<std::string> found;
  const auto look = [&](const files::path& path) {
    struct stat is;
    if (::lstat(path.c_str(), &is) != 0 || is.st_uid != ::geteuid() || (is.st_mode & 0077) != 0)
      found.push_back(path.string());
  };
  look(directory);
  for (const auto& each : files::recursive_directory_iterator(directory)) look(each.path());
  return found;
}

// In a process of that user; what it returns is the exit status.
int as_user(uid_t user, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(111);
    ::_exit(body());
  }
  int state = 0;
  EXPECT_EQ(::waitpid(child, &state, 0), child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

class TierFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (files::current_path() / "tier-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
    files::create_directory(backing());
    old_mask_ = ::umask(0);  // the loosest
  }
  void TearDown() override {
    store_.reset();
    ::umask(old_mask_);
    files::remove_all(root_);
  }
  std::string ssd() const { return root_ + "/ssd"; }
  std::string backing() const { return root_ + "/backing"; }
  std::string own() const { return backing() + "/.swale-tier"; }

  StoreOptions options() const {
    StoreOptions options;
    options.ssd_directory = ssd();
    options.backing_directory = backing();
    options.engine.policy = Policy::kSsdBlocking;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 64 * kKiB;
    options.queue_slots = 8;
    options.slot_bytes = 8 * kKiB;
    return options;
  }
  Status open(const StoreOptions& options) {
    store_.reset();
    auto store = Store::open(device_, options);
    if (store.ok()) store_ = std::move(*store);
    return store.status();
  }
  Status open() { return open(options()); }
  void close(Store::AtClose how = Store::AtClose::kKeep) {
    ASSERT_TRUE(store_->close(how).ok());
    store_.reset();
  }
  void write(const std::string& name, const std::string& bytes, uint64_t offset = 0) {
    const auto file = store_->open_file(name, io::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_TRUE(store_->write(*file, offset, bytes).ok());
    store_->close_file(*file);
  }
  Result<std::string> read(const std::string& name, size_t size) {
    SWALE_ASSIGN_OR_RETURN(const auto file, store_->open_file(name, io::OpenMode::kReadWrite));
    std::string bytes(size, '\0');
    const auto got = store_->read(file, 0, bytes);
    store_->close_file(file);
    SWALE_RETURN_IF_ERROR(got.status());
    return bytes.substr(0, *got);
  }
  std::string text(const std::string& name, size_t size) {
    const auto bytes = read(name, size);
    return bytes.ok() ? *bytes : bytes.status().to_string();
  }
  // The store is refused, and the message has all of these.
  void expect_refused(const std::vector<std::string>& words) {
    const Status refused = open();
    EXPECT_FALSE(refused.ok());
    for (const std::string& word : words)
      EXPECT_NE(refused.message().find(word), std::string::npos) << refused.message();
  }
  static bool is_root() { return ::geteuid() == 0; }
  static std::string on_disk(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const char* attribute() const {
    const std::string probe = root_ + "/probe";
    std::ofstream(probe).put('p');
    const bool trusted = ::setxattr(probe.c_str(), kTrustedIdAttribute, "12345678", 8, 0) == 0;
    return trusted ? kTrustedIdAttribute : kIdAttribute;
  }

  io::PosixDevice device_;
  std::string root_;
  std::unique_ptr<Store> store_;
  mode_t old_mask_ = 0;
};

TEST_F(TierFilesTest, LogQueueLocksAndMarksAreTheUsersAloneWhateverTheUmask) {
  for (const mode_t mask : {0000, 0022, 0277}) {
    ::umask(mask);
    files::remove_all(ssd());
    files::remove_all(own());
    ASSERT_TRUE(open().ok());
    write("data", std::string(20'000, 'd'));
    EXPECT_EQ(loose(ssd()), std::vector<std::string>()) << "umask " << mask;
    EXPECT_EQ(loose(own()), std::vector<std::string>()) << "umask " << mask;
    struct stat is;
    ASSERT_EQ(::stat((ssd() + "/log").c_str(), &is), 0);
    EXPECT_EQ(is.st_mode & 07777, 0600u);
    ASSERT_EQ(::stat(ssd().c_str(), &is), 0);
    EXPECT_EQ(is.st_mode & 0777, 0700u);
    store_.reset();
    ASSERT_TRUE(open().ok()) << "again";
    store_.reset();
  }
  ::umask(0);
}

TEST_F(TierFilesTest, CanaryALogThatOthersCanReadIsFoundByTheChecker) {
  ASSERT_TRUE(open().ok());
  ASSERT_EQ(::chmod((ssd() + "/log").c_str(), 0644), 0);
  EXPECT_EQ(loose(ssd()), std::vector<std::string>{ssd() + "/log"});
}

TEST_F(TierFilesTest, ANeighbourReadsAndChangesNothing) {
  if (!is_root()) GTEST_SKIP() << "needs root, who can be two users";
  ASSERT_TRUE(open().ok());
  write("data", "secret");
  for (const std::string& path : {ssd() + "/log", ssd() + "/queue.1", own() + "/log", own() + "/lock"}) {
    ASSERT_TRUE(files::exists(path)) << path;
    EXPECT_EQ(
        as_user(kNeighbour, [&] { return ::open(path.c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 1; }), 0)
        << path;
  }
  EXPECT_EQ(as_user(kNeighbour, [&] { return ::mkdir((ssd() + "/x").c_str(), 0700) != 0 ? 0 : 1; }), 0);
}

// What is acknowledged stands in pages of the queue that the process has mapped: no way leads another user
// there, neither by the file nor by the process.
TEST_F(TierFilesTest, ANeighbourReachesNoPageOfTheQueue) {
  if (!is_root()) GTEST_SKIP() << "needs root, who can be two users";
  ASSERT_TRUE(open().ok());
  write("data", "secret");
  const std::string queue = files::canonical(ssd() + "/queue.1").string();
  std::string range;  // of its pages: begin-end
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(queue)) range = line.substr(0, line.find(' '));
  ASSERT_NE(range, "") << queue << " is mapped";
  int fd = -1;
  for (const auto& each : files::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (files::read_symlink(each.path(), gone) == queue) fd = std::stoi(each.path().filename());
  }
  ASSERT_GE(fd, 0);
  const pid_t serving = ::getpid();
  // Each answers 0 if it was refused. The process of the neighbour is a child, but has no descriptor of it: a
  // mapping that a child inherits is the child's own rights, so it is not tried.
  const auto tries = [&](uid_t user) {
    const auto opens = [&](const std::string& name) {
      return ::open(fmt::format("/proc/{}/{}", serving, name).c_str(), O_RDWR) >= 0;
    };
    return as_user(user, [&] {
      char byte = 'x';
      iovec own{&byte, 1};
      iovec there{reinterpret_cast<void*>(std::stoull(range, nullptr, 16)), 1};
      if (opens("map_files/" + range)) return 1;
      if (opens(fmt::format("fd/{}", fd))) return 2;
      if (opens("mem")) return 3;
      if (::process_vm_writev(serving, &own, 1, &there, 1, 0) >= 0) return 4;
      if (::process_vm_readv(serving, &own, 1, &there, 1, 0) >= 0) return 5;
      const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, serving, 0));
      if (handle >= 0 && ::syscall(SYS_pidfd_getfd, handle, fd, 0) >= 0) return 6;
      return 0;
    });
  };
  EXPECT_EQ(tries(kNeighbour), 0);
  EXPECT_NE(tries(0), 0) << "canary: root gets there";
  EXPECT_EQ(text("data", 6), "secret");
}

TEST_F(TierFilesTest, WhatIsLooserIsRefusedByNameWithItsModeAndTheRemedy) {
  ASSERT_TRUE(open().ok());
  write("data", "bytes");
  close();
  for (const std::string& path : {ssd(), ssd() + "/log", own(), own() + "/log"}) {
    struct stat is;
    ASSERT_EQ(::stat(path.c_str(), &is), 0);
    const bool directory = S_ISDIR(is.st_mode);
    ASSERT_EQ(::chmod(path.c_str(), directory ? 0755 : 0644), 0);
    expect_refused({path + ":", directory ? "0755" : "0644", directory ? "chmod 700" : "chmod 600"});
    ASSERT_EQ(::chmod(path.c_str(), directory ? 0700 : 0600), 0);
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(TierFilesTest, WhatIsAnotherUsersIsRefusedByName) {
  if (!is_root()) GTEST_SKIP() << "needs root, who can give files away";
  ASSERT_TRUE(open().ok());
  close();
  for (const std::string& path : {ssd(), ssd() + "/log", own(), own() + "/log"}) {
    ASSERT_EQ(::lchown(path.c_str(), kNeighbour, kNeighbour), 0);
    expect_refused({path + ":", fmt::format("belongs to user {}", kNeighbour), "chown"});
    ASSERT_EQ(::lchown(path.c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(TierFilesTest, AnEmptyDirectoryIsClosedAndAFullOneIsNot) {
  files::create_directory(ssd());  // 0777
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(loose(ssd()), std::vector<std::string>());
  store_.reset();
  files::remove_all(ssd());
  files::remove_all(own());
  files::create_directory(ssd());
  std::ofstream(ssd() + "/planted") << "x";
  expect_refused({ssd(), "0777"});
}

TEST_F(TierFilesTest, NoPlantedLinkIsFollowed) {
  const std::string victim = root_ + "/victim";
  files::create_directory(victim);
  ASSERT_EQ(::chmod(victim.c_str(), 0700), 0);
  std::ofstream(victim + "/log") << "precious";
  ASSERT_EQ(::chmod((victim + "/log").c_str(), 0600), 0);
  const auto expect_untouched = [&] {
    EXPECT_EQ(on_disk(victim + "/log"), "precious");
    EXPECT_EQ(std::distance(files::directory_iterator(victim), files::directory_iterator()), 1);
  };
  files::create_directory_symlink(victim, ssd());
  expect_refused({ssd(), "symbolic link"});
  expect_untouched();
  files::remove(ssd());

  files::create_directory_symlink(victim, own());
  expect_refused({own(), "symbolic link"});
  expect_untouched();
  files::remove(own());

  ASSERT_TRUE(open().ok());
  write("data", "bytes");
  close();
  for (const std::string& path : {ssd() + "/log", own() + "/log"}) {
    files::rename(path, path + ".kept");
    files::create_symlink(victim + "/log", path);
    expect_refused({path, "symbolic link"});
    expect_untouched();
    files::remove(path);
    files::rename(path + ".kept", path);
  }
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(text("data", 100), "bytes");
}

// What a file's owner can write is not believed by root.
TEST_F(TierFilesTest, AnIdThatAnOwnerHasWrittenIsNotBelieved) {
  if (std::string(attribute()) != kTrustedIdAttribute)
    GTEST_SKIP() << "needs trusted. attributes: root with CAP_SYS_ADMIN";
  ASSERT_TRUE(open().ok());
  write("data", "bytes of root");
  close();
  char id[8];
  ASSERT_EQ(::getxattr((backing() + "/data").c_str(), kTrustedIdAttribute, id, 8), 8);
  EXPECT_EQ(::getxattr((backing() + "/data").c_str(), kIdAttribute, id, 8), -1)
      << "owners can read and copy that one";
  std::ofstream(backing() + "/forged") << "own";
  ASSERT_EQ(::setxattr((backing() + "/forged").c_str(), kIdAttribute, id, 8, 0), 0);
  ASSERT_TRUE(open().ok());
  EXPECT_TRUE(store_->recovery().damaged.empty());
  EXPECT_EQ(text("forged", 100), "own");
  EXPECT_EQ(text("data", 100), "bytes of root");
}

TEST_F(TierFilesTest, ALogThatNamesFilesByTheOtherIdsIsRefusedUntilItIsDrained) {
  if (std::string(attribute()) != kTrustedIdAttribute)
    GTEST_SKIP() << "needs trusted. attributes: root with CAP_SYS_ADMIN";
  ASSERT_TRUE(open().ok());
  write("data", "bytes");
  close();
  // As an ordinary user's log has it: without "ids trusted".
  const std::string mark = on_disk(own() + "/log");
  std::ofstream(own() + "/log") << mark.substr(0, mark.find('\n') + 1);
  expect_refused({ssd(), kIdAttribute, kTrustedIdAttribute, "swale tier drain"});
}

// A copy that took the attribute along, or a forgery. Nobody knows whose the writes are: neither file gets
// them, none is lost, and all other files go on.
TEST_F(TierFilesTest, TwoFilesWithOneIdAreNamedAndSetApart) {
  ASSERT_TRUE(open().ok());
  write("one", std::string(10'000, 'o'));
  write("other", "other");
  close(Store::AtClose::kDrain);  // the log names none of this
  ASSERT_TRUE(open().ok());
  write("one", "NEWER", 1000);
  write("other", "OTHER");
  close();
  char id[8];
  ASSERT_EQ(::getxattr((backing() + "/one").c_str(), attribute(), id, 8), 8);
  std::ofstream(backing() + "/copy") << std::string(10'000, 'c');
  ASSERT_EQ(::setxattr((backing() + "/copy").c_str(), attribute(), id, 8, 0), 0);
  files::remove(ssd() + "/files");  // which knows whose id it is
  const std::string apart = fmt::format("{}/apart.{:016x}", own(), get_u64(id));
  for (int life = 0; life < 2; ++life) {
    ASSERT_TRUE(open().ok());
    if (life == 0) {
      ASSERT_EQ(store_->recovery().damaged.size(), 1u);
      const std::string_view words = store_->recovery().damaged.front().message();
      for (const char* const word : {"one", "copy", "same id", "apart."})
        EXPECT_NE(words.find(word), std::string::npos) << words;
    }
    EXPECT_EQ(text("other", 5), "OTHER") << "others go on";
    EXPECT_EQ(text("one", 1000), std::string(1000, 'o')) << "what the log does not name is there";
    EXPECT_FALSE(read("one", 2000).ok()) << "older bytes";
    EXPECT_FALSE(read("copy", 2000).ok()) << "older bytes, or the other file's";
    ASSERT_TRUE(store_->drain().ok());
    close();
    EXPECT_EQ(on_disk(apart).substr(1000), "NEWER") << "the newest bytes are kept";
    EXPECT_EQ(on_disk(backing() + "/copy"), std::string(10'000, 'c'));
    EXPECT_EQ(on_disk(backing() + "/one"), std::string(10'000, 'o'));
  }
  ASSERT_TRUE(open().ok());
  write("one", on_disk(apart).substr(1000), 1000);  // the user knows whose they are
  EXPECT_EQ(text("one", 2000).substr(1000, 5), "NEWER");
  StoreOptions accepting = options();
  accepting.accept_loss = true;
  ASSERT_TRUE(open(accepting).ok());
  EXPECT_EQ(text("copy", 2000), std::string(2000, 'c'));
}

// A node's cleaner removes the SSD directory while it is in use.
TEST_F(TierFilesTest, ALogThatWasRemovedAcknowledgesNoSyncThatItCannotKeepAndNothingIsCut) {
  for (const bool syncs : {true, false}) {
    files::remove_all(backing());
    files::create_directory(backing());
    ASSERT_TRUE(open().ok());
    const std::string bytes(60'000, 'b');
    write("data", bytes);
    files::remove_all(ssd());
    if (syncs) {
      const auto file = store_->open_file("data", io::OpenMode::kReadWrite);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE(store_->sync(*file).ok());
      EXPECT_EQ(on_disk(backing() + "/data"), bytes) << "the sync has answered: it must be there";
      store_->close_file(*file);
    }
    static_cast<void>(store_->close(Store::AtClose::kKeep));
    store_.reset();
    EXPECT_EQ(on_disk(backing() + "/data"), bytes) << "syncs: " << syncs;
    ASSERT_TRUE(open().ok()) << "with a new SSD directory";
    EXPECT_EQ(text("data", 60'000), bytes);
    store_.reset();
    files::remove_all(ssd());
  }
}

TEST_F(TierFilesTest, AnSsdThatIsTooSmallLeavesNoLogNoClaimAndNoQueue) {
  struct rlimit old;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {512 * kKiB, old.rlim_max};  // the log fits, the queue does not
  StoreOptions wanted = options();
  wanted.queue_slots = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(open(wanted).ok());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(files::is_empty(ssd()));
  EXPECT_FALSE(files::exists(own() + "/log")) << "a claim";
  files::remove_all(ssd());
  EXPECT_TRUE(open(wanted).ok()) << "with another SSD";
}

// A process is killed; its queue stays, and leaves no space for the next one's.
TEST_F(TierFilesTest, AFullSsdIsDrainedBeforeTheStoreGoesOn) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounts a small file system: run it as root";
  StoreOptions wanted = options();
  wanted.queue_slots = 64;
  ASSERT_TRUE(files::create_directory(ssd()));
  const uint64_t log = wanted.engine.segment_count * wanted.engine.segment_bytes;
  const uint64_t queue = wanted.queue_slots * (wanted.slot_bytes + 8 * kKiB);
  const std::string size = fmt::format("size={},mode=0700", log + queue + queue / 2);
  ASSERT_EQ(::mount("none", ssd().c_str(), "tmpfs", 0, size.c_str()), 0);
  wanted.engine.policy = Policy::kBacking;  // writes are acknowledged from the queue
  const std::string bytes(4096, 'a');
  uint64_t queued = 0;
  for (int life = 0; life < 200 && queued == 0; ++life) {  // until a kill catches one there
    const pid_t child = ::fork();
    if (child == 0) {
      if (!open(wanted).ok()) ::_exit(1);
      const auto file = store_->open_file("data", io::OpenMode::kOpenOrCreate);
      for (uint64_t i = 0; i < 40; ++i) static_cast<void>(store_->write(*file, i * 37 % 40 * 8192, bytes));
      ::raise(SIGKILL);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    ASSERT_TRUE(WIFSIGNALED(state));
    const auto left = Store::inspect(device_, ssd(), {});
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    queued = left->queued;
  }
  EXPECT_GT(queued, 0u);
  const Status opened = open(wanted);
  EXPECT_TRUE(opened.ok()) << opened.to_string();
  if (opened.ok()) {
    for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(text("data", 330'000).substr(i * 8192, 4096), bytes) << i;
    EXPECT_TRUE(store_->recovery().lost.empty());
    EXPECT_FALSE(store_->recovery().made_anew) << "the log and its size stay";
    close();
  }
  ASSERT_EQ(::umount2(ssd().c_str(), MNT_DETACH), 0);
}

// An SSD is retired: after a complete drain the backing directory takes another one, and the old log never
// comes back.
TEST_F(TierFilesTest, ACompleteDrainEndsTheClaim) {
  ASSERT_TRUE(open().ok());
  write("data", "older");
  close(Store::AtClose::kDrain);
  EXPECT_TRUE(on_disk(own() + "/log").starts_with("abandoned "));
  files::rename(ssd(), root_ + "/retired");
  ASSERT_TRUE(open().ok()) << "without an accepted loss";
  EXPECT_TRUE(store_->recovery().lost.empty());
  write("data", "newer");
  close();
  files::rename(ssd(), root_ + "/second");
  files::rename(root_ + "/retired", ssd());
  expect_refused({"does not belong"});
  files::rename(ssd(), root_ + "/retired");
  files::rename(root_ + "/second", ssd());
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(text("data", 5), "newer");
}

}  // namespace
}  // namespace swale::tier::tier_files_test
