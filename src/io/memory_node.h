// MemoryNode: one file or directory of a MemoryDevice, with its durable and its current state.
//
// Threads: guarded by the device's mutex.
// Invariants: (1) a page of a file that is not in `unsynced` has its content of the last sync; (2) a
// directory's entries are synced_entries with the journal applied.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "io/memory_device.h"

namespace swale::io {

class MemoryFileContent {
 public:
  size_t read(uint64_t offset, MutableBytes out) const;
  void write(uint64_t offset, Bytes data);
  void truncate(uint64_t size);
  void sync();
  void crash(Rng& rng, CrashMode mode);
  uint64_t size() const { return bytes_.size(); }

 private:
  struct Change {
    uint64_t offset;    // of a write; the new size of a truncation
    std::string bytes;  // empty: a truncation
  };

  void save_pages(uint64_t begin, uint64_t end);
  void put(uint64_t offset, Bytes data);
  void go_back_to_sync();
  uint64_t size_after_tear(Rng& rng) const;

  std::string bytes_;
  uint64_t synced_size_ = 0;
  std::map<uint64_t, std::string> unsynced_;  // page number -> its content at the last sync
  std::vector<Change> changes_;               // since the last sync
};

struct MemoryNode;
using MemoryNodePtr = std::shared_ptr<MemoryNode>;

class MemoryDirectory {
 public:
  using Entries = std::map<std::string, MemoryNodePtr>;
  // The changes of one operation to this directory, applied all or none: names and their new nodes (null:
  // removed).
  using Operation = std::vector<std::pair<std::string, MemoryNodePtr>>;

  const Entries& entries() const { return entries_; }
  MemoryNodePtr find(const std::string& name) const;
  void apply(Operation operation);
  void sync();
  void crash(Rng& rng, CrashMode mode);

 private:
  Entries entries_;
  Entries synced_entries_;
  std::vector<Operation> journal_;  // since the last sync
};

struct MemoryNode {
  explicit MemoryNode(bool is_directory) : directory(is_directory) {}
  const bool directory;
  MemoryFileContent content;  // of a file
  MemoryDirectory names;      // of a directory
  bool removed = false;       // its name is gone: nothing can be created in such a directory
};

}  // namespace swale::io
