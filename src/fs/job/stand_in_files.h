// StandInFiles: what calls of names ask of the plain files that stand in for files of a tree which is mounted
// nowhere (docs/design/preload.md, "Without a mount"): StandIns on one node, SharedStandIns on several.
//
// Threads: thread-safe. Errors: errnos.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "base/status.h"
#include "fs/file_system.h"
#include "io/descriptor.h"

namespace swale::fs {

class StandInFiles {
 public:
  virtual ~StandInFiles() = default;
  StandInFiles(const StandInFiles&) = delete;
  StandInFiles& operator=(const StandInFiles&) = delete;

  // As the kernel's open; of a file that is there, whose mode allows it.
  virtual int open_file(Node& node, int flags, const Caller& caller, io::Descriptor* out) = 0;
  // The same of a file that has just been made, whose maker has it open to write.
  virtual int open_made(Node& node, std::unique_ptr<OpenFile> writer, int flags, const Caller& caller,
                        io::Descriptor* out) = 0;
  // What the tree says of a file, as its stand-in has it.
  virtual int describe(Node& node, struct stat* found) = 0;
  virtual bool is_there(Node& node) = 0;  // the backing has it as it is
  virtual int take_in(Node& node) = 0;
  virtual int sync(Node& node) = 0;
  // At least some bytes of it, and the file's length.
  static constexpr uint64_t kAppended = ~uint64_t{0};  // an offset: what the tree has not, and is behind it
  virtual int sync_part(Node& node, uint64_t, uint64_t) { return sync(node); }
  // Takes it in, and has none any more. EBUSY: somebody has it open.
  virtual int end(Node& node) = 0;
  virtual int truncate(Node& node, uint64_t size, const Caller& caller) = 0;
  // Times that were set in the tree.
  virtual int set_times(Node& node, const timespec times[2]) = 0;
  // Locks of ranges (fcntl), of several nodes. `inode`: of the plain file that the program has. On one node
  // the kernel's hold.
  virtual int lock(Node&, ino_t, const FileLock&) { return ENOLCK; }
  virtual int find_lock(Node&, const FileLock&, FileLock*) { return ENOLCK; }
  // Its node, with one lookup; null: there is none by that inode.
  virtual Node* find(ino_t inode) = 0;

  // All of it; the first failure. What nobody has open stands no more.
  virtual Status take_all() noexcept = 0;
  // The same of all nodes.
  virtual Status take_all_everywhere() noexcept { return take_all(); }
  // Takes nothing in by itself any more.
  virtual void rest() noexcept = 0;
  virtual size_t count() = 0;

 protected:
  StandInFiles() = default;
};

}  // namespace swale::fs
