// FileCopy: one file on its way: the open source, and the part beside the destination that gets its bytes.
//
//   open ─► copy (pieces, by several threads) ─► settle ─► sync ─► read_back (the same pieces) ─► publish
//
// Invariants: (1) the destination's name never leads to a part: publish renames, after everything before it
//   has succeeded; (2) a checksum is of the bytes as they were read from the source, and read_back reads the
//   part anew: past the page cache, or after its pages were dropped, where the file system can; (3) a source
//   that is not what it was when the stage was planned fails the copy.
// Threads: copy and read_back of different pieces at the same time; the other calls alone.
// Errors: name the path, the offset and the reason. kAborted: the stage was told to stop.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "base/mutex.h"
#include "io/device.h"
#include "stage/plan.h"

namespace swale::stage {

// What copies have in common. All outlives them.
struct CopyPlace {
  const StageOptions& options;
  const Root& source;
  const Root& destination;
  io::Device& device;  // of the destination
  const std::atomic<bool>& stop;
  std::atomic<uint64_t>& bytes_copied;

  bool durable() const { return options.direction == Direction::kOut; }
};

class FileCopy {
 public:
  // An empty part. Whatever has its name is removed first.
  static Result<std::unique_ptr<FileCopy>> begin(const CopyPlace& place, const Entry& entry);
  // The part that an earlier run has left, if it is that one; none: begin.
  static Result<std::unique_ptr<FileCopy>> go_on(const CopyPlace& place, const Entry& entry, uint64_t device,
                                                 uint64_t inode);

  // Bytes of the source to the part, and their checksum; holes stay holes.
  Result<uint32_t> copy(uint64_t offset, uint64_t bytes, Buffer& buffer);
  // Mode, times and attributes; the source is still what it was; the content's checksum is the one demanded.
  Status settle(uint32_t crc);
  Status sync() { return out_->sync(); }
  // Reads these bytes of the part: they have this checksum.
  Status read_back(uint64_t offset, uint64_t bytes, uint32_t crc, Buffer& buffer);
  // Gives it its name. What it is then.
  Result<FileIdentity> publish();
  // Removes the part: its space is free again.
  void discard();

  const Entry& entry() const { return entry_; }
  io::File& out() { return *out_; }
  const struct stat& part() const { return part_; }

 private:
  FileCopy(const CopyPlace& place, const Entry& entry)
      : place_(place), entry_(entry), part_path_(part_path(entry.destination)) {}
  Status open_source();
  Status check_source() const;
  Status open_part(std::unique_ptr<io::File> out);
  uint64_t end_of_data(uint64_t at) EXCLUDES(known_mutex_);
  Status copy_data(uint64_t at, uint64_t bytes, Buffer& buffer, uint32_t* crc);
  bool is_written_direct() const;
  void allocate(uint64_t at, uint64_t bytes);
  void drop_pages();

  const CopyPlace& place_;
  const Entry& entry_;
  const std::string part_path_;
  io::Descriptor source_;
  Mutex known_mutex_;
  // Of the source: all of it is data. A source that changes fails the copy.
  uint64_t known_data_ GUARDED_BY(known_mutex_) = 0, known_data_end_ GUARDED_BY(known_mutex_) = 0;
  std::unique_ptr<io::File> out_;
  io::Descriptor part_fd_;  // of the same file, for what io::File does not do
  struct stat part_ = {};
};

Status stage_was_stopped(const std::string& path);  // kAborted

// A symbolic link, in the same way.
Status copy_link(const CopyPlace& place, const Entry& entry);

}  // namespace swale::stage
