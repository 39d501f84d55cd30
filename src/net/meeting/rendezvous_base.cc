#include "net/meeting/rendezvous_base.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/log.h"

namespace swale::net {
namespace {

// In a user namespace (a container of an ordinary user) the machine's root has no number: all that is its
// shows as the overflow user's. Elsewhere that user is one like others.
bool shows_as_root(uid_t owner) {
  if (owner == 0) return true;
  unsigned overflow = 0, first = 0, outside = 0, count = 0;
  const auto read = [](const char* path, const char* format, auto*... values) {
    FILE* const file = ::fopen(path, "re");
    const bool found =
        file != nullptr && ::fscanf(file, format, values...) == static_cast<int>(sizeof...(values));
    if (file != nullptr) ::fclose(file);
    return found;
  };
  if (!read("/proc/self/uid_map", "%u %u %u", &first, &outside, &count) || count == UINT_MAX) return false;
  return read("/proc/sys/kernel/overflowuid", "%u", &overflow) && owner == overflow;
}

bool is_trusted(uid_t owner) { return owner == ::geteuid() || shows_as_root(owner); }

Status refused(const std::string& path, std::string_view what) {
  return invalid_argument(
      "no rendezvous below {}: {}, so other users could keep the ranks of a job from meeting: set "
      "job.rendezvous to a folder of your own (mkdir -m 700)",
      path, what);
}

// One folder, or link, of the way to the base, or the base.
Status check_step(const std::string& path, bool is_base) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return errno_status(errno, fmt::format("lstat {}", path));
  if (!is_trusted(found.st_uid))
    return refused(path, fmt::format("it belongs to user {}, neither to you ({}) nor to root", found.st_uid,
                                     ::geteuid()));
  if (S_ISLNK(found.st_mode)) return ok_status();  // where it leads is looked at, too
  if (!S_ISDIR(found.st_mode)) return refused(path, "it is no folder");
  const mode_t writers = is_base ? S_IWGRP | S_IWOTH : S_IWOTH;
  if ((found.st_mode & writers) != 0 && (found.st_mode & S_ISVTX) == 0)
    return refused(path, fmt::format("others may write into it (mode {:04o}, no sticky bit)",
                                     static_cast<unsigned>(found.st_mode & 07777)));
  return ok_status();
}

Status check_way(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    SWALE_RETURN_IF_ERROR(check_step(path.substr(0, end), end == std::string::npos));
    if (end == std::string::npos) return ok_status();
  }
}

Status check_own(const std::string& path) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return errno_status(errno, fmt::format("lstat {}", path));
  if (!S_ISDIR(found.st_mode)) return refused(path, "it is a link, or no folder");
  if (found.st_uid != ::geteuid()) return refused(path, fmt::format("it belongs to user {}", found.st_uid));
  if ((found.st_mode & 077) != 0)
    return refused(
        path, fmt::format("it has mode {:04o}, expected 0700", static_cast<unsigned>(found.st_mode & 07777)));
  return ok_status();
}

Status make_own(const std::string& path) {
  SWALE_RETURN_IF_ERROR(check_rendezvous_base(path.substr(0, path.rfind('/'))));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_status(errno, fmt::format("mkdir {}", path));
  return check_own(path);
}

}  // namespace

Status check_rendezvous_base(const std::string& path) {
  std::string absolute = path;
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  char resolved[PATH_MAX];
  if (::realpath(absolute.c_str(), resolved) == nullptr)
    return errno_status(errno, fmt::format("{} (rendezvous base)", path));
  if (absolute.starts_with('/')) SWALE_RETURN_IF_ERROR(check_way(absolute));
  SWALE_RETURN_IF_ERROR(check_step("/", false));
  return absolute == resolved ? ok_status() : check_way(resolved);
}

Result<std::string> own_rendezvous_base(std::span<const std::string> candidates) {
  std::string why;
  for (const std::string& path : candidates) {
    const Status status = make_own(path);
    if (status.ok()) {
      if (!why.empty()) log_warn("the ranks meet in {}: {}", path, why);
      return path;
    }
    why += fmt::format("{}{}", why.empty() ? "" : "; ", status.message());
  }
  return error(Code::kUnavailable, Scope::kFatal, "no folder for the ranks to meet in: {}", why);
}

}  // namespace swale::net
