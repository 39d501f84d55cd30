// FileSystem: what a mount asks of a file system, and what the tests' random calls ask of it without a
// kernel. TierFs is one.
//
// It knows no kernel: src/fuse hands on the kernel's requests. Calls answer 0 or an errno; output parameters
// are set only on success. Each Entry holds one lookup of its node until forget; each OpenFile lasts until
// release. Nodes, files and directories are those of the file system that gave them, and of no other.
//
// A call with a Caller is made for that process: whether it is allowed is decided for it. Calls without one
// need no permission, or that of an open file, which its opening has checked.
//
// Threads: all calls are thread-safe, but two things must not run concurrently, which the kernel's inode
// locks see to: calls that change a file's size (truncate, allocate) with its writes, and calls that make or
// remove the same name.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "fs/as_caller.h"
#include "fs/file_locks.h"

namespace swale::fs {

// A file, directory or link that the kernel knows.
struct Node {
 protected:
  Node() = default;
  ~Node() = default;
};

struct Entry {
  Node* node = nullptr;
  struct stat attributes = {};
};

// A name that the kernel may forget. `parent` may be gone: it is but a number.
struct IdleName {
  const Node* parent = nullptr;
  std::string name;
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

// A directory's names, as they are read one after the other.
struct DirectoryEntry {
  std::string name;
  uint64_t inode = 0;
  mode_t type = 0;  // S_IFMT
  off_t next = 0;   // where the reading goes on behind it
};

// One open of a regular file.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // The kernel keeps none of its pages, but for mappings. Set by the mount before the file's first request.
  bool direct = false;
  // As it was opened, to write; set then, too. Synchronous: with O_SYNC or O_DSYNC.
  bool appends = false, synchronous = false;

 protected:
  OpenFile() = default;
};

// One open of a directory. Its place is shared by those that read it at a time.
class OpenDirectory {
 public:
  virtual ~OpenDirectory() = default;
  OpenDirectory(const OpenDirectory&) = delete;
  OpenDirectory& operator=(const OpenDirectory&) = delete;

 protected:
  OpenDirectory() = default;
};

// What the kernel may keep of a file system, and enforce for it.
struct KernelUse {
  double keep_seconds = 3600;  // names and attributes
  bool checks_acls = true;     // if it can: set_acls
};

// What programs provoke all the time: names that are not there, or are; what only some file systems can.
bool is_usual_refusal(int error_number);

class FileSystem {
 public:
  // Puts the next bytes of a write where they belong; is called until all are there.
  using Fill = std::function<Status(MutableBytes)>;

  // What the kernel keeps of an open file's pages.
  enum class Pages {
    kNone,    // those of mappings alone: reads and writes come here
    kOfOpen,  // the open drops what is there of earlier ones
    kKept,    // earlier ones, too
  };

  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  Node* root() const { return root_; }
  // For messages.
  virtual std::string name_of(Node&) const { return "a file"; }
  // By default nobody but one mount changes the files.
  virtual KernelUse kernel_use() const { return {}; }
  // Whether the kernel above enforces ACLs; without, they are EOPNOTSUPP, because nobody would keep what they
  // promise. By default it does.
  virtual void set_acls(bool enforced) = 0;

  // Nodes that the kernel knows. `crowded` is called by each lookup that finds more than `nodes`; it may not
  // call back. take_idle: at most `count` names that it may forget.
  virtual size_t nodes_known() const = 0;
  virtual void call_above(size_t nodes, std::function<void()> crowded) = 0;
  virtual std::vector<IdleName> take_idle(size_t count) = 0;

