// Store: what a file is: by device and inode, with several names or none, with the times that programs gave
// it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/posix_device.h"
#include "tier/store/testing/store_folder.h"

namespace swale::tier::store_files_test {
namespace {

constexpr int64_t kLongAgoNs = 1'000'000'000'000'000'000;  // 2001

class StoreFilesTest : public ::testing::Test, protected StoreFolder {
 protected:
  StoreFilesTest() : StoreFolder("store-files") {}

  void open(Policy policy = Policy::kSsdBlocking) {
    StoreOptions options = small_options();
    options.engine.policy = policy;
    auto store = Store::open(device_, options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
  }
  void close(Store::AtClose how) {
    ASSERT_TRUE(store_->close(how).ok());
    store_.reset();
  }
  Store::Handle file(const std::string& name) {
    const auto handle = store_->open_file(name, io::OpenMode::kOpenOrCreate);
    EXPECT_TRUE(handle.ok()) << handle.status().to_string();
    return *handle;
  }
  std::string content(Store::Handle file) {
    std::string bytes(*store_->size(file), '\0');
    EXPECT_EQ(*store_->read(file, 0, bytes), bytes.size());
    return bytes;
  }
  std::string on_backing(const std::string& name) const {
    std::ifstream stream(backing(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static size_t descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd"), end;
    return static_cast<size_t>(std::distance(all, end));
  }
  int64_t modified(const std::string& name) const {
    struct stat found;
    EXPECT_EQ(::stat(backing(name).c_str(), &found), 0);
    return found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec;
  }

  io::PosixDevice device_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreFilesTest, AnOpenHandleOutlivesTheName) {
  open();
  const auto gone = file("data");
  ASSERT_TRUE(store_->write(gone, 0, "before").ok());
  ASSERT_TRUE(store_->remove("data").ok());
  EXPECT_EQ(content(gone), "before");
  ASSERT_TRUE(store_->write(gone, 6, " and after").ok());
  ASSERT_TRUE(store_->drain().ok());
  EXPECT_EQ(content(gone), "before and after");
  const auto next = file("data");
  EXPECT_EQ(content(next), "") << "another file has the name now";
  store_->close_file(gone);
  std::string out(4, '\0');
  EXPECT_EQ(store_->read(gone, 0, out).status().code(), Code::kInvalidArgument) << "a handle that was closed";
  close(Store::AtClose::kDrain);
  EXPECT_EQ(on_backing("data"), "");
}

TEST_F(StoreFilesTest, AReplacedFileLivesForItsHandles) {
  open();
  const auto first = file("a"), second = file("b");
  ASSERT_TRUE(store_->write(first, 0, "first").ok());
  ASSERT_TRUE(store_->write(second, 0, "second").ok());
  ASSERT_TRUE(store_->rename("a", "b").ok());
  EXPECT_EQ(content(second), "second");
  EXPECT_EQ(content(file("b")), "first");
  close(Store::AtClose::kDrain);
  EXPECT_EQ(on_backing("b"), "first");
}

TEST_F(StoreFilesTest, HardLinksAreOneFileAlsoAfterRecovery) {
  open();
  const auto one = file("one");
  ASSERT_TRUE(store_->write(one, 0, "both").ok());
  std::filesystem::create_hard_link(backing("one"), backing("two"));
  EXPECT_EQ(file("two"), one);
  ASSERT_TRUE(store_->remove("one").ok());
  close(Store::AtClose::kKeep);
  std::filesystem::create_hard_link(backing("two"), backing("three"));
  open();
  EXPECT_EQ(content(file("two")), "both");
  EXPECT_EQ(content(file("three")), "both");
  close(Store::AtClose::kDrain);
  EXPECT_EQ(on_backing("three"), "both");
}

TEST_F(StoreFilesTest, ADrainLeavesTheTimeOfTheLastWriteAlone) {
  for (const Policy policy : {Policy::kSsdBlocking, Policy::kBacking}) {
    open(policy);
    const auto one = file("data");
    ASSERT_TRUE(store_->write(one, 0, "abc").ok());
    struct stat found;
    ASSERT_EQ(::stat(backing("data").c_str(), &found), 0);
    store_->set_modified({found.st_dev, found.st_ino}, kLongAgoNs);
    store_->close_file(one);
    ASSERT_TRUE(store_->drain().ok());
    close(Store::AtClose::kDrain);
    EXPECT_EQ(modified("data"), kLongAgoNs);
  }
}

TEST_F(StoreFilesTest, ASyncLeavesTheTimeAloneAndSavesIt) {
  open(Policy::kBacking);
  const auto one = file("data");
  ASSERT_TRUE(store_->write(one, 0, "abc").ok());
  struct stat found;
  ASSERT_EQ(::stat(backing("data").c_str(), &found), 0);
  const FileKey key{found.st_dev, found.st_ino};
  store_->set_modified(key, kLongAgoNs);
  ASSERT_TRUE(store_->sync(one).ok());
  EXPECT_EQ(store_->view(key)->modified_ns, kLongAgoNs);
  EXPECT_EQ(modified("data"), kLongAgoNs);
}

TEST_F(StoreFilesTest, AWriteSetsTheTimeBeforeItsBytesReachTheBackingFile) {
  open();
  const auto one = file("data");
  ASSERT_TRUE(store_->write(one, 0, "abc").ok());
  const timespec old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, backing("data").c_str(), old, 0), 0);
  store_->close_file(one);
  EXPECT_GT(modified("data"), kLongAgoNs);
  EXPECT_EQ(on_backing("data"), "") << "it is still in the log";
}

TEST_F(StoreFilesTest, ATruncateThatTheLogHasDoneIsRecoveredWithItsSize) {
  open();
  const auto one = file("data");
  ASSERT_TRUE(store_->write(one, 0, std::string(50'000, 'x')).ok());
  ASSERT_TRUE(store_->truncate(one, 20'000).ok());
  close(Store::AtClose::kKeep);
  open();
  EXPECT_EQ(*store_->size(file("data")), 20'000u);
  close(Store::AtClose::kKeep);
}

// Files that were closed and drained cost nothing any more.
TEST_F(StoreFilesTest, FilesWithoutHandlesGiveTheirDescriptorsBack) {
  open();
  // The storage thread opens its ring when it begins: after its first writes.
  const auto last = file("last");
  ASSERT_TRUE(store_->write(last, 0, "x").ok());
  ASSERT_TRUE(store_->drain().ok());
  const size_t before = descriptors();
  for (int i = 0; i < 200; ++i) {
    const auto one = file("f" + std::to_string(i));
    ASSERT_TRUE(store_->write(one, 0, std::string(10'000, 'x')).ok());
    store_->close_file(one);
    if (i % 20 == 0) {
      ASSERT_TRUE(store_->remove("f" + std::to_string(i)).ok());
    }
  }
  ASSERT_TRUE(store_->drain().ok());
  // Segments are erased after the drain has been answered; the last ones when others need them.
  for (int i = 0; i < 200 && descriptors() > before; ++i) {
    ASSERT_TRUE(store_->write(last, 0, std::string(16'000, 'y')).ok());
    ASSERT_TRUE(store_->drain().ok());
  }
  EXPECT_LE(descriptors(), before);
}

TEST_F(StoreFilesTest, TheNumberOfFilesHasALimitWithARemedy) {
  StoreOptions options;
  options.ssd_directory = root_ + "/ssd";
  options.backing_directory = root_ + "/backing";
  options.engine.segment_count = 4;
  options.engine.segment_bytes = kMiB;
  options.open_files_max = 2;
  auto store = Store::open(device_, options);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->open_file("a", io::OpenMode::kCreate).ok());
  const auto second = (*store)->open_file("b", io::OpenMode::kCreate);
  ASSERT_TRUE(second.ok());
  const auto third = (*store)->open_file("c", io::OpenMode::kCreate);
  EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
  EXPECT_NE(third.status().message().find("open_files_max"), std::string::npos);
  (*store)->close_file(*second);
  EXPECT_TRUE((*store)->open_file("c", io::OpenMode::kOpenOrCreate).ok());
}

// Closed files whose bytes are in the log do not keep others from being opened.
TEST_F(StoreFilesTest, AtTheLimitClosedFilesAreFlushedAndClosed) {
  StoreOptions options;
  options.ssd_directory = root_ + "/ssd";
  options.backing_directory = root_ + "/backing";
  options.engine.policy = Policy::kSsdBlocking;
  options.engine.segment_count = 4;
  options.engine.segment_bytes = kMiB;
  options.open_files_max = 3;
  auto store = Store::open(device_, options);
  ASSERT_TRUE(store.ok());
  const auto held = (*store)->open_file("held", io::OpenMode::kCreate);
  ASSERT_TRUE(held.ok());
  for (int i = 0; i < 20; ++i) {
    const auto file = (*store)->open_file(fmt::format("f{}", i), io::OpenMode::kCreate);
    ASSERT_TRUE(file.ok()) << i << ": " << file.status().to_string();
    ASSERT_TRUE((*store)->write(*file, 0, fmt::format("bytes of {}", i)).ok());
    (*store)->close_file(*file);
  }
  EXPECT_TRUE((*store)->write(*held, 0, "held").ok());
  for (int i = 0; i < 17; ++i) {
    std::ifstream file(fmt::format("{}/backing/f{}", root_, i));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), fmt::format("bytes of {}", i));
  }
}

// `cp --preserve=xattr` takes the id along.
TEST_F(StoreFilesTest, ACopyWithTheIdOfAnotherFileIsToldApart) {
  open();
  ASSERT_TRUE(store_->write(file("one"), 0, "one").ok());
  char id[8];
  // as root
  const bool trusted = ::getxattr(backing("one").c_str(), kTrustedIdAttribute, id, sizeof(id)) == 8;
  const char* const attribute = trusted ? kTrustedIdAttribute : kIdAttribute;
  ASSERT_EQ(::getxattr(backing("one").c_str(), attribute, id, sizeof(id)), 8);
  std::ofstream(backing("copy")) << "copy";
  ASSERT_EQ(::setxattr(backing("copy").c_str(), attribute, id, sizeof(id), 0), 0);
  EXPECT_EQ(content(file("copy")), "copy");
  ASSERT_EQ(::setxattr(backing("copy").c_str(), attribute, id, sizeof(id), 0), 0);
  close(Store::AtClose::kKeep);
  std::filesystem::remove(root_ + "/ssd/files");  // which knows whose id it is
  open();
  ASSERT_EQ(store_->recovery().damaged.size(), 1u);  // tests/security/tier_files_test.cc has the rest
  const std::string_view words = store_->recovery().damaged.front().message();
  EXPECT_TRUE(words.find("one") != std::string::npos && words.find("copy") != std::string::npos) << words;
}

TEST_F(StoreFilesTest, HolesAreFoundInTheLogAndOnTheBackingDevice) {
  constexpr uint64_t kMany = 200'000;
  open();
  const auto one = file("data");
  ASSERT_TRUE(store_->write(one, kMany, "abc").ok());
  ASSERT_TRUE(store_->truncate(one, 3 * kMany).ok());
  EXPECT_EQ(*store_->seek(one, 0, Store::Seek::kHole), 0u);
  EXPECT_EQ(*store_->seek(one, 0, Store::Seek::kData), kMany);
  EXPECT_EQ(*store_->seek(one, kMany, Store::Seek::kHole), kMany + 3);
  EXPECT_EQ(store_->seek(one, kMany + 3, Store::Seek::kData).status().code(), Code::kNotFound);
  EXPECT_EQ(store_->seek(one, 3 * kMany, Store::Seek::kHole).status().code(), Code::kNotFound);
  ASSERT_TRUE(store_->drain().ok());
  const auto data = store_->seek(one, 0, Store::Seek::kData);
  ASSERT_TRUE(data.ok());
  EXPECT_LE(*data, kMany) << "a block begins before the bytes";
}

}  // namespace
}  // namespace swale::tier::store_files_test
