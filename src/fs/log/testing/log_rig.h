// What the tests of a node's logs share: a folder in memory and one on storage, a consumer that keeps the
// files as bytes, and a model of what they must be.
//
// Threads: one. Child processes are forked by the tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fs/log/log_writer.h"
#include "fs/log/node_logs.h"
#include "io/posix_device.h"

namespace swale::fs {

inline constexpr meta::FileId kFile{7, 1};

// In memory where the machine has a memory file system.
inline std::string make_folder(const std::string& base) {
  std::string path = base + "/swale-logs-XXXXXX";
  return ::mkdtemp(path.data()) == nullptr ? "" : path;
}
inline std::string memory_base() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir(); }

class Folder {
 public:
  explicit Folder(const std::string& base) : path_(make_folder(base)) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Applies what is handed out, in its order.
class Files : public SegmentConsumer {
 public:
  Status take(std::span<const Segment> segments) override {
    if (!next_.ok()) return next_;
    taken.insert(taken.end(), segments.begin(), segments.end());  // all or none, also without memory
    for (const Segment& segment : segments) {
      EXPECT_GT(segment.order, last_order_);
      last_order_ = segment.order;
    }
    return {};
  }
  void damaged(const Status& status) override { problems.push_back(status); }
  void fail_with(const Status& status) { next_ = status; }

  // The bytes of a file: of each byte the last segment that has it. Reads through the logs.
  std::string bytes(NodeLogs& logs, const meta::FileId& file = kFile) const {
    std::string out;
    for (const Segment& segment : taken) {
      if (segment.file != file) continue;
      if (out.size() < segment.offset + segment.length) out.resize(segment.offset + segment.length, '\0');
      const Status status = logs.read(segment.place, std::span(out).subspan(segment.offset, segment.length));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return out;
  }
  void drop_all(NodeLogs& logs) {
    for (const Segment& segment : taken) EXPECT_TRUE(logs.drop(segment.place, segment.length).ok());
    taken.clear();
  }

  std::vector<Segment> taken;
  std::vector<Status> problems;

 private:
  uint64_t last_order_ = 0;
  Status next_;
};

class LogRig : public testing::Test {
 protected:
  LogRig() : memory_(memory_base()), storage_(testing::TempDir()) {
    options_.memory_directory = memory_.path() + "/node";
    options_.spill_directory = storage_.path() + "/spill";
    options_.memory_bytes = 64 * options_.shape.chunk_bytes;
    options_.shape.node = "here";
    options_.shape.wait_ns = 20'000'000'000;
  }
  void small_chunks(uint32_t chunk_bytes, uint32_t slots) {
    options_.shape.chunk_bytes = chunk_bytes;
    options_.shape.slots = slots;
    options_.memory_bytes = uint64_t{chunk_bytes} * slots;
  }
  void open() {
    logs_.reset();
    auto logs = NodeLogs::open(device_, device_, options_);
    ASSERT_TRUE(logs.ok()) << logs.status().to_string();
    logs_ = std::move(*logs);
  }
  uint32_t add() {
    const auto log = logs_->add_log();
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    return log.ok() ? *log : 0;
  }
  void attach(LogWriter& writer, uint32_t log) {
    LogTrouble trouble;
    ASSERT_EQ(writer.attach(options_.memory_directory.c_str(), log, &trouble), 0) << trouble.text;
  }
  void take() {
    const Status status = logs_->take(files_);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void serve() {
    const Status status = logs_->serve();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::string log_path(uint32_t log) const {
    return options_.memory_directory + "/" + kLogPrefix + std::to_string(log);
  }

  Folder memory_;
  Folder storage_;
  io::PosixDevice device_;
  NodeLogsOptions options_;
  std::unique_ptr<NodeLogs> logs_;
  Files files_;
};

// A pattern that tells which write it is of, and which byte of it.
inline std::string pattern(uint64_t write, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((write * 2654435761u + i * 31) >> 3 | 1);
  return out;
}

}  // namespace swale::fs
