// AttributeStore: an AttributeTable and its log. Changes join the open group; the rim commits groups as it
// does those of a Shard (shard.h): next_commit, Work::run on any thread (one write, one sync), finish. An
// answer may leave when covering_group(), as it was when the answer was made, is durable: also an answer that
// changed nothing, because it may show changes that are not durable yet.
//
// Opening gives the newest log another name, reads it, writes what it says to a new file as one snapshot, and
// gives that file its name only when it is durable. The name holds the number of this job, one above all that
// are there; of two processes that open at a time one is refused. Logs of earlier jobs are removed then. A
// commit proves after its sync that its log still has its name: a store that another job has opened since
// acknowledges nothing more (fence), and loses nothing that it has acknowledged.
//
// A log that has become four times as long as its snapshot is compacted: the next commit writes the table as
// the snapshot of a log with the next number, as a later job would, and goes on there. So the length of a
// log, and the time to read it, are bounded by what the table has.
//
// Threads: all calls by one thread at a time, but for Work::run and fence. Errors: kCorruption names the file
// and the offset. A group that finds no space is taken back, with all changes that are not durable: finish
// answers kNoSpace, every group after durable_group() is void, and the store goes on. After another failed
// write, or a failed sync, it is read-only for good, and what was not durable is taken back.
// Format: docs/formats/metadata.md. Limits: as AttributeTable; a group has at most 64 MiB (recovery refuses a
// longer one), so what comes meanwhile is divided into groups that are committed one after the other; while a
// log is compacted its table is in memory twice.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "io/device.h"
#include "meta/attributes/attribute_table.h"
#include "meta/index/shard.h"

namespace swale::meta {

struct AttributeStoreOptions {
  std::string directory;  // exists
  uint32_t server = 0;
  size_t files_max = 16 << 20;
  size_t tables_bytes_max = 64 * kMiB;
  uint64_t compact_bytes_min = 256 * kKiB;  // a shorter log is not compacted
  uint64_t group_bytes_max = 8 * kMiB;  // a record that would make the open group longer begins the next one
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

  uint32_t job() const { return job_; }  // as it was opened; logs of later numbers are its compacted ones
  AttributeTable& table() { return table_; }
  const AttributeTable& table() const { return table_; }

  // One change: act(&record) makes it in the table and appends its record, which joins the open group. What
  // throws std::bad_alloc has done neither.
  template <class Act>
  auto change(const Act& act);
  // The record of a change that the table has made. It joins the group whole, or std::bad_alloc comes and it
  // has not.
  void add(Bytes record);
  uint64_t covering_group() const;
  uint64_t durable_group() const { return durable_; }
  Status health() const { return health_; }
  // Whether the store is still this job's. Any thread.
  Status fence() const;
  uint64_t log_bytes() const { return end_; }
  uint64_t compactions() const { return compactions_; }

  // Null: nothing to do, or one is under way.
  std::unique_ptr<Work> next_commit();
  Status finish(std::unique_ptr<Work> work);

 private:
  class Commit;
  class Compaction;
  // A log that has its name.
  struct Log {
    uint32_t job = 0;  // the number in its name
    std::string path;
    std::unique_ptr<io::File> file;
    uint64_t bytes = 0;
    uint64_t sequence = 0;  // of its last group
  };
  explicit AttributeStore(const AttributeStoreOptions& options)
      : options_(options), table_(options.server, options.files_max, options.tables_bytes_max) {}

  static Status write_log(io::Device& device, const AttributeStoreOptions& options, uint32_t job,
                          Bytes content, Log* log);
  void use(Log log);
  bool wants_compaction() const;
  std::unique_ptr<Work> compaction();
  void give_up(const Status& why, bool for_good);
  Status finish_compaction(Compaction* work);
  std::string path() const;

  const AttributeStoreOptions options_;
  AttributeTable table_;
  uint32_t job_ = 0;
  io::Device* device_ = nullptr;
  std::unique_ptr<io::File> file_;
  uint32_t log_job_ = 0;         // in the name of the log
  uint64_t end_ = 0;             // of the log, all of it durable
  uint64_t snapshot_bytes_ = 0;  // of that: with which it began
  uint64_t log_sequence_ = 0;    // of the last durable group in the log
  uint64_t sequence_ = 0;        // of the last group that was taken for a commit; counts on over logs
  uint64_t durable_ = 0;
  uint64_t compact_after_ = 0;  // bytes, after an attempt that failed
  uint64_t compactions_ = 0;
  // Records that a commit takes together, sized. Each is one change of the table.
  struct Group {
    std::string records;
    size_t changes = 0;
  };
  std::deque<Group> open_;  // the last one takes more
  bool committing_ = false;
  bool compacting_ = false;        // what is committing is a compaction
  Group open_committing_;          // what was open when the compaction under way began
  size_t changes_committing_ = 0;  // how many of the table's changes the commit under way covers
  Status health_;
  mutable Mutex path_mutex_;
  std::string path_ GUARDED_BY(path_mutex_);
};

template <class Act>
auto AttributeStore::change(const Act& act) {
  const size_t before = table_.changes();
  try {
    std::string record;
    auto result = act(&record);
    add(record);
    return result;
  } catch (...) {
    table_.undo_to(before);
    throw;
  }
}

}  // namespace swale::meta
