// TierFs: a POSIX file system over a tier::Store: names, attributes and directories are those of the backing
// directory, the bytes of regular files go through the store. docs/design/mount.md tells why it is so.
//
// It knows no kernel: src/fuse hands on the kernel's requests, tests call it directly. Calls answer 0 or an
// errno; output parameters are set only on success. Each Entry holds one lookup of its node until forget;
// each OpenFile lasts until release.
//
// A call with a Caller runs as that caller where this process may (as_caller.h): the backing file system
// decides whether it is allowed. Calls without one need no permission, or that of an open file, which its
// opening has checked.
//
// Threads: all calls are thread-safe, but two things must not run concurrently, which the kernel's inode
// locks see to: calls that change a file's size (truncate, allocate) with its writes, and calls that make or
// remove the same name.
// Invariants: (1) A file that was opened to be written, or that the log has bytes of, is read through the
// store; any other is read from the backing file. (2) The store's private directory and its attribute are
// neither seen nor changed. (3) Names are resolved one at a time in an open directory (beneath.h); nothing is
// changed by a name that another process may have replaced.
// Errors: those of the backing file system; EIO where the store has lost something, with the cause in the log
// of the program.
// Limits: one descriptor for each node that the kernel knows (nodes() says which it may forget), one more for
// each file that is open or in the log.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/as_caller.h"
#include "fs/node_table.h"
#include "tier/store/store.h"
#include "tier/trace/trace_writer.h"

namespace swale::fs {

// An attribute of the root: the store's counters as a JSON object. It can be read by name and is not listed,
// so that no copy takes it along.
inline constexpr const char* kStatsAttribute = "user.swale.stats";

struct Entry {
  Node* node = nullptr;
  struct stat attributes = {};
};

// What setattr changes.
struct Change {
  static constexpr timespec kNow = {0, UTIME_NOW};
  std::optional<mode_t> mode = {};
  std::optional<uid_t> user = {};
  std::optional<gid_t> group = {};
  std::optional<uint64_t> size = {};
  std::optional<timespec> accessed = {};
  std::optional<timespec> modified = {};
  bool size_by_handle = false;  // by a file that is open to write: its mode does not matter any more
};

class OpenFile;

// A directory's names, as they are read one after the other.
struct DirectoryEntry {
  std::string name;
  uint64_t inode = 0;
  mode_t type = 0;  // S_IFMT
  off_t next = 0;   // where the reading goes on behind it
};

// One open of a directory. Its place is shared by those that read it at a time.
class OpenDirectory {
 public:
  OpenDirectory(const Node& node, DIR* stream) : node_(node), stream_(stream) {}
  ~OpenDirectory() { ::closedir(stream_); }
  OpenDirectory(const OpenDirectory&) = delete;
  OpenDirectory& operator=(const OpenDirectory&) = delete;

 private:
  friend class TierFs;
  const Node& node_;
  Mutex mutex_;
  DIR* const stream_ PT_GUARDED_BY(mutex_);
  off_t at_ GUARDED_BY(mutex_) = 0;
};

class TierFs {
 public:
  // The store must outlive it and have the same backing directory. `trace`: gets the requests as they come;
  // outlives it, too.
  static Result<std::unique_ptr<TierFs>> open(tier::Store& store, const std::string& backing_directory,
                                              tier::TraceWriter* trace = nullptr);
  ~TierFs();

  Node* root() const { return root_; }
  bool switches() const { return identity_.switches(); }  // calls run as their callers
  // Before the first call: all run as this process (the benchmark's comparison).
  void never_switch() { identity_.never_switch(); }
  // Whether the kernel above enforces ACLs; without, they are EOPNOTSUPP, because nobody would keep what they
  // promise. By default it does.
  void set_acls(bool enforced) { acls_ = enforced; }
  // For tests: modes of new directories are set again by name, which follows links. Their checker must
  // notice.
  void canary_mode_by_name() { canary_mode_by_name_ = true; }

