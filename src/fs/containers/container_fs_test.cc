#include "fs/containers/container_fs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "io/memory_device.h"
#include "meta/store/store.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kTime = 1'234'567'890'500'000'000;

// A store in the memory of this process, opened by a job of one rank.
class OpenedStore {
 public:
  OpenedStore(io::Device& device, meta::OpenStore how)
      : job_(*net::Job::open(net::solo_bootstrap(), net::JobOptions())) {
    meta::StoreOptions options;
    options.open = how;
    options.range_bytes = 4096;
    options.servers_per_node = 2;
    store = *meta::Store::open(*job_, device, "store", options);
    client = store->client();
  }
  ~OpenedStore() {
    client.reset();
    EXPECT_TRUE(store->close().ok());
    store.reset();
    EXPECT_TRUE(job_->close().ok());
  }
  std::vector<meta::Attributes> files() const {
    std::vector<meta::Attributes> all;
    store->with_servers([&](const meta::ServerCore& server) {
      for (const meta::Attributes& each : server.attributes().list()) all.push_back(each);
    });
    return all;
  }

 private:
  std::unique_ptr<net::Job> job_;

 public:
  std::unique_ptr<meta::Store> store;
  std::unique_ptr<meta::Client> client;
};

class ContainerFsTest : public testing::Test {
 protected:
  static constexpr int kLogs = 3;

  // Puts bytes at a place, as a rank does that has log `log`: what the file must have is kept beside.
  void put(meta::Client& client, meta::File* file, uint32_t log, uint64_t offset, const std::string& bytes) {
    std::string& content = logs_[log];
    const meta::Extent segment{offset, bytes.size(), {log, content.size()}};
    content += bytes;
    const Status done = client.put(file, {&segment, 1});
    ASSERT_TRUE(done.ok()) << done.to_string();
    std::string& all = expected_[file->attributes.name];
    all.resize(std::max<size_t>(all.size(), offset + bytes.size()));
    all.replace(offset, bytes.size(), bytes);
  }

  void write(const std::vector<std::string>& names) {
    OpenedStore made(device_, meta::OpenStore::kCreate);
    uint32_t random = 1;
    for (const std::string& name : names) {
      meta::File file = *made.client->open(name, meta::Client::kCreate, 0640, kTime);
      expected_[name];
      for (int i = 0; i < 40; ++i) {
        random = random * 1'664'525 + 1'013'904'223;
        put(*made.client, &file, random % kLogs, (random >> 8) % 60'000,
            std::string(1 + random % 900, static_cast<char>('a' + i % 26)));
      }
      ASSERT_TRUE(made.client->close(&file, kTime).ok());
    }
    for (const auto& [log, content] : logs_)
      ASSERT_TRUE((*device_.open("log-" + std::to_string(log), io::OpenMode::kOpenOrCreate))
                      ->pwrite(0, content)
                      .ok());
  }

  void open() {
    opened_ = std::make_unique<OpenedStore>(device_, meta::OpenStore::kReadOnly);
    fs_ = std::make_unique<ContainerFs>(*opened_->client, log_files_, opened_->files());
  }

  int look_up(const std::string& path, Entry* entry) {
    entry->node = fs_->root();
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const int failed = fs_->lookup(*entry->node, path.substr(begin, end - begin).c_str(), entry);
      if (failed != 0) return failed;
      begin = end + 1;
    }
    return 0;
  }
  // The bytes by reads of `piece`, or an errno.
  int read(const std::string& path, size_t piece, std::string* all) {
    Entry entry;
    if (const int failed = look_up(path, &entry); failed != 0) return failed;
    std::unique_ptr<OpenFile> file;
    if (const int failed = fs_->open_file(*entry.node, O_RDONLY, Caller{}, &file); failed != 0) return failed;
    all->clear();
    std::string part(piece, '?');
    for (size_t got = 1; got > 0; all->append(part, 0, got))
      if (const int failed = fs_->read(*file, all->size(), MutableBytes(part.data(), part.size()), &got);
          failed != 0)
        return failed;
    EXPECT_EQ(entry.attributes.st_size, static_cast<off_t>(all->size())) << path;
    return 0;
  }
  std::vector<std::string> list(const std::string& path) {
    Entry entry;
    EXPECT_EQ(look_up(path, &entry), 0) << path;
    std::unique_ptr<OpenDirectory> directory;
    EXPECT_EQ(fs_->open_directory(*entry.node, Caller{}, &directory), 0);
    std::vector<std::string> names;
    off_t from = 0;
    for (bool more = true; more;) {  // one at a time, as a small buffer of the kernel would
      more = false;
      EXPECT_EQ(fs_->read_directory(*directory, from,
                                    [&](const DirectoryEntry& each) {
                                      if (more) return false;
                                      names.push_back(each.name);
                                      from = each.next;
                                      return more = true;
                                    }),
                0);
    }
    return names;
  }

  io::MemoryDevice device_;
  std::map<uint32_t, std::string> logs_;
  std::map<std::string, std::string> expected_;
  LogFiles log_files_{device_, "log-%s"};
  std::unique_ptr<OpenedStore> opened_;
  std::unique_ptr<ContainerFs> fs_;
};