  // Names.
  virtual int lookup(Node& parent, const char* name, Entry* entry) = 0;
  virtual void forget(Node* node, uint64_t count) = 0;
  virtual int make_node(Node& parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                        Entry* entry) = 0;
  virtual int make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller,
                             Entry* entry) = 0;
  virtual int make_symlink(Node& parent, const char* name, const char* target, const Caller& caller,
                           Entry* entry) = 0;
  virtual int read_symlink(Node& node, std::string* target) = 0;
  virtual int link(Node& node, Node& parent, const char* name, const Caller& caller, Entry* entry) = 0;
  virtual int unlink(Node& parent, const char* name, const Caller& caller) = 0;
  virtual int remove_directory(Node& parent, const char* name, const Caller& caller) = 0;
  // flags: 0, RENAME_NOREPLACE or RENAME_EXCHANGE
  virtual int rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags,
                     const Caller& caller) = 0;

  virtual int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) = 0;
  // Names from `from` on (0, or some entry's `next`) until `add` answers false: that one was not taken.
  virtual int read_directory(OpenDirectory& directory, off_t from,
                             const std::function<bool(const DirectoryEntry&)>& add) = 0;
  virtual int sync_directory(OpenDirectory& directory) = 0;

  // Attributes.
  virtual int attributes(Node& node, struct stat* attributes) = 0;
  virtual int change(Node& node, const Change& change, const Caller& caller, struct stat* attributes) = 0;
  virtual int statistics(struct statvfs* statistics) = 0;
  virtual int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value) = 0;
  virtual int list_attributes(Node& node, const Caller& caller,
                              std::string* names) = 0;  // each ends with a 0
  virtual int set_attribute(Node& node, const char* name, Bytes value, int flags, const Caller& caller) = 0;
  virtual int remove_attribute(Node& node, const char* name, const Caller& caller) = 0;

  // Bytes.
  virtual int create(Node& parent, const char* name, mode_t mode, int flags, const Caller& caller,
                     Entry* entry, std::unique_ptr<OpenFile>* file) = 0;
  virtual int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) = 0;
  virtual void release(std::unique_ptr<OpenFile> file) = 0;
  // `maps`: the kernel can map files of whose pages it keeps none; writes to those then drop the pages that
  // other opens have left.
  virtual Pages pages(const OpenFile& file, bool maps) const {
    static_cast<void>(file), static_cast<void>(maps);
    return Pages::kKept;
  }
  // What drops the kernel's pages of a file: it returns when they are gone, and reads under way have ended.
  // Empty: there is no kernel any more.
  using DropPages = std::function<void(Node&)>;
  virtual void drop_pages_by(DropPages drop) { static_cast<void>(drop); }
  // Whether a call about this file may wait for that: then it must not take a thread that the kernel's reads
  // need. Null: a call about names. `mode`: that the file is to get.
  virtual bool may_drop_pages(const Node* node, std::optional<mode_t> mode = {}) const {
    static_cast<void>(node), static_cast<void>(mode);
    return false;
  }
  // The kernel reads pages of an open that is `direct`: of a mapping, or of sendfile. Before the read itself.
  virtual void note_page_read(OpenFile& file) { static_cast<void>(file); }
  virtual int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) = 0;
  // Gives the same bytes from where they stand in memory, where they stay during that call. False, and
  // nothing was given: read() has them, or says what is wrong.
  using Give = std::function<void(std::span<const Bytes>)>;
  virtual bool read_in_place(OpenFile&, uint64_t, uint64_t, const Give&) { return false; }
  // Changes of the content need no permission but the handle's. The caller matters for set-id bits, which
  // root's changes leave.
  virtual int write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
                    const Fill& fill) = 0;
  // The same; `answered` gets the errno, and afterwards this thread may have more to do.
  virtual void write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
                     const std::function<void(int)>& answered) = 0;
  // The same of bytes that are in memory.
  virtual void write_bytes(OpenFile& file, uint64_t offset, Bytes bytes, const Caller& caller,
                           const std::function<void(int)>& answered);
  virtual int flush(OpenFile& file) = 0;  // at each close of a descriptor: tells of what was lost
  virtual int sync(OpenFile& file) = 0;
  virtual int allocate(OpenFile& file, int mode, uint64_t offset, uint64_t length, const Caller& caller) = 0;
  virtual int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) = 0;  // SEEK_DATA, SEEK_HOLE
  // Where locks are not the kernel's own. Null: they are. The same for as long as this lives.
  virtual FileLocks* locks() { return nullptr; }
  // ioctl: what a program says to this file system alone. `out` gets the answer.
  virtual int command(OpenFile&, unsigned long, Bytes, std::string*) { return ENOTTY; }
  // By read and write. Fewer bytes if `from` ends, or where a call fails behind the first ones.
  int copy(OpenFile& from, uint64_t from_offset, OpenFile& to, uint64_t to_offset, uint64_t length,
           const Caller& caller, uint64_t* copied);

 protected:
  FileSystem() = default;

  Node* root_ = nullptr;
};

}  // namespace swale::fs
