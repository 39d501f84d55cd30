#include "fs/epochs/epochs_fs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "fs/epochs/key_name.h"
#include "imd/testing/test_directory.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::fs {
namespace {

constexpr timespec kModified = {1'234'567, 0};

std::string number_key(uint64_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

// Two epochs; some keys have several values, one an empty one.
class EpochsFsTest : public testing::Test {
 protected:
  static constexpr uint64_t kKeys = 700;

  EpochsFsTest() : directory_(device_, "dir") {
    directory_.manifest.schema.key = run::KeyType::kU64;
    directory_.begin_job(3, 2);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) write_epoch(epoch);
    reader_ = imd::Reader::open(device_, "dir", {}).value();
    fs_ = std::make_unique<EpochsFs>(*reader_, kModified, clock_);
  }

  void write_epoch(uint64_t salt) {
    imd::test::Records records;
    for (uint64_t i = 0; i < kKeys; ++i)
      for (uint64_t times = 0; times < 1 + i % 3; ++times)
        records.emplace_back(number_key(i * 7 + salt), fmt::format("{}:{}:{};", salt, i, times));
    records.emplace_back(number_key(1'000'000), "");
    directory_.write_epoch(records, {.records_per_run = 200, .runs_per_segment = 3});
  }

  // 0 or an errno; the node has a lookup.
  int look_up(const std::string& path, Entry* entry) {
    entry->node = fs_->root();
    size_t begin = 0;
    while (begin < path.size()) {
      const size_t end = std::min(path.find('/', begin), path.size());
      Entry next;
      const int failed = fs_->lookup(*entry->node, path.substr(begin, end - begin).c_str(), &next);
      if (failed != 0) return failed;
      *entry = next;
      begin = end + 1;
    }
    return 0;
  }
  Node& at(const std::string& path) {
    Entry entry;
    EXPECT_EQ(look_up(path, &entry), 0) << path;
    return *entry.node;
  }
  std::string content(Node& node, size_t piece = 5) {
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(fs_->open_file(node, O_RDONLY, Caller{}, &file), 0);
    std::string all, part(piece, '\0');
    for (size_t got = 1; got > 0; all.append(part, 0, got))
      EXPECT_EQ(fs_->read(*file, all.size(), MutableBytes(part.data(), part.size()), &got), 0);
    fs_->release(std::move(file));
    return all;
  }
  int read_whole(const std::string& path, std::string* bytes) {
    Entry entry;
    if (const int failed = look_up(path, &entry); failed != 0) return failed;
    std::unique_ptr<OpenFile> file;
    if (const int failed = fs_->open_file(*entry.node, O_RDONLY, Caller{}, &file); failed != 0) return failed;
    bytes->resize(static_cast<size_t>(entry.attributes.st_size) + 1);
    size_t got = 0;
    const int failed = fs_->read(*file, 0, MutableBytes(bytes->data(), bytes->size()), &got);
    bytes->resize(got);
    return failed;
  }
  // As a program reads it: `at_a_time` names a call.
  std::vector<DirectoryEntry> list(Node& node, size_t at_a_time = 13) {
    std::unique_ptr<OpenDirectory> opened;
    EXPECT_EQ(fs_->open_directory(node, Caller{}, &opened), 0);
    std::vector<DirectoryEntry> entries;
    for (size_t before = 1; before != entries.size();) {
      before = entries.size();
      size_t left = at_a_time;
      EXPECT_EQ(fs_->read_directory(*opened, entries.empty() ? 0 : entries.back().next,
                                    [&](const DirectoryEntry& entry) {
                                      if (left-- == 0) return false;
                                      entries.push_back(entry);
                                      return true;
                                    }),
                0);
      if (entries.size() == before) break;
    }
    return entries;
  }

  io::MemoryDevice device_;
  ManualClock clock_;
  imd::test::TestDirectory directory_;
  std::unique_ptr<imd::Reader> reader_;
  std::unique_ptr<EpochsFs> fs_;
};

std::vector<std::string> names_of(const std::vector<DirectoryEntry>& entries) {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) names.push_back(entry.name);
  return names;
}