TEST_F(ContainerFsTest, FilesHaveTheirBytesSizesModesAndTimes) {
  write({"/run7/checkpoint", "/run7/restart", "plain", "empty//folder/deep"});
  open();
  EXPECT_EQ(fs_->files_shown(), 4U);
  EXPECT_THAT(list(""), ElementsAre(".", "..", "empty", "plain", "run7"));
  EXPECT_THAT(list("run7"), ElementsAre(".", "..", "checkpoint", "restart"));
  const std::map<std::string, std::string> paths = {{"/run7/checkpoint", "run7/checkpoint"},
                                                    {"/run7/restart", "run7/restart"},
                                                    {"plain", "plain"},
                                                    {"empty//folder/deep", "empty/folder/deep"}};
  for (const auto& [name, path] : paths)
    for (const size_t piece : {size_t{777}, size_t{4096}, size_t{1} << 20}) {
      std::string content;
      ASSERT_EQ(read(path, piece, &content), 0) << path;
      EXPECT_TRUE(content == expected_[name]) << path;
    }
  Entry entry;
  ASSERT_EQ(look_up("plain", &entry), 0);
  EXPECT_EQ(entry.attributes.st_mode, static_cast<mode_t>(S_IFREG | 0440));
  EXPECT_EQ(entry.attributes.st_mtim.tv_sec, kTime / 1'000'000'000);
  EXPECT_EQ(entry.attributes.st_mtim.tv_nsec, kTime % 1'000'000'000);
  EXPECT_EQ(look_up("nowhere", &entry), ENOENT);
  EXPECT_EQ(look_up("plain/below", &entry), ENOTDIR);
}

TEST_F(ContainerFsTest, NothingCanBeChanged) {
  write({"file"});
  open();
  Entry entry;
  std::unique_ptr<OpenFile> file;
  ASSERT_EQ(look_up("file", &entry), 0);
  EXPECT_EQ(fs_->open_file(*entry.node, O_RDWR, Caller{}, &file), EROFS);
  EXPECT_EQ(fs_->open_file(*entry.node, O_RDONLY | O_TRUNC, Caller{}, &file), EROFS);
  EXPECT_EQ(fs_->unlink(*fs_->root(), "file", Caller{}), EROFS);
  EXPECT_EQ(fs_->open_file(*fs_->root(), O_RDONLY, Caller{}, &file), EISDIR);
}

TEST_F(ContainerFsTest, WhatNoPathCanNameIsCountedAndTheRestIsShown) {
  write({"a", "/a", "a/b", "../x", "good", std::string(300, 'n'), "/"});
  open();
  EXPECT_EQ(fs_->files_shown(), 2U);
  EXPECT_THAT(list(""), ElementsAre(".", "..", "a", "good"));
}

TEST_F(ContainerFsTest, ALogThatIsMissingOrShortIsAnErrorNeverOtherBytes) {
  write({"file"});
  open();
  std::string content;
  ASSERT_EQ(read("file", 4096, &content), 0);
  LogFiles elsewhere(device_, "elsewhere-%s");
  fs_ = std::make_unique<ContainerFs>(*opened_->client, elsewhere, opened_->files());
  EXPECT_EQ(read("file", 4096, &content), EIO);
  for (uint32_t log = 0; log < kLogs; ++log)
    ASSERT_TRUE((*device_.open("log-" + std::to_string(log), io::OpenMode::kReadWrite))->truncate(100).ok());
  EXPECT_THAT(log_files_.read(1, 90, MutableBytes(content.data(), 20)).to_string(),
              HasSubstr("log-1: log 1 ends at 100"));
  fs_ = std::make_unique<ContainerFs>(*opened_->client, log_files_, opened_->files());
  EXPECT_EQ(read("file", 4096, &content), EIO);
}

TEST_F(ContainerFsTest, TruncatedAndRemovedFilesAreAsTheStoreSays) {
  write({"cut", "gone"});
  {
    OpenedStore changed(device_, meta::OpenStore::kExisting);
    meta::File file = *changed.client->open("cut", 0, 0, kTime);
    ASSERT_TRUE(changed.client->truncate(&file, 5000, kTime).ok());
    ASSERT_TRUE(changed.client->truncate(&file, 9000, kTime).ok());  // zeros from 5,000 on
    ASSERT_TRUE(changed.client->close(&file, kTime).ok());
    ASSERT_TRUE(changed.client->remove("gone").ok());
  }
  open();
  std::string content;
  EXPECT_THAT(list(""), ElementsAre(".", "..", "cut"));
  ASSERT_EQ(read("cut", 4096, &content), 0);
  EXPECT_TRUE(content == expected_["cut"].substr(0, 5000) + std::string(4000, '\0'));
}

TEST(LogFilesTest, APatternHasOneNumber) {
  EXPECT_TRUE(LogFiles::check_pattern("out/log-%s").ok());
  EXPECT_FALSE(LogFiles::check_pattern("out/log").ok());
  EXPECT_FALSE(LogFiles::check_pattern("%s/log-%s").ok());
}

}  // namespace
}  // namespace swale::fs
