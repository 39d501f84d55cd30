// The requests about what a file, directory or link is: size, mode, times, names, attributes of users; and
// the server's space.
//
// Nothing is reached by a name twice: a descriptor (O_PATH, which leads to no link) is looked up, or is that
// of an open file, and everything goes by it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>

#include "io/descriptor_path.h"
#include "iond/iond_files.h"
#include "iond/shown_mode.h"
#include "iond/stripes.h"

namespace swale::iond {
namespace {

constexpr int64_t kNanosASecond = 1'000'000'000;
constexpr std::string_view kUsers = "user.";

timespec timespec_of(int64_t nanos) {
  const int64_t second = nanos / kNanosASecond - (nanos % kNanosASecond < 0 ? 1 : 0);
  return {static_cast<time_t>(second), static_cast<long>(nanos - second * kNanosASecond)};
}

bool is_own_attribute(std::string_view name) {
  return name == kStripesAttribute || name == kModeAttribute || name == tier::kIdAttribute;
}

// What programs may keep beside a file. The server's own are neither seen nor changed.
Status check_attribute(const std::string& path, std::string_view name) {
  if (name.starts_with(kUsers) && name.size() > kUsers.size() && name.size() <= XATTR_NAME_MAX &&
      name.find('\0') == name.npos && !is_own_attribute(name))
    return {};
  const int refused = is_own_attribute(name) ? EPERM : name.size() > XATTR_NAME_MAX ? ERANGE : EOPNOTSUPP;
  return errno_status(refused, fmt::format("{}: an attribute with a name of {} bytes: only user.NAME is kept",
                                           path, name.size()));
}

Result<std::string> get_attribute(const std::string& way, const std::string& path, const std::string& name) {
  if (is_own_attribute(name)) return errno_status(ENODATA, path + ": its attribute " + name);
  SWALE_RETURN_IF_ERROR(check_attribute(path, name));
  std::string value(kIondAttributeBytesMax, '\0');
  const ssize_t bytes = ::getxattr(way.c_str(), name.c_str(), value.data(), value.size());
  if (bytes < 0) return errno_status(errno, path + ": its attribute " + name);
  value.resize(static_cast<size_t>(bytes));
  return encode_iond_answer({.data = value});
}

Result<std::string> list_attributes(const std::string& way, const std::string& path) {
  std::string names(kIondAttributeBytesMax, '\0'), shown;
  const ssize_t bytes = ::listxattr(way.c_str(), names.data(), names.size());
  if (bytes < 0 && errno != EOPNOTSUPP) return errno_status(errno, path + ": its attributes");
  names.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find('\0', at), names.size());
    const std::string_view name = std::string_view(names).substr(at, end - at);
    if (name.starts_with(kUsers) && !is_own_attribute(name)) shown.append(name).push_back('\0');
    at = end + 1;
  }
  return encode_iond_answer({.data = shown});
}

Result<std::string> put_attribute(const std::string& way, const std::string& path,
                                  const IondRequest& request) {
  const std::string name(request.other);
  SWALE_RETURN_IF_ERROR(check_attribute(path, name));
  if (request.data.size() > kIondAttributeBytesMax)
    return errno_status(E2BIG, fmt::format("{}: its attribute {}", path, name));
  const int how = ((request.flags & kIondExclusive) != 0 ? XATTR_CREATE : 0) |
                  ((request.flags & kIondReplace) != 0 ? XATTR_REPLACE : 0);
  if (::setxattr(way.c_str(), name.c_str(), request.data.data(), request.data.size(), how) != 0)
    return errno_status(errno, fmt::format("{}: its attribute {}", path, name));
  return encode_iond_answer({});
}

Result<std::string> remove_attribute(const std::string& way, const std::string& path,
                                     const std::string& name) {
  SWALE_RETURN_IF_ERROR(check_attribute(path, name));
  if (::removexattr(way.c_str(), name.c_str()) != 0)
    return errno_status(errno, fmt::format("{}: its attribute {}", path, name));
  return encode_iond_answer({});
}

Result<std::string> read_symlink(const io::Descriptor& link, const std::string& path) {
  char text[PATH_MAX];
  const ssize_t bytes = ::readlinkat(link.get(), "", text, sizeof(text));
  // Of an O_PATH descriptor of something else: ENOENT.
  if (bytes < 0) return errno_status(errno == ENOENT ? EINVAL : errno, path + ": reading the link");
  return encode_iond_answer({.data = {text, static_cast<size_t>(bytes)}});
}

}  // namespace

Result<IondFiles::Target> IondFiles::target_of(const Open& open) const {
  Target target;
  target.fd = io::Descriptor(::fcntl(open.path.get(), F_DUPFD_CLOEXEC, 0));
  const MutexLock lock(mutex_);
  target.path = open.name;
  if (!target.fd.valid()) return errno_status(errno, target.path);
  return target;
}

Result<IondFiles::Target> IondFiles::target_of(const IondRequest& request, net::Rank from) const {
  std::string name(request.name);
  Target target;
  if (!has_names()) {
    SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, part_place(request.file, &name));
    target.path = place.full;
    auto part = root_.look(place);
    if (part.ok()) target.fd = std::move(*part);
    return part.ok() || part.status().code() == Code::kNotFound ? Result<Target>(std::move(target))
                                                                : part.status();
  }
  if (request.file != 0) {
    SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<Open> open, find(request.file, from));
    return target_of(*open);
  }
  if (name.empty()) {
    SWALE_ASSIGN_OR_RETURN(target.fd, root_.open_to_list(name));
    target.path = params_.backing_directory;
  } else {
    SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(name));
    SWALE_ASSIGN_OR_RETURN(target.fd, root_.look_at_name(place));
    target.path = place.full;
  }
  struct stat found;
  if (request.inode != 0 && (::fstat(target.fd.get(), &found) != 0 || found.st_ino != request.inode))
    return errno_status(ESTALE, target.path + ": is another file now");
  return target;
}

