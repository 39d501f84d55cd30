// Device and File: the operating system's storage as two small interfaces, so that a faulty disk is a
// subclass.
//
// A Device is a file system rooted somewhere; paths are plain strings with '/' separators. Implementations:
// PosixDevice (production), MemoryDevice (tests and simulation; can forget everything unsynced), FaultDevice
// (wraps another and fails, tears, corrupts or delays the n-th call).
// Beside them, LimitedDevice makes writes as slow as a store of a given bandwidth.
//
// Threads: all calls on a Device are thread-safe. Calls on one File are thread-safe when their byte ranges do
// not overlap.
// Errors: every failure names the path, the offset and the operating system's reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::io {

struct ReadRequest {
  uint64_t offset = 0;
  MutableBytes out;  // where the bytes go; owned by the caller
  size_t got = 0;    // bytes read; less than out.size() only at the end of the file
  Status status;
};

class File {
 public:
  virtual ~File() = default;  // closes; unsynced bytes may be lost

  // Reads up to out.size() bytes at `offset`; fewer only at the end of the file. Interrupted and short system
  // calls are continued inside.
  virtual Result<size_t> pread(uint64_t offset, MutableBytes out) = 0;

  // Reads many ranges, in parallel where the implementation can. Each request carries its own status.
  virtual void read_many(std::span<ReadRequest> requests);

  // Writes all of `data` at `offset`, or fails; after a failure the range's content is undefined.
  virtual Status pwrite(uint64_t offset, Bytes data) = 0;

  // Makes data and size durable (fdatasync). After a failure, nothing written since the last success is
  // promised: a later success does not repair it.
  virtual Status sync() = 0;

  virtual Result<uint64_t> size() = 0;
  virtual Status truncate(uint64_t size) = 0;

  // Advice, for a log that is written in large aligned pieces: from now on writes (and reads) whose offset,
  // length and memory are multiples of 4,096 may bypass the page cache. A file system that cannot do so goes
  // on as before.
  virtual void prefer_direct() {}

  // What a read's offset, length and memory must be multiples of to bypass the page cache; 0: none does.
  virtual size_t direct_alignment() const { return 0; }

  // Advice: writes up to `end` will follow. Makes room for them and for some more on the device, so that few of them
  // have to extend the file: in proportion to `end` and to what is free. The file's size may go beyond `end` at once;
  // close the file after a truncate. Announce every write to such a file. Nothing is promised.
  virtual void reserve(uint64_t end) { static_cast<void>(end); }

  // Gives back the room that no announced write needs, of this file and the others of its device. True: a write that
  // found no space may find it now. pwrite and the queues do so, once a write, before they report kNoSpace.
  virtual bool give_back() { return false; }

  // Advice: these bytes are needed no longer. Afterwards they read as they were or as zeros; the size stays, and so do all
  // other bytes. Gives their room back to the device where the file system can. Not durable before the next sync.
  virtual void discard(uint64_t offset, uint64_t bytes) {
    static_cast<void>(offset), static_cast<void>(bytes);
  }

  // Where bytes that may not be zeros come next, at `offset` or after it; the end of the file (or beyond) if nothing but a
  // hole follows. Advice, for searches in files that somebody has made long and empty: a file system that knows of no
  // holes answers `offset`.
  virtual uint64_t next_data(uint64_t offset) { return offset; }

  // Reads all of `out` if all of it is in memory, and then does not wait for the device. False: it is not, or this file
  // cannot tell; then `out` is undefined.
  virtual bool read_resident(uint64_t offset, MutableBytes out) {
    static_cast<void>(offset), static_cast<void>(out);
    return false;
  }

  virtual const std::string& path() const = 0;

  // The operating system's descriptor, for who maps the file (mapping.h); -1 if it is none of the operating system's.
  virtual int descriptor() const { return -1; }

  // Tests: what is said to be in memory instead of what is. Sets pages[i] for the page of 4,096 bytes at offset + i pages.
  using Residency = std::function<void(uint64_t offset, std::span<unsigned char> pages)>;
  virtual Residency residency() const { return {}; }
};

// Reads exactly out.size() bytes; a shorter file is kCorruption that names the file, the offset and both
// lengths.
Status read_exactly(File& file, uint64_t offset, MutableBytes out);

// The least offset from which on, to `end`, there is nothing but a hole; `end` if there is none. 40 system calls for a
// terabyte.
uint64_t data_end(File& file, uint64_t end);

enum class OpenMode {
  kRead,          // must exist
  kReadWrite,     // must exist
  kOpenOrCreate,  // read-write
  kCreate,        // read-write, must not exist (O_EXCL): kAlreadyExists otherwise
};

class IoQueue;

class Device {
 public:
  virtual ~Device() = default;

  // For up to `depth` operations in flight on files of this device, which must outlive the queue
  // (io_queue.h).
  virtual Result<std::unique_ptr<IoQueue>> make_queue(size_t depth);

  // The same for few small reads at a time of files like `file`: what is quickest for them.
  virtual Result<std::unique_ptr<IoQueue>> make_read_queue(size_t depth, const File& file);

  // A device like this one that holds on to the directory as it is now. Paths that are, by their text, `directory`
  // or below it ("directory/...") lead to the held directory even after it was renamed or removed, or another one
  // was made at its path. All other paths mean what they mean to this device. Messages and File::path keep the
  // caller's text. Once the held directory is removed, calls below it return kNotFound. Files and queues of both
  // devices mix. The new device may outlive this one.
  // Limits: the held directory itself is not renamed or removed through the new device. Links and ".." are followed
  // as ever, so that "directory/../x" is in whatever directory holds it at the time.
  virtual Result<std::unique_ptr<Device>> anchored(const std::string& directory) = 0;

  // Only regular files are opened: kIoError for a directory, and for a FIFO, socket or device, which may block.
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  virtual Status make_directory(const std::string& path) = 0;                 // kAlreadyExists if it is there
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to` atomically
  // Gives a file another name unless that name is taken: kAlreadyExists, and nothing changed. Of several that try the
  // same name at a time one succeeds. A crash may leave the file under both names.
  virtual Status rename_new(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;  // kNotFound if it is not there
  virtual Status sync_directory(
      const std::string& path) = 0;  // makes creations, renames and removals in it durable
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  // names, sorted
  virtual Result<bool> exists(const std::string& path) = 0;
};

// The whole content of a small file; kResourceExhausted above `bytes_limit`.
Result<std::string> read_file(Device& device, const std::string& path, size_t bytes_limit);

// Replaces `path` by `content` atomically and durably: temporary beside it, sync, rename, sync of the
// directory. After a crash at any point, the path holds the old content or the new, whole.
Status replace_file(Device& device, const std::string& path, Bytes content);

// make_directory for the path and its missing parents, each made durable by a sync of the directory it is in.
// What is there already is left as it is, and is not an error.
Status make_directories(Device& device, const std::string& path);

// The directory that a path's last component is in: "/a/b" -> "/a", "/a" -> "/", "a" -> ".".
std::string parent_directory(const std::string& path);

}  // namespace swale::io
