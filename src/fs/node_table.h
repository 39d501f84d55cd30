// NodeTable: the files and directories that the kernel knows by number, each with a descriptor of the backing
// file system.
//
// A node is one inode of the backing file system, whatever its names are; it lives while the kernel's count
// of lookups of it is not zero. Its descriptor (O_PATH) leads to it after renames and after its last name is
// gone.
//
// The kernel keeps what it has looked up for as long as it has memory, and so would the table keep its
// descriptors. When there are more than idle_above(), whoever serves the kernel is called, and asks it to
// forget what nobody uses: take_idle() says what that is (src/fuse/idle_nodes.h).
//
// Threads: thread-safe. A node is valid for whoever has a lookup of it, which the kernel holds for each
// request.
// Limits: one descriptor a node; the process's limit is the table's (kResourceExhausted would be ENFILE or
// EMFILE of open).
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fs/file_system.h"
#include "io/descriptor.h"
#include "tier/store/store.h"

namespace swale::fs {

struct TierNode final : Node {
  // The node of a TierFs that the kernel names.
  static TierNode& of(Node& node) { return static_cast<TierNode&>(node); }

  io::Descriptor path;  // O_PATH
  tier::FileKey key;
  mode_t type = 0;       // S_IFMT
  uint64_t lookups = 0;  // the table's, as are
  // by which name the kernel knows it: for the kernel only, since the parent may be gone, and
  const TierNode* parent = nullptr;
  std::string name;
  std::list<TierNode*>::iterator place;  // in the order of lookups
  // Its ctime: nobody but this mount changes files, and a flush, which moves the backing file's, is no
  // change.
  std::atomic<int64_t> changed_ns = 0;

  // It may have S_ISUID or S_ISGID, which the next change of its content takes away. Set with the mutex.
  std::atomic<bool> may_be_set_id = true;

  // Of a regular file: the mode is changed with it. Handles of the store last from the first open that needs
  // one to the last release.
  Mutex mutex;
  uint32_t opens GUARDED_BY(mutex) = 0;
  std::optional<tier::Store::Handle> handle GUARDED_BY(mutex);
};

class NodeTable {
 public:
  // The node of an open O_PATH descriptor, with one lookup more, by the name that was looked up.
  TierNode* enter(io::Descriptor path, const struct stat& attributes, const TierNode* parent,
                  std::string_view name);
  void forget(TierNode* node, uint64_t count);
  // The node of this key, if there is one, has another name.
  void renamed(const tier::FileKey& key, const TierNode* parent, std::string_view name);
  size_t size() const;

  // `crowded` is called, under the mutex, by each entering that finds more than `nodes` nodes. It may not
  // call back.
  void call_above(size_t nodes, std::function<void()> crowded);
  // The names of at most `count` files that were looked up longest ago and that nobody has open. No
  // directories: the kernel cannot say whether one is somebody's working directory. They count as looked up
  // now.
  std::vector<IdleName> take_idle(size_t count);

 private:
  struct KeyHash {
    size_t operator()(const tier::FileKey& key) const { return key.inode * 0x9e3779b97f4a7c15 ^ key.device; }
  };
  mutable Mutex mutex_;
  std::unordered_map<tier::FileKey, std::unique_ptr<TierNode>, KeyHash> nodes_ GUARDED_BY(mutex_);
  std::list<TierNode*> by_lookup_ GUARDED_BY(mutex_);  // the one that was looked up last is the last one
  size_t crowd_ GUARDED_BY(mutex_) = 0;
  std::function<void()> crowded_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
