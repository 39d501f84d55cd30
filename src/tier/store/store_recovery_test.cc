// Store: recovery finds every file whose bytes the log has, whatever its name, its folder and its mode are;
// what it does not find is kept and named, and goes to the file that turns up later.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "base/coding.h"
#include "io/descriptor.h"
#include "io/posix_device.h"
#include "tier/log/file_table_format.h"
#include "tier/store/testing/store_folder.h"

namespace swale::tier::store_recovery_test {
namespace {

constexpr uid_t kOrdinary = 65533;
const std::string kBytes(5000, 'n');  // newer than what the backing file has

enum class End { kKilled, kClean };

class StoreRecoveryTest : public ::testing::TestWithParam<End>, protected StoreFolder {
 protected:
  StoreRecoveryTest() : StoreFolder("store-recovery") {}
  void TearDown() override {
    store_.reset();
    ::chmod((root_ + "/backing/folder").c_str(), 0700);
  }

  StoreOptions options() const {
    StoreOptions options = small_options();
    options.accept_loss = accept_loss_;
    return options;
  }
  Status open(bool flush_paused = false) {
    StoreOptions with = options();
    with.flush_paused = flush_paused;
    auto store = Store::open(device_, with);
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    return {};
  }
  void give_to_ordinary_user() const {
    if (::geteuid() != 0) return;
    for (const std::string& path : {root_, backing_})
      ASSERT_EQ(::chown(path.c_str(), kOrdinary, kOrdinary), 0);
  }
  // `body` in a process of its own, as `user`; whether no expectation of it failed.
  static bool in_process(uid_t user, const std::function<void()>& body, bool killed = false) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::umask(0);
      if (user != 0 && ::geteuid() == 0 &&
          (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
           ::setresuid(user, user, user) != 0))
        ::_exit(2);
      body();
      std::fflush(nullptr);
      if (killed && !::testing::Test::HasFailure()) ::raise(SIGKILL);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return killed ? WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL
                  : WIFEXITED(state) && WEXITSTATUS(state) == 0;
  }
  // Opens the store, lets `body` write to it without flushes, and ends it as the test says.
  // No flush even between the opening and `body`: one that ends before frees a segment whose records count.
  bool session(const std::function<void()>& body, uid_t user = 0) {
    return in_process(
        user,
        [&] {
          const Status opened = open(true);
          ASSERT_TRUE(opened.ok()) << opened.to_string();
          body();
          if (GetParam() == End::kKilled) return;
          ASSERT_TRUE(store_->close(Store::AtClose::kKeep).ok());
        },
        GetParam() == End::kKilled);
  }
  // Writes kBytes over the file, by any path that leads to it, and syncs it.
  void write(const std::string& path, uint64_t offset = 0) {
    const auto file = store_->adopt_file(path);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE(store_->write(*file, offset, kBytes).ok());
    ASSERT_TRUE(store_->sync(*file).ok());
    store_->close_file(*file);
  }
  // The next process finds the file, and brings all to it.
  void expect_brought(const std::function<std::string()>& content) {
    const Status opened = open();
    ASSERT_TRUE(opened.ok()) << opened.to_string();
    EXPECT_TRUE(store_->recovery().kept.empty());
    EXPECT_TRUE(store_->recovery().lost.empty());
    EXPECT_EQ(store_->recovery().dropped, 0u);
    ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
    store_.reset();
    EXPECT_EQ(content(), kBytes);
  }
  void make(const std::string& path, mode_t mode = 0644) const {
    const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, mode);
    ASSERT_GE(fd, 0) << path;
    ASSERT_EQ(::fchmod(fd, mode), 0);
    ::close(fd);
  }
  static std::string read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  uint64_t kept_bytes() const {
    uint64_t bytes = 0;
    const auto kept = Store::kept(const_cast<io::PosixDevice&>(device_), backing_);
    EXPECT_TRUE(kept.ok()) << kept.status().to_string();
    for (const KeptBytes& each : *kept) bytes += each.bytes;
    return bytes;
  }
  // A drain by the next process.
  Status drain() {
    SWALE_RETURN_IF_ERROR(open());
    const Status drained = store_->close(Store::AtClose::kDrain);
    recovered_ = store_->recovery();
    store_.reset();
    return drained;
  }
  std::vector<FileEntry> table() const {
    const std::string bytes = read(root_ + "/ssd/files");
    return decode_file_table(bytes, {get_u64(bytes.data() + 16)}, "files").entries;
  }
  // Appends the last entry of the path to the table of files, changed.
  void change_entry(const std::string& path, const std::function<void(FileEntry*)>& change) const {
    std::optional<FileEntry> entry;
    for (FileEntry& each : table())
      if (each.identity.path == path) entry = std::move(each);
    ASSERT_TRUE(entry.has_value());
    change(&*entry);
    const std::string bytes = read(root_ + "/ssd/files");
    std::ofstream(root_ + "/ssd/files", std::ios::binary | std::ios::app)
        << encode_file_entry(*entry, get_u64(bytes.data() + 16), bytes.size());
  }
  // The table is from after a removal whose backing tree is from before it.
  void undo_removal_in_tree_only(const std::string& path) const {
    change_entry(path, [](FileEntry* entry) { entry->kind = FileEntryKind::kRemoved; });
  }
  void drop_attributes() const {
    for (const char* attribute : {kTrustedIdAttribute, kIdAttribute})
      ::removexattr(backing("data").c_str(), attribute);
  }

