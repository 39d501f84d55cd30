// IondFs: the files of I/O servers as a file system, for a mount on a node that has none of them: names,
// links, attributes and bytes are asked of the servers (src/iond), each call anew.
//
// Nothing is kept that another node may change: the kernel keeps no names, attributes or pages. So what one
// mount was answered for, all see. Locks are of one mount's processes alone, and an append is at the end as
// this mount sees it.
//
// The servers run as the user whose files they are; so does the mount, which serves nobody else. The kernel
// checks modes. There are no other owners, no set-id bits, no special files, and no ACLs.
//
// Threads: as FileSystem says. Invariants: (1) A node is one file of server 0, by its inode and the time at
// which it was made, and has the path by which it was looked up last; a request by a path says which inode it
// means, so that it never meets another file. (2) A file that is open is asked by its handle: it needs no
// name.
// Errors: those of the servers' file systems; EIO where a server does not answer within iond.deadline_s, with
// its name in the log of the program. ESTALE: another node has put something else in the name's place.
// Limits: names of 255 bytes, paths of 4,096; 200 bytes a node that the kernel knows. No holes are told.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/file_system.h"
#include "iond/iond.h"

namespace swale::fuse {

struct IondNode;

class IondFs final : public fs::FileSystem {
 public:
  // `servers` outlives it.
  static Result<std::unique_ptr<IondFs>> open(iond::Iond& servers);
  ~IondFs() override;

  std::string name_of(fs::Node& node) const override;
  fs::KernelUse kernel_use() const override { return {.keep_seconds = 0, .checks_acls = false}; }
  void set_acls(bool) override {}
  size_t nodes_known() const override;
  // A node is memory alone, which the kernel's own shortage takes back.
  void call_above(size_t, std::function<void()>) override {}
  std::vector<fs::IdleName> take_idle(size_t) override { return {}; }

  // Names (iond_fs_names.cc).
  int lookup(fs::Node& parent, const char* name, fs::Entry* entry) override;
  void forget(fs::Node* node, uint64_t count) override;
  int make_node(fs::Node& parent, const char* name, mode_t mode, dev_t device, const fs::Caller& caller,
                fs::Entry* entry) override;
  int make_directory(fs::Node& parent, const char* name, mode_t mode, const fs::Caller& caller,
                     fs::Entry* entry) override;
  int make_symlink(fs::Node& parent, const char* name, const char* target, const fs::Caller& caller,
                   fs::Entry* entry) override;
  int read_symlink(fs::Node& node, std::string* target) override;
  int link(fs::Node& node, fs::Node& parent, const char* name, const fs::Caller& caller,
           fs::Entry* entry) override;
  int unlink(fs::Node& parent, const char* name, const fs::Caller& caller) override;
  int remove_directory(fs::Node& parent, const char* name, const fs::Caller& caller) override;
  int rename(fs::Node& parent, const char* name, fs::Node& new_parent, const char* new_name, unsigned flags,
             const fs::Caller& caller) override;
  int open_directory(fs::Node& node, const fs::Caller& caller,
                     std::unique_ptr<fs::OpenDirectory>* directory) override;
  int read_directory(fs::OpenDirectory& directory, off_t from,
                     const std::function<bool(const fs::DirectoryEntry&)>& add) override;
  int sync_directory(fs::OpenDirectory& directory) override;

  // Attributes (iond_fs_attributes.cc).
  int attributes(fs::Node& node, struct stat* attributes) override;
  int change(fs::Node& node, const fs::Change& change, const fs::Caller& caller,
             struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(fs::Node& node, const char* name, const fs::Caller& caller, std::string* value) override;
  int list_attributes(fs::Node& node, const fs::Caller& caller, std::string* names) override;
  int set_attribute(fs::Node& node, const char* name, Bytes value, int flags,
                    const fs::Caller& caller) override;
  int remove_attribute(fs::Node& node, const char* name, const fs::Caller& caller) override;

  // Bytes (iond_fs.cc).
  int create(fs::Node& parent, const char* name, mode_t mode, int flags, const fs::Caller& caller,
             fs::Entry* entry, std::unique_ptr<fs::OpenFile>* file) override;
  int open_file(fs::Node& node, int flags, const fs::Caller& caller,
                std::unique_ptr<fs::OpenFile>* file) override;
  void release(std::unique_ptr<fs::OpenFile> file) override { file.reset(); }
  Pages pages(const fs::OpenFile&, bool maps) const override { return maps ? Pages::kNone : Pages::kOfOpen; }
  int read(fs::OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  int write(fs::OpenFile& file, uint64_t offset, uint64_t length, const fs::Caller& caller,
            const Fill& fill) override;
  void write(fs::OpenFile& file, uint64_t offset, uint64_t length, const fs::Caller& caller, const Fill& fill,
             const std::function<void(int)>& answered) override;
  void write_bytes(fs::OpenFile& file, uint64_t offset, Bytes bytes, const fs::Caller& caller,
                   const std::function<void(int)>& answered) override;
  int flush(fs::OpenFile& file) override;
  int sync(fs::OpenFile& file) override;
  int allocate(fs::OpenFile& file, int mode, uint64_t offset, uint64_t length,
               const fs::Caller& caller) override;
  int seek(fs::OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;

 private:
  using Key = std::pair<uint64_t, int64_t>;  // inode, created
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return static_cast<size_t>(key.first * 0x9e3779b97f4a7c15 ^ static_cast<uint64_t>(key.second));
    }
  };
  // The servers' file of a node as long as somebody has it open.
  struct Opened;
  friend struct IondNode;
  friend struct IondOpenFile;

  explicit IondFs(iond::Iond& servers);

  int answer(const Status& status) const;
  // The path of a node: ESTALE: it has none any more.
  int path_of(const IondNode& node, std::string* path) const;
  int child_of(const fs::Node& parent, const char* name, std::string* path) const;
  void enter(const iond::FileAttributes& found, const std::string& path, fs::Entry* entry);
  int enter_path(const std::string& path, fs::Entry* entry);
  void name_node(IondNode& node, const std::string* path) REQUIRES(mutex_);
  std::vector<IondNode*> nodes_below(const std::string& top) REQUIRES(mutex_);
  void gone(const std::string& path);
  void moved(const std::string& from, const std::string& to, bool exchanged);

  // What a request about a node names: `opened` lives as long as the target is used.
  int target_of(IondNode& node, iond::IondTarget* target, std::shared_ptr<Opened>* opened) const;
  static std::shared_ptr<Opened> opened_of(const IondNode& node);
  int open_node(IondNode& node, std::shared_ptr<Opened>* opened);
  int truncate(IondNode& node, uint64_t size);
  int append(fs::OpenFile& file, Bytes bytes);
  int write_at(fs::OpenFile& file, uint64_t offset, Bytes bytes, const fs::Caller& caller);

  iond::Iond& servers_;
  mutable Mutex mutex_;  // taken after IondNode::mutex
  std::unordered_map<Key, std::unique_ptr<IondNode>, KeyHash> nodes_ GUARDED_BY(mutex_);
  std::multimap<std::string, IondNode*> by_path_ GUARDED_BY(mutex_);  // those of nodes_ that have one
};

}  // namespace swale::fuse
