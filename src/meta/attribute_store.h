// AttributeStore: an AttributeTable and its log. Changes join the open group; the rim commits groups as it does those of a
// Shard (shard.h): next_commit, Work::run on any thread (one write, one sync), finish. An answer may leave when
// covering_group(), as it was when the answer was made, is durable: also an answer that changed nothing, because it may
// show changes that are not durable yet.
//
// Opening gives the newest log another name, reads it, writes what it says to a new file as one snapshot, and gives that file
// its name only when it is durable. The name holds the number of this job, one above all that are there; of two processes
// that open at a time one is refused. Logs of earlier jobs are removed then. A commit proves after its sync that its log
// still has its name: a store that another job has opened since acknowledges nothing more (fence), and loses nothing that it
// has acknowledged.
//
// Threads: all calls by one thread at a time, but for Work::run. Errors: kCorruption names the file and the offset. After
// a failed write or sync the store is read-only for good, and what was not durable is taken back.
// Format: docs/formats/metadata.md. Limits: as AttributeTable; a group has at most 64 MiB.
#pragma once

#include <memory>
#include <string>

#include "io/device.h"
#include "meta/attribute_table.h"
#include "meta/shard.h"

namespace swale::meta {

struct AttributeStoreOptions {
  std::string directory;  // exists
  uint32_t server = 0;
  size_t files_max = 16 << 20;
  size_t tables_bytes_max = 64 * kMiB;
};

struct AttributeRecovery {
  uint32_t job = 0;  // of the log that was read; 0: there was none
  uint64_t records = 0;
  uint64_t torn_bytes = 0;  // at its end: never acknowledged
};

class AttributeStore {
 public:
  static Result<std::unique_ptr<AttributeStore>> open(io::Device& device,
                                                      const AttributeStoreOptions& options,
                                                      AttributeRecovery* report = nullptr);
  // Only reads: what a tool shows. The store takes no changes.
  static Result<std::unique_ptr<AttributeTable>> read(io::Device& device, const std::string& directory,
                                                      uint32_t server, AttributeRecovery* report);
  ~AttributeStore();
  AttributeStore(const AttributeStore&) = delete;

  uint32_t job() const { return job_; }
  AttributeTable& table() { return table_; }
  const AttributeTable& table() const { return table_; }

  // The record of a change that the table has made.
  void add(Bytes record);
  uint64_t covering_group() const;
  uint64_t durable_group() const { return durable_; }
  Status health() const { return health_; }
  // Whether the store is still this job's. Any thread.
  Status fence() const;
  uint64_t log_bytes() const { return end_; }

  // Null: nothing to do, or one is under way.
  std::unique_ptr<Work> next_commit();
  Status finish(std::unique_ptr<Work> work);

 private:
  class Commit;
  AttributeStore(size_t files_max, size_t tables_bytes_max) : table_(files_max, tables_bytes_max) {}

  AttributeTable table_;
  uint32_t job_ = 0;
  io::Device* device_ = nullptr;
  std::string path_;
  std::unique_ptr<io::File> file_;
  uint64_t end_ = 0;       // of what is written or under way
  uint64_t sequence_ = 0;  // of the last group that was taken for a commit
  uint64_t durable_ = 0;
  std::string open_;  // records of the open group, sized
  bool committing_ = false;
  size_t changes_committing_ = 0;  // how many of the table's changes the commit under way covers
  Status health_;
};

}  // namespace swale::meta
