// Backing: the directory under a job's files, as those who read and drain need it: a Device, and where the
// file of an id is in it.
//
// Threads: one at a time, unless the implementation says more.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "fs/node/files_log.h"
#include "io/device.h"
#include "meta/index/types.h"

namespace swale::fs {

// What a file is now: by its descriptor, so that no name can lie.
Result<Stamp> stamp_of(io::File& file);
Stamp stamp_of(const struct stat& found);
Status dress_as(io::File& file, io::File* replaced);
// Advice: the disk writes this range while the next ones are copied; a sync then waits for less.
void start_writeback(io::File& file, uint64_t offset, uint64_t bytes);
// Writes bytes of the logs, and reads them again into the same buffer. kCorruption: they are others. Zeros of
// kHoleBytes, at multiples of that, become a hole; who writes the file makes it as long as it is to be.
inline constexpr uint64_t kHoleBytes = 64 * kKiB;
Status write_checked(io::File& out, uint64_t offset, MutableBytes bytes);
// Of names alone, so that it stays beneath where it begins: the device follows no link.
bool is_of_names(std::string_view path);

class Backing {
 public:
  // `root`: the directory's path; all paths that are used begin with it. `device`: follows no link below it
  // (PosixOptions::Links::kNone, anchored at `root`).
  Backing(io::Device& device, std::string root) : device_(device), root_(std::move(root)) {}
  virtual ~Backing() = default;
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  io::Device& device() const { return device_; }
  const std::string& root() const { return root_; }

  // The path, below the root, of the name that leads to the file; names without "..". kNotFound: none does,
  // and nobody has the file open. kBusy: none does, and somebody has.
  virtual Result<std::string> path_of(const meta::FileId& file) = 0;
  // For devices whose files have no descriptor.
  virtual Result<Stamp> stamp(io::File& file) { return stamp_of(file); }
  // Gives what a drain has written of a file, before it is synced, what it has beside its bytes. By default
  // that of the file that it is to replace (null: none): mode, and owner if this process may.
  virtual Status dress(const meta::FileId& file, io::File& out, io::File* replaced) {
    static_cast<void>(file);
    return dress_as(out, replaced);
  }
  // The same again if that has changed since: true.
  virtual Result<bool> dress_again(const meta::FileId&, io::File&) { return false; }

 private:
  io::Device& device_;
  const std::string root_;
};

}  // namespace swale::fs
