#include "iond/shown_mode.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <charconv>

#include "io/descriptor_path.h"

namespace swale::iond {
namespace {

constexpr uint32_t kPermissions = 0777;

}  // namespace

uint32_t owners_bits(FileKind kind) { return kind == FileKind::kDirectory ? 0700 : 0600; }

Status check_iond_mode(std::string_view path, uint32_t mode) {
  if ((mode & ~kPermissions) == 0) return {};
  return error(Code::kInvalidArgument, Scope::kFile,
               "{}: mode {:o}: I/O servers keep permission bits alone, at most 777", path, mode)
      .with_error_number(EPERM);
}

uint32_t shown_mode(const io::Descriptor& of, uint32_t mode) {
  char text[8];
  const ssize_t bytes = ::getxattr(io::descriptor_path(of).c_str(), kModeAttribute, text, sizeof(text));
  if (bytes <= 0) return mode;  // also where the file system has no attributes
  uint32_t kept = 0;
  const auto [end, failed] = std::from_chars(text, text + bytes, kept, 8);
  return failed == std::errc() && end == text + bytes && kept <= kPermissions ? kept : mode;
}

// What a kill leaves in between is shown as one of the two modes.
Status set_shown_mode(const io::Descriptor& of, const std::string& path, FileKind kind, uint32_t mode) {
  const std::string way = io::descriptor_path(of);
  const uint32_t on_disk = mode | owners_bits(kind);
  const std::string text = fmt::format("{:o}", mode);
  if (on_disk != mode && ::setxattr(way.c_str(), kModeAttribute, text.data(), text.size(), 0) != 0)
    return errno_status(errno, path + ": keeping its mode in " + kModeAttribute);
  if (::chmod(way.c_str(), on_disk) != 0) return errno_status(errno, path + ": setting its mode");
  if (on_disk == mode && ::removexattr(way.c_str(), kModeAttribute) != 0 && errno != ENODATA &&
      errno != EOPNOTSUPP)
    return errno_status(errno, path + ": removing its " + kModeAttribute);
  return {};
}

Status give_mode(const io::Descriptor& made, const std::string& path, const IondRequest& request) {
  struct stat found;
  if (::fstat(made.get(), &found) != 0) return errno_status(errno, path);
  const FileKind kind = S_ISDIR(found.st_mode) ? FileKind::kDirectory : FileKind::kFile;
  const bool exact = (request.flags & kIondExactMode) != 0;
  const uint32_t wanted = exact ? request.mode : request.mode & found.st_mode;
  return wanted == (found.st_mode & kPermissions) ? Status() : set_shown_mode(made, path, kind, wanted);
}

}  // namespace swale::iond
