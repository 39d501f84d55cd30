// Device and File: the operating system's storage as two small interfaces, so that a faulty disk is a
// subclass.
//
// A Device is a file system rooted somewhere; paths are plain strings with '/' separators. Implementations:
// PosixDevice (production), MemoryDevice (tests and simulation; can forget everything unsynced), FaultDevice
// (wraps another and fails, tears, corrupts or delays the n-th call).
// LimitedDevice makes writes as slow as a store of a given bandwidth; VirtualDevice takes virtual time.
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

  // Reads up to out.size() bytes at `offset`; fewer only at the end of the file. Continues interrupted and
  // short system calls.
  virtual Result<size_t> pread(uint64_t offset, MutableBytes out) = 0;

  // Reads many ranges, in parallel where the implementation can. Each request carries its own status.
  virtual void read_many(std::span<ReadRequest> requests);

  // Writes all of `data` at `offset`, or fails; after a failure the range's content is undefined.
  virtual Status pwrite(uint64_t offset, Bytes data) = 0;

  // Makes data and size durable (fdatasync). After a failure, no byte written since the last success is
  // guaranteed: a later success does not repair the loss.
  virtual Status sync() = 0;

  virtual Result<uint64_t> size() = 0;
  virtual Status truncate(uint64_t size) = 0;

  // Advice, for a log that is written in large aligned pieces: from now on writes (and reads) whose offset,
  // length and memory are multiples of 4,096 may bypass the page cache. No effect on a file system that
  // cannot do so.
  virtual void prefer_direct() {}

  // A read bypasses the page cache if its offset, length and memory are multiples of this; 0: none does.
  virtual size_t direct_alignment() const { return 0; }

  // Advice: writes up to `end` will follow. Allocates space for them and for some more (in proportion to
  // `end` and to the free space), so that few of them must extend the file. The file's size may exceed `end`
  // at once: before you close the file, truncate it. Announce every write to such a file. Nothing is
  // guaranteed.
  virtual void reserve(uint64_t end) { static_cast<void>(end); }

  // Frees allocated space that no announced write needs, of all files of this device. True: a write that
  // found no space may find it now. pwrite and the queues call this once per write before they report
  // kNoSpace.
  virtual bool give_back() { return false; }

  // Advice: these bytes are no longer needed. Afterwards they read unchanged or as zeros; the size and all
  // other bytes do not change. Frees their space where the file system can. Not durable before the next sync.
  virtual void discard(uint64_t offset, uint64_t bytes) {
    static_cast<void>(offset), static_cast<void>(bytes);
  }

  // The first place at or after `offset` whose bytes may differ from zero; the end of the file (or beyond) if
  // only a hole follows. For searches in long, mostly empty files. Only a hint: a file system that does not
  // track holes returns `offset`.
  virtual uint64_t next_data(uint64_t offset) { return offset; }

  // Reads all of `out` if the whole range is in memory, without waiting for the device. False: it is not, or
  // this file cannot tell; then `out` is undefined.
  virtual bool read_resident(uint64_t offset, MutableBytes out) {
    static_cast<void>(offset), static_cast<void>(out);
    return false;
  }

  // Advice: these bytes will be read soon. Starts their way into memory, and does not wait for it.
  virtual void announce(uint64_t offset, uint64_t bytes) {
    static_cast<void>(offset), static_cast<void>(bytes);
  }

  virtual const std::string& path() const = 0;

  // The operating system's descriptor, for mapping the file (mapping.h); -1 if the file has none.
  virtual int descriptor() const { return -1; }

  // For tests: decides which pages count as in memory. Sets pages[i] for the page of 4,096 bytes at offset +
  // i pages.
  using Residency = std::function<void(uint64_t offset, std::span<unsigned char> pages)>;
  virtual Residency residency() const { return {}; }
};

// Reads exactly out.size() bytes. A shorter file is kCorruption; the message names the file, the offset and
// both lengths.
Status read_exactly(File& file, uint64_t offset, MutableBytes out);

// The smallest offset such that everything from it to `end` is a hole; `end` if there is none. 40 system
// calls for a terabyte.
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

  // A queue for up to `depth` operations in flight on files of this device. The device must outlive it
  // (io_queue.h).
  virtual Result<std::unique_ptr<IoQueue>> make_queue(size_t depth);

  // The quickest queue for a few small reads at a time from files like `file`.
  virtual Result<std::unique_ptr<IoQueue>> make_read_queue(size_t depth, const File& file);

  // A device like this one that keeps `directory` open as it is now. A path whose text is `directory` or
  // begins with "directory/" leads to that directory even after it was renamed or removed, or another one was
  // created at its path. All other paths mean the same as for this device. Messages and File::path keep the
  // caller's text. After the directory is removed, calls below it return kNotFound. Files and queues of both
  // devices work together. The new device may outlive this one.
  // Limits: do not rename or remove the directory itself through the new device. Links and ".." are followed
  // as usual: "directory/../x" is in whatever directory contains `directory` at the time.
  virtual Result<std::unique_ptr<Device>> anchored(const std::string& directory) = 0;

  // As anchored, for a directory that only this process's user may use: it and each file that is opened below
  // it must be this user's and closed to all others, at each opening. New ones are made so, whatever the
  // umask; an empty directory is closed. No symbolic link is followed. kInvalidArgument names what is loose
  // or another user's, and what to do. A device without users takes it as anchored.
  virtual Result<std::unique_ptr<Device>> anchored_private(const std::string& directory);

  // Only regular files are opened: kIoError for a directory, and for a FIFO, socket or device, which may
  // block.
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  virtual Status make_directory(const std::string& path) = 0;                 // kAlreadyExists if it exists
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to` atomically
  // Renames a file unless the new name is taken: kAlreadyExists, and nothing changed. If several callers try
  // the same name concurrently, one succeeds. A crash may leave the file under both names.
  virtual Status rename_new(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;  // kNotFound if it does not exist
  virtual Status sync_directory(
      const std::string& path) = 0;  // makes creations, renames and removals in it durable
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  // names, sorted
  virtual Result<bool> exists(const std::string& path) = 0;

  // False: to look this path up would wait for storage. True: it would not, or the device cannot tell.
  virtual bool knows(const std::string& path) { return static_cast<void>(path), true; }
};

// The whole content of a small file; kResourceExhausted above `bytes_limit`.
Result<std::string> read_file(Device& device, const std::string& path, size_t bytes_limit);

// Replaces `path` by `content` atomically and durably: temporary file in the same directory, sync, rename,
// sync of the directory. After a crash at any point, the path has either the complete old content or the new.
Status replace_file(Device& device, const std::string& path, Bytes content);

// Makes the directory and its missing parents, and makes each durable by a sync of its parent. A directory
// that exists already stays as it is and is no error. Its parent is synced too, because whoever made it may
// have been killed before that; if this fails there is a warning.
Status make_directories(Device& device, const std::string& path);

// The directory that a path's last component is in: "/a/b" -> "/a", "/a" -> "/", "a" -> ".".
std::string parent_directory(const std::string& path);

}  // namespace swale::io