  io::PosixDevice device_;
  bool accept_loss_ = false;
  std::unique_ptr<Store> store_;
  RecoveryReport recovered_;
};

TEST_P(StoreRecoveryTest, ANameOfOurOwnBelowTheRootIsAName) {
  std::filesystem::create_directories(backing("folder/.swale-tier"));
  std::filesystem::create_directories(backing("other"));
  make(backing("folder/.swale-tier/data"));
  make(backing("other/.swale-tier"));
  ASSERT_TRUE(session([&] {
    write(backing("folder/.swale-tier/data"));
    write(backing("other/.swale-tier"));
  }));
  expect_brought([&] { return read(backing("folder/.swale-tier/data")); });
  EXPECT_EQ(read(backing("other/.swale-tier")), kBytes);
}

TEST_P(StoreRecoveryTest, APathMayBeLongerThanASystemCallTakes) {
  int folder = ::open(backing().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::string name(250, 'd');
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(::mkdirat(folder, name.c_str(), 0755), 0);
    const int next = ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(next, 0);
    ::close(std::exchange(folder, next));
  }
  const int fd = ::openat(folder, "data", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  ASSERT_GE(fd, 0);
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  ASSERT_TRUE(session([&] { write(link); }));
  expect_brought([&] { return read(link); });
  ::close(fd);
  ::close(folder);
}

TEST_P(StoreRecoveryTest, AnOrdinaryUsersFileMayForbidItsOwnerToReadIt) {
  give_to_ordinary_user();
  for (const mode_t mode : {0000, 0200, 0222, 0444}) {
    SCOPED_TRACE(mode);
    const std::string path = backing(fmt::format("mode-{:o}", mode));
    ASSERT_TRUE(session(
        [&] {
          make(path, 0644);
          write(path);
          ASSERT_EQ(::chmod(path.c_str(), mode), 0);
        },
        kOrdinary));
    EXPECT_TRUE(in_process(kOrdinary, [&] { expect_brought([&] { return kBytes; }); }));
    struct stat found;
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, mode) << "its mode is what it was";
    ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
    EXPECT_EQ(read(path), kBytes);
  }
}

TEST_P(StoreRecoveryTest, AFolderThatMayNotBeListedHidesNothing) {
  give_to_ordinary_user();
  const std::string path = backing("folder/data");
  ASSERT_TRUE(session(
      [&] {
        ASSERT_EQ(::mkdir(backing("folder").c_str(), 0700), 0);
        make(path);
        write(path);
        ASSERT_EQ(::chmod(backing("folder").c_str(), 0300), 0);
      },
      kOrdinary));
  EXPECT_TRUE(in_process(kOrdinary, [&] { expect_brought([&] { return read(path); }); }));
}

