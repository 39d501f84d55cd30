#include "tier/store/file_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "base/coding.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::tier {
namespace {

constexpr int64_t kBirthSecondNs = 1'000'000'000;

// The kernel's struct ends with an array of unknown length.
class Handle {
 public:
  file_handle* get() { return reinterpret_cast<file_handle*>(space_); }

 private:
  alignas(file_handle) char space_[sizeof(file_handle) + kHandleBytesMax] = {};
};

int64_t born(const struct statx& found) {
  if ((found.stx_mask & STATX_BTIME) == 0) return 0;
  return found.stx_btime.tv_sec * kBirthSecondNs + found.stx_btime.tv_nsec;
}

// Below the backing directory, or with a '/' before it.
std::string path_of(int fd, const std::string& root) {
  char text[PATH_MAX];
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), text, sizeof(text));
  if (length <= 0 || length == sizeof(text)) return {};  // longer than the kernel tells
  const std::string path(text, static_cast<size_t>(length));
  return path.starts_with(root + "/") ? path.substr(root.size() + 1) : path;
}

io::Descriptor open_by_handle(int root, const FileIdentity& identity) {
  if (identity.handle.empty() || identity.handle.size() > kHandleBytesMax) return {};
  Handle handle;
  handle.get()->handle_bytes = static_cast<unsigned>(identity.handle.size());
  handle.get()->handle_type = identity.handle_type;
  std::memcpy(handle.get()->f_handle, identity.handle.data(), identity.handle.size());
  return io::Descriptor(::open_by_handle_at(root, handle.get(), O_PATH | O_CLOEXEC));
}

}  // namespace

BackingRoot backing_root(const std::string& directory) {
  BackingRoot root;
  std::error_code failed;
  root.path = std::filesystem::canonical(directory, failed).string();
  struct statx found = {};
  if (::statx(AT_FDCWD, root.path.c_str(), 0, STATX_INO | STATX_BTIME, &found) != 0) return root;
  root.device = makedev(found.stx_dev_major, found.stx_dev_minor);
  root.inode = found.stx_ino;
  root.born_ns = born(found);
  return root;
}

bool is_of_root(const FileIdentity& identity, const BackingRoot& root) {
  return identity.root_inode == root.inode && identity.root_born_ns == root.born_ns;
}

FileIdentity identity_of(int fd, const BackingRoot& root) {
  FileIdentity identity;
  identity.root_inode = root.inode;
  identity.root_born_ns = root.born_ns;
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) == 0) {
    identity.inode = found.stx_ino;
    identity.born_ns = born(found);
  }
  Handle handle;
  handle.get()->handle_bytes = kHandleBytesMax;
  int mount = 0;
  if (::name_to_handle_at(fd, "", handle.get(), &mount, AT_EMPTY_PATH) == 0) {
    identity.handle_type = handle.get()->handle_type;
    identity.handle.assign(reinterpret_cast<const char*>(handle.get()->f_handle), handle.get()->handle_bytes);
  }
  identity.path = path_of(fd, root.path);
  return identity;
}

int read_id(const std::string& path, const char* attribute, uint64_t* id) {
  char bytes[8];
  const ssize_t got = ::getxattr(path.c_str(), attribute, bytes, sizeof(bytes));
  if (got == sizeof(bytes)) {
    *id = get_u64(bytes);
    return 1;
  }
  return got >= 0 || errno == ENODATA ? 0 : -1;
}

bool is_file(int fd, const FileIdentity& identity, uint64_t id, const char* attribute, bool by_handle) {
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &found) != 0) return false;
  if (!S_ISREG(found.stx_mode) || found.stx_nlink == 0 || found.stx_ino != identity.inode) return false;
  const bool same_birth = identity.born_ns != 0 && born(found) == identity.born_ns;
  if (identity.born_ns != 0 && born(found) != 0 && !same_birth) return false;
  uint64_t has = 0;
  const int read = read_id(fmt::format("/proc/self/fd/{}", fd), attribute, &has);
  if (read == 1) return has == id;
  return same_birth || by_handle;
}

bool may_be_file(int fd, const FileIdentity& identity, uint64_t id, const char* attribute) {
  struct statx found = {};
  if (identity.inode == 0) return false;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &found) != 0) return true;
  if (found.stx_ino != identity.inode) return false;
  if (identity.born_ns != 0 && born(found) != 0) return born(found) == identity.born_ns;
  uint64_t has = 0;
  return read_id(fmt::format("/proc/self/fd/{}", fd), attribute, &has) != 1 || has == id;
}

io::Descriptor open_identity(int root, const FileIdentity& identity, uint64_t id, const char* attribute,
                             std::string* why, bool* gone) {
  errno = 0;
  io::Descriptor file = open_by_handle(root, identity);
  struct stat found;
  // A handle has the inode's generation: it never leads to the next file with this number.
  *gone = file.valid() ? ::fstat(file.get(), &found) == 0 && found.st_nlink == 0 : errno == ESTALE;
  if (file.valid() && is_file(file.get(), identity, id, attribute, true)) return file;
  *why = "it was not found";
  if (identity.path.empty() || identity.path.front() == '/') return {};
  file = io::Descriptor(io::open_path_beneath(root, identity.path.c_str(), O_PATH));
  if (!file.valid()) {
    *why = fmt::format("{}", std::strerror(errno));
    return {};
  }
  if (is_file(file.get(), identity, id, attribute, false)) return file;
  *why = "another file has its name";
  return {};
}

}  // namespace swale::tier
