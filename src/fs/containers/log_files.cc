#include "fs/containers/log_files.h"

#include <fmt/format.h>

#include <utility>

namespace swale::fs {
namespace {

constexpr std::string_view kNumber = "%s";

}  // namespace

Status LogFiles::check_pattern(const std::string& pattern) {
  const size_t at = pattern.find(kNumber);
  if (at != std::string::npos && pattern.find(kNumber, at + kNumber.size()) == std::string::npos) return {};
  return invalid_argument("logs \"{}\": expected the path of a log with one %s in place of its number",
                          pattern);
}

std::string LogFiles::path_of(uint32_t log) const {
  std::string path = pattern_;
  return path.replace(path.find(kNumber), kNumber.size(), std::to_string(log));
}

Result<std::shared_ptr<io::File>> LogFiles::open(uint32_t log) {
  const MutexLock lock(mutex_);
  if (const auto found = open_.find(log); found != open_.end()) return found->second;
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> opened, device_.open(path_of(log), io::OpenMode::kRead));
  if (open_.size() >= kOpenMax) open_.erase(open_.begin());  // who reads it has a share of it
  std::shared_ptr<io::File> shared = std::move(opened);
  open_.emplace(log, shared);
  return shared;
}

Status LogFiles::read(uint32_t log, uint64_t address, MutableBytes out) {
  auto file = open(log);
  if (!file.ok()) return file.status().with_context(fmt::format("log {}", log));
  SWALE_ASSIGN_OR_RETURN(const size_t got, (*file)->pread(address, out));
  if (got == out.size()) return {};
  return error(Code::kCorruption, Scope::kFile,
               "{}: log {} ends at {}: the store has {} bytes of a file from {} on there", path_of(log), log,
               address + got, out.size(), address);
}

}  // namespace swale::fs
