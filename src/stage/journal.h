// Journal: what a stage has done, so that the same command can go on after a kill: the pieces of large files
// that are whole (read back, and for "out" durable), and the files that have their names.
//
// Nothing here is the truth. An entry is believed only if the source and the destination still are what they
// were; a lost or damaged journal costs work that is done again. So records are not synced one by one: each
// was written after what it says became true, and a torn end is cut.
//
//   record := began | piece | done                                              store/record_log.h
//   began  := (path: sized)*                       parts that may be there
//   piece  := path: sized | source | device u64 | inode u64 (of the part) | offset u64 | bytes u64 | crc u32
//   done   := path: sized | source | copy: identity | crc u32
//   source, identity := device u64 | inode u64 | size u64 | modified i64 | changed i64     nanoseconds
//   path   := of the destination
//
// Threads: all calls after open.
// Errors: a journal that cannot be written ends, with one remark; the stage goes on without it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "stage/file_identity.h"
#include "store/record_log.h"

namespace swale::stage {

// DO NOT CHANGE THESE VALUES: they stand in journals.
enum class JournalRecord : uint16_t { kBegan = 1, kPiece = 2, kDone = 3 };
inline constexpr uint16_t kJournalKind = 0x5353;  // of LogIdentity

struct PieceDone {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;
};
struct Unfinished {
  FileIdentity source;
  uint64_t device = 0, inode = 0;  // of the part
  std::vector<PieceDone> pieces;
};
struct Finished {
  FileIdentity source;
  FileIdentity copy;
  uint32_t crc = 0;
};

class Journal {
 public:
  // Reads what an earlier run of the same command (`owner`) has left, and begins a new log with it. One of
  // another command is left out, with a remark.
  static Result<std::unique_ptr<Journal>> open(io::Device& device, const std::string& path, uint64_t owner);

  // What the earlier run says; unchanged by this one.
  const Unfinished* unfinished(const std::string& destination) const;
  const Finished* finished(const std::string& destination) const;
  // Destinations whose parts may be there.
  const std::unordered_set<std::string>& begun() const { return begun_; }

  void begin(std::span<const std::string* const> destinations) EXCLUDES(mutex_);
  void add(const std::string& destination, const FileIdentity& source, const struct stat& part,
           const PieceDone& piece) EXCLUDES(mutex_);
  void add(const std::string& destination, const Finished& file) EXCLUDES(mutex_);
  // "": it could be written.
  std::string remark() const EXCLUDES(mutex_);
  Status remove();

 private:
  Journal(io::Device& device, std::string path, uint64_t owner);
  Status read();
  Status take(const store::Record& record);
  Status begin_anew();
  void append(JournalRecord kind, const std::string& payload) REQUIRES(mutex_);

  io::Device& device_;
  const std::string path_;
  const store::LogIdentity identity_;
  std::unordered_map<std::string, Unfinished> unfinished_;
  std::unordered_map<std::string, Finished> finished_;
  std::unordered_set<std::string> begun_;

  mutable Mutex mutex_;
  store::RecordLog log_ GUARDED_BY(mutex_);
  uint64_t sequence_ GUARDED_BY(mutex_) = 0;
  std::string remark_ GUARDED_BY(mutex_);
};

}  // namespace swale::stage