TEST_P(StoreRecoveryTest, WhatAClosedFolderHidesIsKeptUntilItIsOpened) {
  give_to_ordinary_user();
  const std::string path = backing("folder/data");
  ASSERT_TRUE(session(
      [&] {
        ASSERT_EQ(::mkdir(backing("folder").c_str(), 0700), 0);
        make(path);
        write(path);
        make(backing("beside"));
        write(backing("beside"));
        ASSERT_EQ(::chmod(backing("folder").c_str(), 0000), 0);
      },
      kOrdinary));
  EXPECT_TRUE(in_process(kOrdinary, [&] {
    ASSERT_TRUE(drain().ok());
    ASSERT_EQ(recovered_.kept.size(), 1u);
    EXPECT_EQ(recovered_.kept[0].path, "folder/data");
    EXPECT_EQ(recovered_.kept[0].bytes, kBytes.size());
    EXPECT_NE(recovered_.kept[0].why.find("folder cannot be searched"), std::string::npos)
        << recovered_.kept[0].why;
    EXPECT_EQ(read(backing("beside")), kBytes) << "others are not held up";
    EXPECT_EQ(kept_bytes(), kBytes.size());
    // The folder is opened while the store is open: nobody reads older bytes, and nobody writes over the gap.
    ASSERT_TRUE(open().ok());
    ASSERT_EQ(::chmod(backing("folder").c_str(), 0700), 0);
    EXPECT_EQ(store_->adopt_file(path).status().code(), Code::kCorruption);
    const io::Descriptor fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
    EXPECT_FALSE(store_->expect_whole(fd.get()).ok());
    ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
    store_.reset();
    // The next opening brings the bytes.
    ASSERT_TRUE(drain().ok());
    EXPECT_TRUE(recovered_.kept.empty());
    EXPECT_EQ(recovered_.brought_bytes, kBytes.size());
    EXPECT_EQ(read(path), kBytes);
    EXPECT_EQ(kept_bytes(), 0u);
  }));
}

TEST_P(StoreRecoveryTest, ACopyWithoutAttributesGetsItsBytesOnceItIsShown) {
  make(backing("data"));
  make(backing("other"));
  ASSERT_TRUE(session([&] {
    write(backing("data"));
    write(backing("other"), 100);
  }));
  // As `cp -r` and `rsync -a` do it; the files have changed their names, too, which a path would not tell.
  std::filesystem::copy(backing_, root_ + "/copy", std::filesystem::copy_options::recursive);
  std::filesystem::rename(root_ + "/copy/data", root_ + "/copy/was");
  std::filesystem::rename(root_ + "/copy/other", root_ + "/copy/data");
  backing_ = root_ + "/copy";
  ASSERT_TRUE(drain().ok());
  ASSERT_EQ(recovered_.kept.size(), 2u);
  EXPECT_EQ(kept_bytes(), 2 * kBytes.size());
  EXPECT_EQ(read(root_ + "/copy/data"), "") << "the name alone is not believed";
  uint64_t id = 0;
  for (const KeptBytes& each : recovered_.kept)
    if (each.path == "data") id = each.file;
  char bytes[8];
  put_u64(bytes, id);
  const char* const attribute = ::geteuid() == 0 ? kTrustedIdAttribute : kIdAttribute;
  ASSERT_EQ(::setxattr((root_ + "/copy/was").c_str(), attribute, bytes, sizeof(bytes), 0), 0);
  ASSERT_TRUE(drain().ok());
  EXPECT_EQ(recovered_.brought_bytes, kBytes.size());
  ASSERT_EQ(recovered_.kept.size(), 1u) << "the other one is named again";
  EXPECT_EQ(read(root_ + "/copy/was"), kBytes);
  // The user gives the other one up.
  accept_loss_ = true;
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(store_->recovery().lost.size(), 1u);
  ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
  store_.reset();
  accept_loss_ = false;
  EXPECT_EQ(kept_bytes(), 0u);
  ASSERT_TRUE(drain().ok());
  EXPECT_TRUE(recovered_.kept.empty());
}

