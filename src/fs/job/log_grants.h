// LogGrants: the processes that append to logs of their own, and which files each of them may write
// (fs/log/attach_format.h says how they come to it).
//
// Threads: one at a time: the mutex of JobFs.
// Invariants: a node that has a grant is open, so that it is there.
// Memory: some 100 bytes a process and grant.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "fs/job/job_nodes.h"
#include "fs/log/attach_format.h"
#include "fs/node/write_guard.h"

namespace swale::fs {

class LogGrants final : public WriteGuard {
 public:
  // The log of the server itself, which may write all files.
  void trust(uint32_t log) { trusted_ = log; }

  // A process has come.
  void add(uint32_t log, const AttachToken& token) { processes_[log].token = token; }
  std::optional<uint32_t> log_of(const AttachToken& token) const;
  // It is over. Returns the files that it could write.
  std::vector<meta::FileId> remove(uint32_t log);

  // As often as it is granted it must be revoked.
  void grant(uint32_t log, JobNode* node);
  void revoke(uint32_t log, const meta::FileId& file);
  bool has(const meta::FileId& file) const { return files_.contains(file); }
  std::vector<uint32_t> logs_of(const meta::FileId& file) const;
  // Whether the kernel may have pages of a file that it may write.
  bool has_mapped(uint32_t log) const;

  Verdict judge(uint32_t log, const meta::FileId& file) override;
  uint64_t admitted() const { return admitted_; }  // writes of processes, so far

 private:
  struct Process {
    AttachToken token;
    bool told = false;  // that a write was refused
  };
  struct File {
    JobNode* node = nullptr;
    std::map<uint32_t, uint32_t> logs;  // how often each has it
  };

  uint32_t trusted_ = 0;
  uint64_t admitted_ = 0;
  std::map<uint32_t, Process> processes_;
  std::unordered_map<meta::FileId, File, meta::FileIdHash> files_;
};

}  // namespace swale::fs
