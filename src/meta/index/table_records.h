// TableRecords: a shard's part in a LoggedTable (shard.h): the records of its changes in the shard's groups,
// and what a checkpoint must keep of them, so that the log can go.
//
//   the table = the records of a file, as of one group (the manifest names the file; rewritten now and then)
//             + the tail: records of durable groups since then (each checkpoint's snapshot has them)
//             + records of the groups after that snapshot (in the logs)
//
// A checkpoint rewrites the file when the tail is a quarter of it, so that it writes little for a large table
// that hardly changes. When the tail is twice as long as all that a checkpoint writes, one is wanted: so the
// length of the log, and the time to read it, are bounded by what the server has.
//
// Threads: none of its own. Errors: replay answers kCorruption; std::bad_alloc leaves everything as it was.
// Limits: the tail and, while it is written, the file are in memory.
#pragma once

#include <cstdint>
#include <string>

#include "meta/index/shard.h"
#include "meta/index/snapshot.h"

namespace swale::meta {

class TableRecords {
 public:
  TableRecords(LoggedTable* table, uint64_t bytes_min) : table_(table), bytes_min_(bytes_min) {}

  // Joins `records`, those of a group, whole or not at all.
  static void join(Bytes record, std::string* records);

  // A commit of all that the table has changed begins: `records` of its group. Then it is durable, or
  // everything that is not durable is taken back.
  void begin_commit(Bytes records);
  void durable(Bytes records) noexcept;
  void take_back() noexcept;

  // Recovery: the file, then the tail of a snapshot, then groups. Counts records.
  Status replay_file(io::Device& device, const std::string& path, uint32_t shard, const ManifestLog& file);
  Status replay(Bytes records, const std::string& where);
  uint64_t replayed() const { return replayed_; }

  // Checkpoints. `written_bytes`: what one would write, without the file.
  bool wants_checkpoint(uint64_t written_bytes);
  // One was wanted, and the tail has become twice as long without it.
  bool overdue() const { return wanted_bytes_ != 0 && tail_.size() >= 2 * wanted_bytes_; }
  bool wants_file() const { return table_ != nullptr && tail_.size() > file_.bytes / 4; }
  std::string encode_file(uint32_t shard, uint64_t owner) const;
  // A manifest names `file`, which has the first `tail_bytes` of the tail.
  void filed(const ManifestLog& file, size_t tail_bytes, bool committing) noexcept;
  void checkpointed() { wanted_bytes_ = asked_bytes_ = 0; }

  const std::string& tail() const { return tail_; }
  uint64_t memory_bytes() const { return tail_.capacity(); }
  const ManifestLog& file() const { return file_; }

 private:
  LoggedTable* const table_;  // null: none, and no records
  const uint64_t bytes_min_;
  std::string tail_;
  ManifestLog file_;    // number 0: none
  size_t changes_ = 0;  // of the table that the commit under way covers
  // Of the tail when a checkpoint was wanted first and last since the last one; 0: not yet.
  uint64_t wanted_bytes_ = 0, asked_bytes_ = 0;
  uint64_t replayed_ = 0;
};

}  // namespace swale::meta