TEST_P(StoreRecoveryTest, AFileThatWasRenamedAndLostItsIdIsFound) {
  make(backing("data"));
  ASSERT_TRUE(session([&] { write(backing("data")); }));
  drop_attributes();
  std::filesystem::create_directory(backing("folder"));
  std::filesystem::rename(backing("data"), backing("folder/moved"));
  make(backing("data"));
  expect_brought([&] { return read(backing("folder/moved")); });
  EXPECT_EQ(read(backing("data")), "") << "another file has the name";
}

TEST_P(StoreRecoveryTest, OnlyARemovalThroughTheTierDropsRecords) {
  make(backing("removed"));
  make(backing("replaced"));
  make(backing("fresh"));
  make(backing("vanished"));
  ASSERT_TRUE(session([&] {
    for (const char* name : {"removed", "replaced", "vanished"}) write(backing(name));
    ASSERT_TRUE(store_->remove("removed").ok());
    ASSERT_TRUE(store_->rename("fresh", "replaced").ok());
  }));
  std::filesystem::remove(backing("vanished"));  // nobody has told the tier
  ASSERT_TRUE(drain().ok());
  ASSERT_EQ(recovered_.kept.size(), 1u);
  EXPECT_EQ(recovered_.kept[0].path, "vanished");
  EXPECT_NE(recovered_.kept[0].text().message().find("vanished: 5000 acknowledged bytes"), std::string::npos);
  EXPECT_EQ(kept_bytes(), kBytes.size());
}

TEST_P(StoreRecoveryTest, ACopyThatTookTheIdAlongIsNotTheFile) {
  make(backing("data"));
  ASSERT_TRUE(session([&] { write(backing("data")); }));
  make(backing("copy"));
  const char* const attribute = ::geteuid() == 0 ? kTrustedIdAttribute : kIdAttribute;
  char id[8];
  ASSERT_EQ(::getxattr(backing("data").c_str(), attribute, id, sizeof(id)), 8);
  ASSERT_EQ(::setxattr(backing("copy").c_str(), attribute, id, sizeof(id), 0), 0);
  expect_brought([&] { return read(backing("data")); });
  EXPECT_EQ(read(backing("copy")), "");
}

TEST_P(StoreRecoveryTest, KeptBytesAreTheNewestOnes) {
  make(backing("data"));
  const std::string newer(3000, 'w'), newest(100, 'x');
  ASSERT_TRUE(session([&] {
    write(backing("data"));
    const auto file = store_->adopt_file(backing("data"));
    ASSERT_TRUE(store_->write(*file, 4000, newer).ok());
    ASSERT_TRUE(store_->truncate(*file, 6000).ok());
    ASSERT_TRUE(store_->write(*file, 50, newest).ok());
    ASSERT_TRUE(store_->sync(*file).ok());
  }));
  std::string expected = kBytes.substr(0, 4000) + newer.substr(0, 2000);
  expected.replace(50, newest.size(), newest);
  std::filesystem::rename(backing("data"), root_ + "/elsewhere");
  const bool handles = ::geteuid() == 0;  // the file is found by its handle, also outside
  ASSERT_TRUE(drain().ok());
  if (!handles) {
    EXPECT_EQ(recovered_.kept.size(), 1u);
    std::filesystem::rename(root_ + "/elsewhere", backing("data"));
    ASSERT_TRUE(drain().ok());
    EXPECT_EQ(read(backing("data")), expected);
    return;
  }
  EXPECT_EQ(recovered_.kept.size(), 0u);
  EXPECT_EQ(read(root_ + "/elsewhere"), expected);
}

