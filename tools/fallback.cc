#include "tools/fallback.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/posix_device.h"
#include "tools/options.h"
#include "tools/tree_engine.h"

namespace swale::tools {
namespace {

// What a killed server has left is unmounted by the next start.
bool is_dead_mount(const std::string& path) {
  struct stat found;
  return ::stat(path.c_str(), &found) != 0 && errno == ENOTCONN;
}

Result<std::vector<std::string>> look_for_jobs(const std::string& backing) {
  struct stat found;
  if (::stat(backing.c_str(), &found) != 0) return errno_status(errno, backing);
  if (!S_ISDIR(found.st_mode)) return errno_status(ENOTDIR, backing);
  io::PosixDevice device({}, backing);
  return jobs_on_backing(device, backing);
}

}  // namespace

Fallback::Fallback(bool wanted, std::string backing) : wanted_(wanted), backing_(std::move(backing)) {
  looked_into_ = !is_dead_mount(backing_);
  if (!looked_into_) return;
  mounted_ = ask_tree(backing_).ok();
  auto jobs = look_for_jobs(backing_);
  failed_ = jobs.status();
  if (jobs.ok()) jobs_ = *std::move(jobs);
}

Status Fallback::expect_none_before() const {
  SWALE_RETURN_IF_ERROR(failed_);
  if (!mounted_ && looked_into_ && jobs_.empty()) return {};
  return error(Code::kBusy, Scope::kFile, "{}: a job had it before", backing_);
}

Status Fallback::expect_free() const {
  SWALE_RETURN_IF_ERROR(failed_);
  if (mounted_ || ask_tree(backing_).ok())
    return error(Code::kBusy, Scope::kFile, "{}: no --fallback: a job has it now", backing_);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> now, look_for_jobs(backing_));
  for (const std::string& job : now) {
    if (looked_into_ && std::find(jobs_.begin(), jobs_.end(), job) == jobs_.end()) continue;
    return error(
        Code::kBusy, Scope::kFile,
        "{}: no --fallback: {} has it, or has ended without bringing all to it, and a program would read and "
        "change old bytes: run swale fs recover {} where it ran, with its --buffer; if nothing is wanted of "
        "it, remove that and {}/.swale/{}",
        backing_, job, backing_, backing_, job);
  }
  return {};
}

}  // namespace swale::tools
