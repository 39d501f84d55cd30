// KeptRoots: FileRoots whose changes outlive this server: each is in a log before its answer.
//
//   FOLDER := StateLog "roots-" of kRootsLogKind
//   record := a record of FileRoots; the first one has the states of all files
//
// Fuzzed by fuzz/fs_state_fuzz.cc; golden files: tests/golden/job-logs-v*.
//
// A commit survives each kill, and not the machine, until a sync of its file; what drains and truncates have
// changed is synced.
//
// Threads: any; a sync or drain of a file waits for the end of its sync. Errors: after a record that could
// not be written nobody knows whether the change was obeyed; the next change writes all anew.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "fs/node/state_log.h"
#include "fs/share/file_roots.h"

namespace swale::fs {

inline constexpr uint16_t kRootsLogKind = 17;

class KeptRoots {
 public:
  static Result<std::unique_ptr<KeptRoots>> open(io::Device& device, const std::string& folder,
                                                 const ShareRules& rules = {}) noexcept;

  Result<ShareAnswer> handle(const ShareRequest& request) noexcept;
  // The same of a kLook or kHold, if nobody else is here. Nothing: handle() is to be called.
  std::optional<ShareAnswer> look_at_once(const ShareRequest& request) noexcept;

  // As FileRoots' calls of these names; what they keep is durable when they return.
  Result<FileRoots::Drain> begin_drain(const meta::FileId& file, const SeenBacking& seen) noexcept;
  Result<FileRoots::Plan> plan_drain(const meta::FileId& file) noexcept;
  Status announce(const meta::FileId& file, const SeenBacking& ours) noexcept;
  Status drained(const meta::FileId& file, const SeenBacking& now, bool aside) noexcept;
  void end_drain(const meta::FileId& file) noexcept;
  // Of a kSync, or of a drain, whose own sync it is: FileRoots::begin_sync. end_sync() must follow if it has
  // begun; not: a drain is under way, or needs none.
  struct Sync {
    ShareAnswer answer;
    bool begun = false;
    std::vector<NodeId> ask;
  };
  Result<Sync> begin_sync(const ShareRequest& request) noexcept;
  Result<Sync> begin_sync_of_drain(const meta::FileId& file) noexcept;
  // When it returns OK, and all have `kept` what they had, all that was committed then is durable.
  Status end_sync(const meta::FileId& file, bool kept) noexcept;
  Result<uint64_t> begin_node(NodeId node, bool has_lost_power) noexcept;
  std::vector<Span> parts_of(const meta::FileId& file, NodeId node);
  std::vector<FileRoots::Known> known();

 private:
  explicit KeptRoots(const ShareRules& rules) : rules_(rules), roots_(rules) {}
  Status find(io::Device& device, const std::string& folder);
  Status begin_anew() REQUIRES(mutex_);
  Status keep(Bytes record, store::AppendSync sync) REQUIRES(mutex_);

  const ShareRules rules_;
  Mutex mutex_;
  CondVar synced_;  // the sync of a file has ended
  FileRoots roots_ GUARDED_BY(mutex_);
  std::unique_ptr<StateLog> log_ GUARDED_BY(mutex_);
  uint64_t state_bytes_ GUARDED_BY(mutex_) = 0;  // when the log was begun
  bool behind_ GUARDED_BY(mutex_) = false;       // the log does not have all
};

}  // namespace swale::fs