TEST_P(StoreRecoveryTest, ADamagedTableIsNamedAndCostsNoBytes) {
  make(backing("one"));
  make(backing("two"));
  ASSERT_TRUE(session([&] {
    write(backing("one"));
    write(backing("two"));
  }));
  std::string table = read(root_ + "/ssd/files");
  ASSERT_GT(table.size(), 64u);
  table[100] ^= 4;  // in the first entry, which another one follows
  std::ofstream(root_ + "/ssd/files", std::ios::binary) << table;
  ASSERT_EQ(::chmod((root_ + "/ssd/files").c_str(), 0600), 0);
  ASSERT_TRUE(drain().ok());
  ASSERT_EQ(recovered_.damaged.size(), 1u);
  EXPECT_NE(recovered_.damaged[0].message().find("/ssd/files: offset 64: "), std::string::npos)
      << recovered_.damaged[0].message();
  EXPECT_TRUE(recovered_.kept.empty());
  EXPECT_EQ(read(backing("one")), kBytes);
  EXPECT_EQ(read(backing("two")), kBytes);
}

TEST_P(StoreRecoveryTest, WithoutATableFilesAreFoundByTheirIds) {
  std::filesystem::create_directories(backing("folder/.swale-tier"));
  make(backing("folder/.swale-tier/data"));
  ASSERT_TRUE(session([&] { write(backing("folder/.swale-tier/data")); }));
  std::filesystem::remove(root_ + "/ssd/files");
  expect_brought([&] { return read(backing("folder/.swale-tier/data")); });
}

