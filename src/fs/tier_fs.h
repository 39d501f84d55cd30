// TierFs: a POSIX file system over a tier::Store: names, attributes and directories are those of the backing
// directory, the bytes of regular files go through the store. docs/design/mount.md tells why it is so.
//
// Calls run as their callers where this process may (as_caller.h): the backing file system decides whether
// they are allowed.
//
// Threads: as FileSystem says.
// Invariants: (1) A file that was opened to be written, or that the log has bytes of, is read through the
// store; any other is read from the backing file. (2) The store's private directory and its attribute are
// neither seen nor changed. (3) Names are resolved one at a time in an open directory (beneath.h); nothing is
// changed by a name that another process may have replaced.
// Errors: those of the backing file system; EIO where the store has lost something, with the cause in the log
// of the program.
// Limits: one descriptor for each node that the kernel knows (take_idle() says which it may forget), one more
// for each file that is open or in the log.
#pragma once

#include <dirent.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/as_caller.h"
#include "fs/file_system.h"
#include "fs/node_table.h"
#include "tier/store/store.h"
#include "tier/trace/trace_writer.h"

namespace swale::fs {

// An attribute of the root: the store's counters as a JSON object. It can be read by name and is not listed,
// so that no copy takes it along.
inline constexpr const char* kStatsAttribute = "user.swale.stats";

// One open of a directory.
struct TierDirectory final : OpenDirectory {
  TierDirectory(const TierNode& of_node, DIR* from) : node(of_node), stream(from) {}
  ~TierDirectory() override { ::closedir(stream); }
  static TierDirectory& of(OpenDirectory& directory) { return static_cast<TierDirectory&>(directory); }

  const TierNode& node;
  Mutex mutex;
  DIR* const stream PT_GUARDED_BY(mutex);
  off_t at GUARDED_BY(mutex) = 0;
};

struct TierFile final : OpenFile {
  explicit TierFile(TierNode& of_node) : node(of_node) {}
  static TierFile& of(OpenFile& file) { return static_cast<TierFile&>(file); }

  TierNode& node;
  io::Descriptor own;  // of an open to read only, for while the store does not have the file
};

class TierFs final : public FileSystem {
 public:
  // The store must outlive it and have the same backing directory. `trace`: gets the requests as they come;
  // outlives it, too.
  static Result<std::unique_ptr<TierFs>> open(tier::Store& store, const std::string& backing_directory,
                                              tier::TraceWriter* trace = nullptr);
  ~TierFs() override;

  bool switches() const { return identity_.switches(); }  // calls run as their callers
  // Before the first call: all run as this process (the benchmark's comparison).
  void never_switch() { identity_.never_switch(); }
  void set_acls(bool enforced) override { acls_ = enforced; }
  // For tests: called when a directory was made, with an O_PATH descriptor of the one that it is in.
  using MadeDirectory = std::function<void(int parent, const char* name, mode_t mode)>;
  void call_after_mkdir(MadeDirectory called) { made_directory_ = std::move(called); }

