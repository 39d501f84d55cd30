#include "fs/job/log_grants.h"

#include <algorithm>

#include "fs/job/job_marks.h"

namespace swale::fs {

std::optional<uint32_t> LogGrants::log_of(const AttachToken& token) const {
  const auto found = std::find_if(processes_.begin(), processes_.end(),
                                  [&](const auto& each) { return each.second.token == token; });
  return found == processes_.end() ? std::nullopt : std::optional(found->first);
}

std::vector<meta::FileId> LogGrants::remove(uint32_t log) {
  processes_.erase(log);
  std::vector<meta::FileId> files;
  for (auto& [id, file] : files_)
    if (file.logs.erase(log) > 0) files.push_back(id);
  std::erase_if(files_, [](const auto& each) { return each.second.logs.empty(); });
  return files;
}

void LogGrants::grant(uint32_t log, JobNode* node) {
  File& file = files_[node->id];
  file.node = node;
  ++file.logs[log];
}

void LogGrants::revoke(uint32_t log, const meta::FileId& id) {
  const auto file = files_.find(id);
  if (file == files_.end()) return;
  const auto count = file->second.logs.find(log);
  if (count == file->second.logs.end()) return;  // the process is over
  if (--count->second == 0) file->second.logs.erase(count);
  if (file->second.logs.empty()) files_.erase(file);
}

std::vector<uint32_t> LogGrants::logs_of(const meta::FileId& id) const {
  std::vector<uint32_t> logs;
  const auto file = files_.find(id);
  if (file == files_.end()) return logs;
  for (const auto& [log, count] : file->second.logs) logs.push_back(log);
  return logs;
}

bool LogGrants::has_mapped(uint32_t log) const {
  return std::any_of(files_.begin(), files_.end(), [log](const auto& each) {
    return each.second.node->shows_logs() && each.second.logs.contains(log);
  });
}

WriteGuard::Verdict LogGrants::judge(uint32_t log, const meta::FileId& id) {
  if (log == trusted_) return Verdict::kAdmitted;
  const auto file = files_.find(id);
  if (file != files_.end() && file->second.logs.contains(log)) {
    ++admitted_;
    file->second.node->modified_ns.store(now_nanos());
    return Verdict::kAdmitted;
  }
  const auto process = processes_.find(log);
  if (process != processes_.end() && std::exchange(process->second.told, true)) return Verdict::kRefusedAgain;
  return Verdict::kRefused;
}

}  // namespace swale::fs