TEST_P(StoreRecoveryTest, TheTableDoesNotGrowWithFilesThatComeAndGo) {
  ASSERT_TRUE(open().ok());
  for (int i = 0; i < 12'000; ++i) {
    const auto file = store_->open_file("data", io::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    store_->close_file(*file);
    ASSERT_TRUE(store_->remove("data").ok());
  }
  EXPECT_LT(std::filesystem::file_size(root_ + "/ssd/files"), 3 * kMiB);
  ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
}

TEST_P(StoreRecoveryTest, ARemovalThatAPowerCutHasUndoneCostsNoBytes) {
  make(backing("data"));
  ASSERT_TRUE(session([&] { write(backing("data")); }));
  undo_removal_in_tree_only("data");
  ASSERT_TRUE(session([&] { EXPECT_EQ(store_->recovery().dropped, 0u); }));
  for (const FileEntry& each : table()) EXPECT_EQ(each.kind, FileEntryKind::kFile) << "it is there again";
  expect_brought([&] { return read(backing("data")); });
}

// A process that was killed after the removal has opened the store already, and then the power was cut.
TEST_P(StoreRecoveryTest, ARemovalIsLookedAtAgainByEachOpening) {
  give_to_ordinary_user();
  ASSERT_TRUE(session(
      [&] {
        for (const char* name : {"data", "beside"}) {
          make(backing(name));
          write(backing(name));
        }
      },
      kOrdinary));
  undo_removal_in_tree_only("data");
  std::filesystem::rename(backing("data"), root_ + "/elsewhere");
  ASSERT_TRUE(session(
      [&] {
        EXPECT_GT(store_->recovery().dropped, 0u);
        EXPECT_TRUE(store_->recovery().kept.empty());
      },
      kOrdinary));
  std::filesystem::rename(root_ + "/elsewhere", backing("data"));
  EXPECT_TRUE(in_process(kOrdinary, [&] { expect_brought([&] { return read(backing("data")); }); }));
  EXPECT_EQ(read(backing("beside")), kBytes);
}

TEST_P(StoreRecoveryTest, ARemovedFilesRecordsAreNotThoseOfItsCopy) {
  const char* const attribute = ::geteuid() == 0 ? kTrustedIdAttribute : kIdAttribute;
  make(backing("data"));
  ASSERT_TRUE(session([&] {
    write(backing("data"));
    make(backing("copy"));
    char id[8];
    ASSERT_EQ(::getxattr(backing("data").c_str(), attribute, id, sizeof(id)), 8);
    ASSERT_EQ(::setxattr(backing("copy").c_str(), attribute, id, sizeof(id), 0), 0);
    ASSERT_TRUE(store_->remove("data").ok());
  }));
  // Without a handle, which says at once that the file is gone.
  for (const FileEntry& each : table())
    if (each.kind == FileEntryKind::kRemoved)
      change_entry("data", [](FileEntry* entry) { entry->identity.handle.clear(); });
  ASSERT_TRUE(drain().ok());
  EXPECT_TRUE(recovered_.kept.empty());
  EXPECT_EQ(read(backing("copy")), "");
}

TEST_P(StoreRecoveryTest, ANewFileWithTheInodeOfAMissingOneIsWhole) {
  make(backing("data"));
  ASSERT_TRUE(session([&] { write(backing("data")); }));
  std::filesystem::remove(backing("data"));
  make(backing("fresh"));
  struct stat fresh;
  ASSERT_EQ(::stat(backing("fresh").c_str(), &fresh), 0);
  change_entry("data", [&](FileEntry* entry) {
    entry->identity.inode = fresh.st_ino;
    entry->identity.handle.clear();
  });
  ASSERT_TRUE(open().ok());
  ASSERT_EQ(store_->recovery().kept.size(), 1u);
  write(backing("fresh"));
  ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
  EXPECT_EQ(read(backing("fresh")), kBytes);
}

TEST_P(StoreRecoveryTest, WhatIsKeptOfAFileGoesWithItsLastName) {
  give_to_ordinary_user();
  const std::string path = backing("folder/data");
  ASSERT_TRUE(session(
      [&] {
        ASSERT_EQ(::mkdir(backing("folder").c_str(), 0700), 0);
        make(path);
        write(path);
        make(backing("beside"));
        write(backing("beside"));
        ASSERT_EQ(::chmod(backing("folder").c_str(), 0000), 0);
      },
      kOrdinary));
  ASSERT_TRUE(session(
      [&] {
        ASSERT_EQ(store_->recovery().kept.size(), 1u);
        ASSERT_EQ(::chmod(backing("folder").c_str(), 0700), 0);
        const io::Descriptor fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
        ASSERT_EQ(::unlink(path.c_str()), 0);
        store_->removed(fd.get());
      },
      kOrdinary));
  EXPECT_EQ(kept_bytes(), 0u);
  EXPECT_TRUE(in_process(kOrdinary, [&] {
    ASSERT_TRUE(drain().ok());
    EXPECT_TRUE(recovered_.kept.empty()) << "the log's records are not kept again";
  }));
  EXPECT_EQ(kept_bytes(), 0u);
}

TEST_P(StoreRecoveryTest, WhatIsGivenUpStaysGivenUp) {
  for (const char* name : {"data", "beside"}) make(backing(name));
  ASSERT_TRUE(session([&] {
    for (const char* name : {"data", "beside"}) write(backing(name));
  }));
  std::filesystem::remove(backing("data"));  // nobody has told the tier
  accept_loss_ = true;
  // The bytes of the other file hold the segment with the records.
  ASSERT_TRUE(session([&] { EXPECT_EQ(store_->recovery().lost.size(), 1u); }));
  accept_loss_ = false;
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(session([&] {
      EXPECT_TRUE(store_->recovery().kept.empty());
      EXPECT_EQ(store_->recovery().dropped, 0u) << "of files that were removed";
    }));
  ASSERT_TRUE(drain().ok());
  EXPECT_EQ(kept_bytes(), 0u);
  EXPECT_EQ(read(backing("beside")), kBytes);
}

TEST_P(StoreRecoveryTest, RecordsThatWereGivenUpDoNotComeBackToTheFile) {
  give_to_ordinary_user();
  ASSERT_TRUE(session(
      [&] {
        for (const char* name : {"data", "beside"}) {  // whose bytes hold the segment
          make(backing(name));
          write(backing(name));
        }
      },
      kOrdinary));
  std::filesystem::rename(backing("data"), root_ + "/elsewhere");
  accept_loss_ = true;
  const std::string newer(100, 'w');
  ASSERT_TRUE(session(
      [&] {
        ASSERT_EQ(store_->recovery().lost.size(), 1u);
        std::filesystem::rename(root_ + "/elsewhere", backing("data"));
        const auto file = store_->adopt_file(backing("data"));
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        ASSERT_TRUE(store_->write(*file, 0, newer).ok());
        ASSERT_TRUE(store_->sync(*file).ok());
      },
      kOrdinary));
  accept_loss_ = false;
  ASSERT_TRUE(in_process(kOrdinary, [&] { ASSERT_TRUE(drain().ok()); }));
  EXPECT_EQ(read(backing("data")), newer);
}

TEST_P(StoreRecoveryTest, AKeptFileThatTheLogSaysNothingOfIsNamedAndNotWritten) {
  make(backing("data"));
  ASSERT_TRUE(session([&] { write(backing("data")); }));
  std::filesystem::remove(backing("data"));
  ASSERT_TRUE(drain().ok());
  ASSERT_EQ(recovered_.kept.size(), 1u);
  const std::string kept_in = recovered_.kept[0].kept_in;
  struct stat before, after;
  ASSERT_EQ(::stat(kept_in.c_str(), &before), 0);
  ASSERT_TRUE(drain().ok());
  ASSERT_EQ(recovered_.kept.size(), 1u);
  EXPECT_EQ(recovered_.kept[0].bytes, kBytes.size());
  EXPECT_EQ(recovered_.kept[0].kept_in, kept_in);
  ASSERT_EQ(::stat(kept_in.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_P(StoreRecoveryTest, AFolderMayBeAsDeepAsAnybodyMakesIt) {
  constexpr int kLevels = 2'000;
  int folder = ::open(backing().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < kLevels; ++i) {
    ASSERT_EQ(::mkdirat(folder, "d", 0755), 0);
    // After the search has come back from below.
    if (i % 100 == 0) {
      ASSERT_EQ(::mkdirat(folder, "beside", 0755), 0);
    }
    const int next = ::openat(folder, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_GE(next, 0);
    ::close(std::exchange(folder, next));
  }
  const int fd = ::openat(folder, "data", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  make(backing("beside/data"));
  ASSERT_GE(fd, 0);
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  ASSERT_TRUE(session([&] {
    write(link);
    write(backing("beside/data"));
  }));
  std::filesystem::remove(root_ + "/ssd/files");
  EXPECT_TRUE(in_process(0, [&] {
    const rlimit few = {400, 400};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    expect_brought([&] { return read(link); });
  }));
  EXPECT_EQ(read(backing("beside/data")), kBytes);
  ::close(fd);
  ::unlinkat(folder, "data", 0);
  for (int i = kLevels; i-- > 0;) {
    const int above = ::openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (i > 0) ::unlinkat(above, "beside", AT_REMOVEDIR);
    ::unlinkat(above, "d", AT_REMOVEDIR);
    ::close(std::exchange(folder, above));
  }
  ::close(folder);
}

// Without handles, and with a path that leads to nothing.
TEST_P(StoreRecoveryTest, TheSearchKnowsTheFileAmongCopiesWithItsId) {
  give_to_ordinary_user();
  ASSERT_TRUE(session(
      [&] {
        make(backing("data"));
        write(backing("data"));
      },
      kOrdinary));
  char id[8];
  ASSERT_EQ(::getxattr(backing("data").c_str(), kIdAttribute, id, sizeof(id)), 8);
  std::filesystem::rename(backing("data"), backing("moved"));
  make(backing("copy"), 0666);
  ASSERT_EQ(::setxattr(backing("copy").c_str(), kIdAttribute, id, sizeof(id), 0), 0);
  EXPECT_TRUE(in_process(kOrdinary, [&] { expect_brought([&] { return read(backing("moved")); }); }));
  EXPECT_EQ(read(backing("copy")), "");
}

INSTANTIATE_TEST_SUITE_P(Ends, StoreRecoveryTest, ::testing::Values(End::kKilled, End::kClean),
                         [](const auto& end) { return end.param == End::kKilled ? "Killed" : "Clean"; });

}  // namespace
}  // namespace swale::tier::store_recovery_test
