// NodeTable: the files and directories that the kernel knows by number, each with a descriptor of the backing file system.
//
// A node is one inode of the backing file system, whatever its names are; it lives while the kernel's count of lookups of it is
// not zero. Its descriptor (O_PATH) leads to it after renames and after its last name is gone.
//
// Threads: thread-safe. A Node is valid for whoever has a lookup of it, which the kernel holds for each request.
// Limits: one descriptor a node; the process's limit is the table's (kResourceExhausted would be ENFILE or EMFILE of open).
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "io/descriptor.h"
#include "tier/store/store.h"

namespace swale::fs {

struct Node {
  io::Descriptor path;  // O_PATH
  tier::FileKey key;
  mode_t type = 0;       // S_IFMT
  uint64_t lookups = 0;  // the table's
  // Its ctime: nobody but this mount changes files, and a flush, which moves the backing file's, is no change.
  std::atomic<int64_t> changed_ns = 0;

  // It may have S_ISUID or S_ISGID, which the next change of its content takes away. Set with the mutex.
  std::atomic<bool> may_be_set_id = true;

  // Of a regular file: the mode is changed with it. Handles of the store last from the first open that needs one to the last release.
  Mutex mutex;
  uint32_t opens GUARDED_BY(mutex) = 0;
  std::optional<tier::Store::Handle> handle GUARDED_BY(mutex);
};

class NodeTable {
 public:
  // The node of an open O_PATH descriptor, with one lookup more.
  Node* enter(io::Descriptor path, const struct stat& attributes);
  void forget(Node* node, uint64_t count);
  size_t size() const;

 private:
  struct KeyHash {
    size_t operator()(const tier::FileKey& key) const { return key.inode * 0x9e3779b97f4a7c15 ^ key.device; }
  };
  mutable Mutex mutex_;
  std::unordered_map<tier::FileKey, std::unique_ptr<Node>, KeyHash> nodes_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