  // Names (tier_fs_names.cc).
  int lookup(Node& parent, const char* name, Entry* entry) override;
  void forget(Node* node, uint64_t count) override { nodes_.forget(&TierNode::of(*node), count); }
  size_t nodes_known() const override { return nodes_.size(); }
  void call_above(size_t nodes, std::function<void()> crowded) override {
    nodes_.call_above(nodes, std::move(crowded));
  }
  std::vector<IdleName> take_idle(size_t count) override { return nodes_.take_idle(count); }
  int make_node(Node& parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                Entry* entry) override;
  int make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller,
                     Entry* entry) override;
  int make_symlink(Node& parent, const char* name, const char* target, const Caller& caller,
                   Entry* entry) override;
  int read_symlink(Node& node, std::string* target) override;
  int link(Node& node, Node& parent, const char* name, const Caller& caller, Entry* entry) override;
  int unlink(Node& parent, const char* name, const Caller& caller) override;
  int remove_directory(Node& parent, const char* name, const Caller& caller) override;
  int rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags,
             const Caller& caller) override;

  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) override;
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add) override;
  int sync_directory(OpenDirectory& directory) override;

  // Attributes (tier_fs_attributes.cc).
  int attributes(Node& node, struct stat* attributes) override;
  int change(Node& node, const Change& change, const Caller& caller, struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value) override;
  int list_attributes(Node& node, const Caller& caller, std::string* names) override;
  int set_attribute(Node& node, const char* name, Bytes value, int flags, const Caller& caller) override;
  int remove_attribute(Node& node, const char* name, const Caller& caller) override;

  // Bytes (tier_fs.cc).
  int create(Node& parent, const char* name, mode_t mode, int flags, const Caller& caller, Entry* entry,
             std::unique_ptr<OpenFile>* file) override;
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) override;
  void release(std::unique_ptr<OpenFile> file) override;
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  int write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
            const Fill& fill) override;
  void write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
             const std::function<void(int)>& answered) override;
  int flush(OpenFile& file) override;
  int sync(OpenFile& file) override;
  int allocate(OpenFile& file, int mode, uint64_t offset, uint64_t length, const Caller& caller) override;
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;

 private:
  TierFs(tier::Store& store, tier::TraceWriter* trace, Identity identity)
      : store_(store), trace_(trace), identity_(std::move(identity)) {}

  void note(tier::TraceRecord::Kind kind, const TierNode& node, uint64_t offset = 0,
            uint64_t length = 0) const {
    if (trace_ != nullptr) trace_->add(kind, node.key.inode, offset, length);
  }

  bool is_private(const TierNode& parent, std::string_view name) const;
  int enter(const TierNode& parent, const char* name, Entry* entry);
  int enter(io::Descriptor path, const TierNode& parent, const char* name, Entry* entry);
  void note_name(const TierNode& parent, const char* name);
  int attributes_of(int path, struct stat* attributes);
  static void changed(TierNode& node);  // just now
  int content_changes(TierNode& node, const Caller& caller) const;
  static void set_change_time(TierNode& node, struct stat* attributes);
  // Makes a name by `make`, as the caller, and enters what has it then.
  template <class Make>
  int make(TierNode& parent, const char* name, mode_t type, const Caller& caller, Entry* entry,
           const Make& make);
  void removed(const io::Descriptor& path);
  int open_as(TierNode& node, int flags, const Caller& caller, io::Descriptor* own) const;
  int opened(TierNode& node, int flags, io::Descriptor own, const Caller& caller,
             std::unique_ptr<OpenFile>* file);
  // As the caller; null: as this process, to take back what was changed before.
  int change_size(TierNode& node, uint64_t size, std::optional<timespec> modified, const Caller& caller);
  int change_mode(TierNode& node, mode_t mode, const Caller* caller);
  int change_owner(TierNode& node, std::optional<uid_t> user, std::optional<gid_t> group,
                   const Caller* caller);
  int change_times(TierNode& node, std::optional<timespec> accessed, std::optional<timespec> modified,
                   const Caller* caller);
  void take_back(TierNode& parent, const char* name, const io::Descriptor& made, const Caller& caller);
  int truncate(TierNode& node, uint64_t size, const Caller& caller);
  static int open_to_allocate(TierNode& node, io::Descriptor* fd);
  int writable(TierFile& file, uint64_t offset, uint64_t length, const Caller& caller,
               tier::Store::Handle* handle) const;
  int answer(const Status& status) const;

  // Opens of a node. hold: with a handle of the store if `wanted`, or if the store has the file.
  int hold(TierNode& node, bool wanted);
  void let_go(TierNode& node);
  std::optional<tier::Store::Handle> handle(TierNode& node) const;

  tier::Store& store_;
  tier::TraceWriter* const trace_;
  NodeTable nodes_;
  TierNode* tier_root_ = nullptr;
  Identity identity_;
  bool acls_ = true;
  MadeDirectory made_directory_;
};

}  // namespace swale::fs