TEST_F(EpochsFsTest, FoldersAreEpochsAndFilesAreKeys) {
  EXPECT_THAT(names_of(list(*fs_->root())), testing::ElementsAre(".", "..", "0", "1"));
  for (uint32_t epoch = 0; epoch < 2; ++epoch) {
    Node& folder = at(std::to_string(epoch));
    std::map<std::string, std::string> expected;
    for (const auto& [key, values] : directory_.models[epoch]) {
      std::string& all = expected[*name_of_key(key, run::KeyType::kU64)];
      for (const std::string& value : values) all += value;
    }
    size_t files = 0;
    for (const DirectoryEntry& entry : list(folder)) {
      if (entry.name == "." || entry.name == "..") continue;
      Entry found;
      ASSERT_EQ(fs_->lookup(folder, entry.name.c_str(), &found), 0) << entry.name;
      ASSERT_EQ(content(*found.node), expected.at(entry.name)) << entry.name;
      ASSERT_EQ(static_cast<size_t>(found.attributes.st_size), expected.at(entry.name).size());
      ASSERT_EQ(found.attributes.st_ino, entry.inode);
      ASSERT_EQ(found.attributes.st_mode, static_cast<mode_t>(S_IFREG | 0444));
      ASSERT_EQ(found.attributes.st_mtim.tv_sec, kModified.tv_sec);
      fs_->forget(found.node, 1);
      ++files;
    }
    EXPECT_EQ(files, expected.size());
    fs_->forget(&folder, 1);
  }
  EXPECT_EQ(fs_->nodes_known(), 1U);  // the root: nothing that was looked up is kept
}

TEST_F(EpochsFsTest, AListingIsReadFromAnyPlace) {
  Node& folder = at("1");
  const auto all = list(folder, 1'000'000);
  EXPECT_EQ(names_of(list(folder, 1)), names_of(all));
  std::unique_ptr<OpenDirectory> opened;
  ASSERT_EQ(fs_->open_directory(folder, Caller{}, &opened), 0);
  for (const size_t from : {all.size() - 1, size_t{2}, size_t{400}, size_t{1}}) {
    std::vector<std::string> names;
    EXPECT_EQ(fs_->read_directory(*opened, all[from - 1].next,
                                  [&](const DirectoryEntry& entry) {
                                    names.push_back(entry.name);
                                    return true;
                                  }),
              0);
    EXPECT_EQ(names.size(), all.size() - from);
    EXPECT_EQ(names.front(), all[from].name);
  }
}

TEST_F(EpochsFsTest, OtherNamesAreNotThere) {
  Entry entry;
  for (const char* path : {"2", "00", "-1", "x", "0/1", "0/007", "0/abc", "1/0", "4294967296"})
    EXPECT_EQ(look_up(path, &entry), ENOENT) << path;
  EXPECT_EQ(fs_->lookup(at("0/0"), "a", &entry), ENOTDIR);
}

TEST_F(EpochsFsTest, NothingChangesIt) {
  Entry entry;
  std::unique_ptr<OpenFile> file;
  Node& root = *fs_->root();
  EXPECT_EQ(fs_->create(root, "a", 0644, O_WRONLY, Caller{}, &entry, &file), EROFS);
  EXPECT_EQ(fs_->open_file(at("0/0"), O_RDWR, Caller{}, &file), EROFS);
  EXPECT_EQ(fs_->open_file(at("0/0"), O_RDONLY | O_TRUNC, Caller{}, &file), EROFS);
  EXPECT_EQ(fs_->unlink(at("0"), "0", Caller{}), EROFS);
  EXPECT_EQ(fs_->open_file(at("0"), O_RDONLY, Caller{}, &file), EISDIR);
}

