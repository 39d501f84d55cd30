// What tests of programs with logs of their own share: a job of one node whose server they meet, and opens of
// its mount.
//
// Threads: one, beside those of JobFs and JobAttach.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "fs/client/attachment.h"
#include "fs/job/job_attach.h"
#include "fs/job/testing/job_world.h"

namespace swale::fs {

class AttachRig : public testing::Test {
 protected:
  // One open of the mount.
  struct Open {
    std::unique_ptr<OpenFile> file;
    Node* node = nullptr;
  };

  void start() {
    world_.start();
    serve();
  }
  void serve() {
    folder_ = std::filesystem::path(world_.options().logs.memory_directory).parent_path();
    auto attach = JobAttach::open(fs(), folder_);
    ASSERT_TRUE(attach.ok()) << attach.status().to_string();
    attach_ = std::move(*attach);
  }
  void TearDown() override {
    while (!opens_.empty()) close(opens_.back());
    attach_.reset();
  }
  JobFs& fs() { return world_.fs(); }

  Open& open(const std::string& name, int flags) {
    auto made = std::make_unique<Open>();
    Entry entry;
    int failed = fs().lookup(*fs().root(), name.c_str(), &entry);
    if (failed == ENOENT)
      failed = fs().create(*fs().root(), name.c_str(), 0644, flags, caller_, &entry, &made->file);
    else if (failed == 0)
      failed = fs().open_file(*entry.node, flags, caller_, &made->file);
    EXPECT_EQ(failed, 0) << name;
    made->node = entry.node;
    opens_.push_back(made.get());
    return *made.release();
  }
  void close(Open* each) {
    EXPECT_EQ(fs().flush(*each->file), 0);
    fs().release(std::move(each->file));
    fs().forget(each->node, 1);
    opens_.erase(std::find(opens_.begin(), opens_.end(), each));
    delete each;
  }
  std::shared_ptr<Attachment> attach() {
    auto made = Attachment::open({"here", folder_ + "/" + kAttachSocket});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : nullptr;
  }
  int ask(Open& in, const AttachToken& token, meta::FileId* id, unsigned long command = kAskGrant) {
    const GrantRequest request{token, 0, 0};
    std::string answer;
    const int failed = fs().command(*in.file, command,
                                    Bytes(reinterpret_cast<const char*>(&request), sizeof(request)), &answer);
    if (failed != 0) return failed;
    GrantRequest got;
    std::memcpy(&got, answer.data(), sizeof(got));
    *id = {got.file_high, got.file_low};
    return 0;
  }
  meta::FileId granted(Open& in, const AttachToken& token) {
    meta::FileId id;
    EXPECT_EQ(ask(in, token, &id), 0);
    return id;
  }
  int write_by_mount(Open& out, uint64_t offset, Bytes bytes) {
    return fs().write(*out.file, offset, bytes.size(), caller_, [&](MutableBytes part) -> Status {
      std::copy_n(bytes.data(), part.size(), part.data());
      bytes.remove_prefix(part.size());
      return {};
    });
  }
  std::string read(Open& in, uint64_t offset = 0, size_t bytes = 1 << 17) {
    std::string out(bytes, '\0');
    size_t got = 0;
    EXPECT_EQ(fs().read(*in.file, offset, out, &got), 0);
    out.resize(got);
    return out;
  }
  struct stat look(Open& in) {
    struct stat found = {};
    EXPECT_EQ(fs().attributes(*in.node, &found), 0);
    return found;
  }
  void truncate(Open& out, uint64_t size) {
    struct stat found;
    EXPECT_EQ(fs().change(*out.node, {.size = size, .size_by_handle = true}, caller_, &found), 0);
  }

  static std::string pattern(uint64_t write, size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((write * 2654435761u + i * 31) >> 3 | 1);
    return out;
  }
  // Their slots are used again soon.
  void small_logs() {
    world_.options().logs.shape.chunk_bytes = 64 << 10;
    world_.options().logs.memory_bytes = 4 << 20;
  }
  // Writes by log and by mount, truncates, drains and reads by `read_bytes`, one after the other, beside a
  // string. Returns the wrong reads.
  uint64_t random_reads(uint64_t calls,
                        const std::function<std::string(Open&, uint64_t offset, size_t bytes)>& read_bytes) {
    constexpr uint64_t kFileBytes = 1 << 17;
    Open& file = open("random", O_RDWR | O_CREAT | O_DIRECT);
    const auto program = attach();
    const meta::FileId id = granted(file, program->token);
    Rng rng(7);
    std::string model;
    uint64_t wrong = 0;
    for (uint64_t call = 0; call < calls; ++call) {
      const std::string bytes = pattern(call, 1 + rng.below(20'000));
      const uint64_t offset = rng.below(kFileBytes);
      switch (rng.below(24)) {
        case 0:
        case 1:
        case 2:
          if (rng.below(2) == 0) {
            EXPECT_EQ(write_by_mount(file, offset, bytes), 0);
          } else {
            EXPECT_EQ(program->writer.write(id, offset, bytes.data(), bytes.size()),
                      static_cast<int64_t>(bytes.size()));
          }
          if (model.size() < offset + bytes.size()) model.resize(offset + bytes.size(), '\0');
          model.replace(offset, bytes.size(), bytes);
          break;
        case 3:
          if (rng.below(8) != 0) break;
          truncate(file, offset);
          model.resize(offset, '\0');
          break;
        case 4:
          if (rng.below(8) != 0) break;
          EXPECT_TRUE(fs().drain_all().ok());
          break;
        default:
          wrong += read_bytes(file, offset, bytes.size()) !=
                   (offset < model.size() ? model.substr(offset, bytes.size()) : std::string());
      }
    }
    return wrong;
  }

  const Caller caller_ = Caller::this_thread();
  JobWorld world_;
  std::string folder_;
  std::unique_ptr<JobAttach> attach_;
  std::vector<Open*> opens_;
};

}  // namespace swale::fs
