// LogOperations: what is under way on the log's file but for payload and reads: records without payload,
// headers of segments that are erased, and syncs, each of which is one of the table of files, too.
//
// Threads: one at a time (StoreCore's mutex). It makes operations for the storage thread, and is told of
// their ends; their bytes live here meanwhile.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/storage_thread.h"
#include "tier/engine/engine_types.h"
#include "tier/log/log_format.h"
#include "tier/policy/options.h"
#include "tier/store/file_table.h"

namespace swale::tier {

// Operations of the storage thread, which carry the action that they are of in their tag.
uint64_t tag_of(Action::Kind kind, uint32_t id);
io::Operation write_of(io::File* file, uint64_t offset, Bytes from, uint64_t tag);
io::Operation sync_of(io::File* file, uint64_t tag);

class LogOperations {
 public:
  // `options`: of the log, as it is. `log` and `table` must outlive it.
  LogOperations(const Options& options, io::File* log, FileTable* table);

  void append_control(const Action& action, std::vector<io::Operation>* operations);
  void erase(const Action& action, std::vector<io::Operation>* operations);
  void sync(std::vector<io::Operation>* operations);

  // An operation of `kind` has ended. The action's status; nothing while a part of it is under way.
  std::optional<Status> ended(Action::Kind kind, uint32_t id, const Status& status);

 private:
  struct Erasure {
    std::array<char, kSegmentHeaderBytes> header;
    uint32_t left = 0;  // writes of its two copies
    Status status;
  };
  std::optional<Status> sync_ended(uint32_t part, const Status& status);

  const Options& options_;
  io::File& log_;
  FileTable& table_;
  std::map<uint32_t, std::string> control_;  // by action
  std::vector<Erasure> erasures_;            // by segment
  std::shared_ptr<io::File> syncing_table_;
  uint32_t sync_parts_ = 0;
  Status sync_status_;
};

}  // namespace swale::tier