  // Names (tier_fs_names.cc).
  int lookup(Node& parent, const char* name, Entry* entry);
  void forget(Node* node, uint64_t count) { nodes_.forget(node, count); }
  NodeTable& nodes() { return nodes_; }
  int make_node(Node& parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                Entry* entry);
  int make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller, Entry* entry);
  int make_symlink(Node& parent, const char* name, const char* target, const Caller& caller, Entry* entry);
  int read_symlink(Node& node, std::string* target);
  int link(Node& node, Node& parent, const char* name, const Caller& caller, Entry* entry);
  int unlink(Node& parent, const char* name, const Caller& caller);
  int remove_directory(Node& parent, const char* name, const Caller& caller);
  // flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE
  int rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags,
             const Caller& caller);

  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory);
  // Names from `from` on (0, or some entry's `next`) until `add` answers false: that one was not taken.
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add);
  int sync_directory(OpenDirectory& directory);

  // Attributes (tier_fs_attributes.cc).
  int attributes(Node& node, struct stat* attributes);
  int change(Node& node, const Change& change, const Caller& caller, struct stat* attributes);
  int statistics(struct statvfs* statistics);
  int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value);
  int list_attributes(Node& node, const Caller& caller, std::string* names);  // each ends with a 0
  int set_attribute(Node& node, const char* name, Bytes value, int flags, const Caller& caller);
  int remove_attribute(Node& node, const char* name, const Caller& caller);

  // Bytes (tier_fs.cc).
  int create(Node& parent, const char* name, mode_t mode, int flags, const Caller& caller, Entry* entry,
             std::unique_ptr<OpenFile>* file);
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file);
  void release(std::unique_ptr<OpenFile> file);
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got);
  // Changes of the content need no permission but the handle's. The caller matters for set-id bits, which
  // root's changes leave.
  int write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
            const tier::Store::Fill& fill);
  // The same; `answered` gets the errno, and afterwards this thread helps the store.
  void write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
             const tier::Store::Fill& fill, const std::function<void(int)>& answered);
  int flush(OpenFile& file);  // at each close of a descriptor: tells of what was lost
  int sync(OpenFile& file);
  int allocate(OpenFile& file, int mode, uint64_t offset, uint64_t length, const Caller& caller);
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found);  // SEEK_DATA, SEEK_HOLE
  int copy(OpenFile& from, uint64_t from_offset, OpenFile& to, uint64_t to_offset, uint64_t length,
           const Caller& caller, uint64_t* copied);

 private:
  TierFs(tier::Store& store, tier::TraceWriter* trace, Identity identity)
      : store_(store), trace_(trace), identity_(std::move(identity)) {}

  void note(tier::TraceRecord::Kind kind, const Node& node, uint64_t offset = 0, uint64_t length = 0) const {
    if (trace_ != nullptr) trace_->add(kind, node.key.inode, offset, length);
  }

  bool is_private(const Node& parent, std::string_view name) const;
  int enter(const Node& parent, const char* name, Entry* entry);
  int enter(io::Descriptor path, const Node& parent, const char* name, Entry* entry);
  void note_name(const Node& parent, const char* name);
  int attributes_of(int path, struct stat* attributes);
  static void changed(Node& node);  // just now
  int content_changes(Node& node, const Caller& caller) const;
  static void set_change_time(Node& node, struct stat* attributes);
  // Makes a name by `make`, as the caller, and enters what has it then.
  template <class Make>
  int make(Node& parent, const char* name, mode_t type, const Caller& caller, Entry* entry, const Make& make);
  void removed(const io::Descriptor& path);
  int open_as(Node& node, int flags, const Caller& caller, io::Descriptor* own) const;
  int opened(Node& node, int flags, io::Descriptor own, const Caller& caller,
             std::unique_ptr<OpenFile>* file);
  // As the caller; null: as this process, to take back what was changed before.
  int change_size(Node& node, uint64_t size, std::optional<timespec> modified, const Caller& caller);
  int change_mode(Node& node, mode_t mode, const Caller* caller);
  int change_owner(Node& node, std::optional<uid_t> user, std::optional<gid_t> group, const Caller* caller);
  int change_times(Node& node, std::optional<timespec> accessed, std::optional<timespec> modified,
                   const Caller* caller);
  void take_back(Node& parent, const char* name, const io::Descriptor& made, const Caller& caller);
  int truncate(Node& node, uint64_t size, const Caller& caller);
  static int open_to_allocate(Node& node, io::Descriptor* fd);
  int writable(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
               tier::Store::Handle* handle) const;
  int answer(const Status& status) const;

  // Opens of a node. hold: with a handle of the store if `wanted`, or if the store has the file.
  int hold(Node& node, bool wanted);
  void let_go(Node& node);
  std::optional<tier::Store::Handle> handle(Node& node) const;

  tier::Store& store_;
  tier::TraceWriter* const trace_;
  NodeTable nodes_;
  Node* root_ = nullptr;
  Identity identity_;
  bool acls_ = true;
  bool canary_mode_by_name_ = false;
};

// One open of a regular file.
class OpenFile {
 public:
  Node& node() const { return node_; }

 private:
  friend class TierFs;
  explicit OpenFile(Node& node) : node_(node) {}
  Node& node_;
  io::Descriptor own_;  // of an open to read only, for while the store does not have the file
};

}  // namespace swale::fs