Status IondFiles::describe(const Target& target, IondAnswer* answer) const {
  SWALE_ASSIGN_OR_RETURN(const FileAttributes found, attributes_of(*params_.store, target.fd.get()));
  answer->inode = found.key.inode;
  answer->size = found.kind == FileKind::kDirectory ? 0 : found.size;
  answer->links = found.links;
  answer->created_ns = found.created_ns;
  answer->modified_ns = found.modified_ns;
  answer->changed_ns = found.changed_ns;
  if (found.kind == FileKind::kSymlink) {
    answer->mode = found.mode | kIondSymlinkBits;
    return {};
  }
  answer->mode = shown_mode(target.fd, found.mode);
  if (found.kind == FileKind::kDirectory) answer->mode |= kIondDirectoryBit;
  return {};
}

Result<std::string> IondFiles::attributes(IondMethod method, const IondRequest& request, net::Rank from) {
  if (!has_names() && method != IondMethod::kLook && method != IondMethod::kSetAttributes)
    return invalid_argument("names are on I/O server {}", kNamesServer);
  SWALE_ASSIGN_OR_RETURN(const Target target, target_of(request, from));
  IondAnswer answer;
  if (!target.fd.valid()) return encode_iond_answer(answer);
  const std::string way = io::descriptor_path(target.fd);
  switch (method) {
    case IondMethod::kSetAttributes:
      return set_attributes(target, request);
    case IondMethod::kReadSymlink:
      return read_symlink(target.fd, target.path);
    case IondMethod::kGetAttribute:
      return get_attribute(way, target.path, std::string(request.other));
    case IondMethod::kListAttributes:
      return list_attributes(way, target.path);
    case IondMethod::kPutAttribute:
      return put_attribute(way, target.path, request);
    case IondMethod::kRemoveAttribute:
      return remove_attribute(way, target.path, std::string(request.other));
    default:
      break;
  }
  SWALE_RETURN_IF_ERROR(describe(target, &answer));
  if ((answer.mode & kIondKindBits) == 0) {
    SWALE_RETURN_IF_ERROR(params_.store->expect_whole(target.fd.get()));
    SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(target.fd, target.path));
    if (stripes && has_names())
      SWALE_RETURN_IF_ERROR(expect_stripes(target.path, *stripes, request.striping));
    answer.id = stripes ? stripes->id : 0;
    answer.first = stripes ? stripes->striping.first : 0;
  }
  return encode_iond_answer(answer);
}

Result<std::string> IondFiles::set_attributes(const Target& target, const IondRequest& request) {
  const MutexLock lock(names_);  // a mode is changed in two places
  SWALE_ASSIGN_OR_RETURN(const FileAttributes before, attributes_of(*params_.store, target.fd.get()));
  IondAnswer answer;
  if ((request.flags & kIondSetMode) != 0) {
    if (before.kind == FileKind::kSymlink)
      return errno_status(EOPNOTSUPP, target.path + ": setting its mode");
    SWALE_RETURN_IF_ERROR(check_iond_mode(target.path, request.mode));
    SWALE_RETURN_IF_ERROR(set_shown_mode(target.fd, target.path, before.kind, request.mode));
  }
  if ((request.flags & kIondSetModified) != 0) {
    const timespec times[2] = {{0, UTIME_OMIT}, timespec_of(request.modified_ns)};
    if (::utimensat(AT_FDCWD, io::descriptor_path(target.fd).c_str(), times, 0) != 0)
      return errno_status(errno, target.path + ": setting its times");
    if (before.kind == FileKind::kFile) params_.store->set_modified(before.key, request.modified_ns);
  }
  if (has_names() && before.kind == FileKind::kFile) {
    SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(target.fd, target.path));
    if (stripes) answer.id = stripes->id;
  }
  return encode_iond_answer(answer);
}

Result<std::string> IondFiles::space() const {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor top, root_.open_to_list(""));
  struct statvfs found;
  if (::fstatvfs(top.get(), &found) != 0)
    return errno_status(errno, params_.backing_directory + ": the space of its file system");
  // What is in the log will need space.
  const uint64_t dirty = params_.store->stats().dirty_bytes;
  const auto left = [&](uint64_t blocks) {
    const uint64_t bytes = blocks * found.f_frsize;
    return bytes - std::min(dirty, bytes);
  };
  return encode_iond_answer({.data = encode_iond_space({.bytes = uint64_t{found.f_blocks} * found.f_frsize,
                                                        .free = left(found.f_bfree),
                                                        .available = left(found.f_bavail),
                                                        .files = found.f_files,
                                                        .files_free = found.f_favail})});
}

// KEEP_SIZE: a part's end says where the file ends.
Status IondFiles::allocate(const Open& open, uint64_t offset, uint64_t length) const {
  if (length == 0) return {};
  const io::Descriptor file(::open(io::descriptor_path(open.path).c_str(), O_WRONLY | O_CLOEXEC));
  if (file.valid() && ::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                  static_cast<off_t>(length)) == 0)
    return {};
  const int failed = errno;
  const MutexLock lock(mutex_);
  return errno_status(failed, fmt::format("{}: space for {} bytes at {}", open.name, length, offset));
}

}  // namespace swale::iond
