#include "stage/attributes.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>

namespace swale::stage {
namespace {

constexpr std::string_view kUser = "user.";
constexpr int kTries = 8;  // an attribute may grow between two calls

// What `call(buffer, bytes)` puts into a buffer that is large enough. None: errno says why.
template <class Call>
std::optional<std::string> sized_answer(const Call& call) {
  for (int i = 0; i < kTries; ++i) {
    const ssize_t needed = call(nullptr, 0);
    if (needed < 0) return std::nullopt;
    std::string answer(static_cast<size_t>(needed), '\0');
    const ssize_t got = needed == 0 ? 0 : call(answer.data(), answer.size());
    if (got >= 0) {
      answer.resize(static_cast<size_t>(got));
      return answer;
    }
    if (errno != ERANGE) return std::nullopt;
  }
  return std::nullopt;
}

Status copy_user_attributes(int source, int copy, const std::string& path) {
  const auto names = sized_answer([&](char* out, size_t bytes) { return ::flistxattr(source, out, bytes); });
  if (!names) {
    if (errno == ENOTSUP) return {};
    return errno_status(errno, path + ": listing the attributes of its source");
  }
  for (std::string_view left = *names; !left.empty();) {
    const std::string name(left.substr(0, left.find('\0')));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    if (!name.starts_with(kUser)) continue;
    const auto value =
        sized_answer([&](char* out, size_t bytes) { return ::fgetxattr(source, name.c_str(), out, bytes); });
    if (!value) return errno_status(errno, fmt::format("{}: reading the attribute {}", path, name));
    if (::fsetxattr(copy, name.c_str(), value->data(), value->size(), 0) == 0) continue;
    return errno_status(
        errno, fmt::format("{}: setting the attribute {} (--no-attributes leaves it out)", path, name));
  }
  return {};
}

}  // namespace

Status copy_attributes(int source, const struct stat& attributes, int copy, const std::string& path,
                       Attributes which) {
  struct stat now;
  if (::fstat(copy, &now) != 0) return errno_status(errno, path + ": looking at it");
  mode_t mode = attributes.st_mode & 07777;
  if (now.st_uid != attributes.st_uid || now.st_gid != attributes.st_gid) {
    if (::fchown(copy, attributes.st_uid, attributes.st_gid) != 0) {
      if (::geteuid() == 0) return errno_status(errno, path + ": giving it its owner");
      mode &= 01777;  // rights of a user or group that it does not belong to
    }
  }
  if (which == Attributes::kAll) SWALE_RETURN_IF_ERROR(copy_user_attributes(source, copy, path));
  if (::fchmod(copy, mode) != 0) return errno_status(errno, path + ": setting its mode");
  const timespec times[] = {attributes.st_atim, attributes.st_mtim};
  if (::futimens(copy, times) != 0) return errno_status(errno, path + ": setting its times");
  return {};
}

}  // namespace swale::stage
