// What the tests of a node's files share: the folders of its logs, a backing directory in memory, and names
// that a test sets.
//
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/crc32c.h"
#include "fs/log/testing/log_rig.h"
#include "fs/node/node_files.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::fs {

// Names that a test sets. A file in memory has no inode: its content stands for it.
class NamedBacking final : public Backing {
 public:
  using Backing::Backing;
  Result<std::string> path_of(const meta::FileId& file) override {
    const auto at = names.find(file);
    if (at == names.end()) return error(Code::kNotFound, Scope::kFile, "no name leads to this file");
    return root() + "/" + at->second;
  }
  Result<Stamp> stamp(io::File& file) override {
    if (file.descriptor() >= 0) return stamp_of(file);
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, file.size());
    std::string bytes(size, '\0');
    SWALE_RETURN_IF_ERROR(read_exactly(file, 0, bytes));
    return Stamp{1, 1, size, crc32c(bytes)};
  }
  std::map<meta::FileId, std::string> names;
};

inline std::string content_of(io::Device& device, const std::string& path) {
  auto bytes = io::read_file(device, path, 64 * kMiB);
  return bytes.ok() ? *bytes : "(" + std::string(bytes.status().message()) + ")";
}
inline void put_file(io::Device& device, const std::string& path, const std::string& bytes) {
  auto file = device.open(path, io::OpenMode::kOpenOrCreate);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE((*file)->truncate(0).ok());
  ASSERT_TRUE((*file)->pwrite(0, bytes).ok());
  ASSERT_TRUE((*file)->sync().ok());
  ASSERT_TRUE(device.sync_directory(io::parent_directory(path)).ok());
}

class NodeRig : public LogRig {
 protected:
  NodeRig() {
    EXPECT_TRUE(disk_.make_directory("/b").ok());
    EXPECT_TRUE(disk_.sync_directory("/").ok());
    backing_.names[kFile] = "file";
    backing_.names[kOther] = "other";
  }
  static constexpr meta::FileId kOther{7, 2};
  // The server, again: what it did not close is as a kill leaves it.
  void restart() {
    node_.reset();
    auto node = NodeFiles::open(device_, device_, options_, backing_);
    ASSERT_TRUE(node.ok()) << node.status().to_string();
    node_ = std::move(*node);
  }
  void start_writer() {
    const auto log = node_->logs().add_log();
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    log_ = *log;
    writer_.detach();
    attach(writer_, log_);
  }
  void write(const meta::FileId& file, uint64_t offset, const std::string& bytes) {
    LogTrouble trouble;
    ASSERT_EQ(writer_.write(file, offset, bytes.data(), bytes.size(), &trouble),
              static_cast<int64_t>(bytes.size()))
        << trouble.text;
  }
  std::string read(const meta::FileId& file, uint64_t offset = 0, size_t bytes = 32 * kMiB) {
    const auto size = node_->size(file);
    if (!size.ok()) return "(" + std::string(size.status().message()) + ")";
    std::string out(std::min<uint64_t>(bytes, *size > offset ? *size - offset : 0), '\0');
    const auto got = node_->read(file, offset, out);
    ShownBytes shown;
    if (got.ok() && node_->show(file, offset, bytes, &shown)) {
      std::string same;
      for (const Bytes part : shown.parts) same.append(part);
      EXPECT_TRUE(same == out.substr(0, *got)) << "bytes in their places are others than read() gives";
      ++shown_;
    }
    return got.ok() ? out.substr(0, *got) : "(" + std::string(got.status().message()) + ")";
  }

  io::MemoryDevice disk_;
  io::FaultDevice faults_{disk_};
  NamedBacking backing_{faults_, "/b"};
  std::unique_ptr<NodeFiles> node_;
  LogWriter writer_;
  uint32_t log_ = 0;
  uint64_t shown_ = 0;  // reads that were answered from the bytes' places, too
};

}  // namespace swale::fs