TEST_F(EpochsFsTest, FoldersSayWhatTheirEpochsAre) {
  std::string value, names;
  ASSERT_EQ(fs_->get_attribute(at("1"), "user.swale.step", Caller{}, &value), 0);
  EXPECT_EQ(value, "10");
  ASSERT_EQ(fs_->get_attribute(at("1"), "user.swale.time", Caller{}, &value), 0);
  EXPECT_EQ(value, "0.5");
  ASSERT_EQ(fs_->list_attributes(at("1"), Caller{}, &names), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), '\0'), 4);
  EXPECT_EQ(fs_->get_attribute(at("1/1"), "user.swale.step", Caller{}, &value), ENODATA);
  EXPECT_EQ(fs_->get_attribute(at("1"), "user.other", Caller{}, &value), ENODATA);
}

TEST_F(EpochsFsTest, ANewEpochAppears) {
  write_epoch(2);
  Entry entry;
  EXPECT_EQ(look_up("2", &entry), ENOENT);
  clock_.advance(EpochsFs::kRefreshEvery);
  EXPECT_EQ(look_up("2/2", &entry), 0);
  EXPECT_EQ(content(*entry.node), "2:0:0;");
}

// A job that resumes at epoch 1 writes another epoch 1.
TEST_F(EpochsFsTest, FilesOfADroppedEpochAreStaleAndNeverTheNewOnes) {
  Node& folder = at("1");
  Node& file = at("1/1");
  std::unique_ptr<OpenFile> opened;
  ASSERT_EQ(fs_->open_file(file, O_RDONLY, Caller{}, &opened), 0);
  directory_.manifest.epochs.pop_back();
  directory_.begin_job(2);
  write_epoch(1);  // the same keys
  clock_.advance(EpochsFs::kRefreshEvery);
  Entry entry;
  ASSERT_EQ(look_up("1/1", &entry), 0);
  EXPECT_NE(entry.node, &file);
  EXPECT_EQ(content(*entry.node), "1:0:0;");
  char byte = 0;
  size_t got = 0;
  EXPECT_EQ(fs_->read(*opened, 0, MutableBytes(&byte, 1), &got), ESTALE);
  struct stat attributes;
  EXPECT_EQ(fs_->attributes(file, &attributes), ESTALE);
  EXPECT_EQ(fs_->lookup(folder, "1", &entry), ESTALE);
  std::unique_ptr<OpenFile> again;
  EXPECT_EQ(fs_->open_file(file, O_RDONLY, Caller{}, &again), ESTALE);
}

TEST_F(EpochsFsTest, DamageIsAnErrorAndNeverOtherBytes) {
  const std::string path = imd::data_log_path("dir", {directory_.job(), PartitionNumber(0)});
  auto file = device_.open(path, io::OpenMode::kReadWrite).value();
  const uint64_t bytes = file->size().value();
  std::map<std::string, std::string> right;
  for (const auto& [key, values] : directory_.models[0])
    for (const std::string& value : values) right[*name_of_key(key, run::KeyType::kU64)] += value;
  uint64_t failed = 0, points = 0;
  for (uint64_t at_byte = 0; at_byte < bytes; at_byte += 611, ++points) {
    char byte = 0;
    ASSERT_TRUE(file->pread(at_byte, MutableBytes(&byte, 1)).ok());
    const char flipped = static_cast<char>(byte ^ 0x10);
    ASSERT_TRUE(file->pwrite(at_byte, Bytes(&flipped, 1)).ok());
    for (const auto& [name, expected] : right) {
      std::string got;
      const int answer = read_whole("0/" + name, &got);
      ASSERT_TRUE(answer == EIO || (answer == 0 && got == expected)) << name << " at " << at_byte << answer;
      failed += answer == EIO;
    }
    ASSERT_TRUE(file->pwrite(at_byte, Bytes(&byte, 1)).ok());
  }
  std::printf("%lu flipped bytes, %lu files that could not be read\n", points, failed);
  EXPECT_GT(failed, 0U);
}

}  // namespace
}  // namespace swale::fs
