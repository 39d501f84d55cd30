#include "fuse/tree_trust.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "io/beneath.h"
#include "io/descriptor.h"

namespace swale::fuse {
namespace {

Status untrusted(const std::string& directory, const std::string& why) {
  return error(
      Code::kInvalidArgument, Scope::kOperation,
      "{}: {}; a mount by an ordinary user does what others ask for with its user's rights, so whoever else "
      "can write there could lead it to other files of yours. Take that right away (chmod go-w, chown), "
      "or mount without --allow-other, or mount as root, or, if you trust them, add --trust-tree",
      directory, why);
}

// Why somebody who is neither root nor this user can write to the directory; "" if nobody can. An ACL's
// entries show in the group's bits.
std::string who_may_write(const struct stat& found) {
  if (found.st_uid != 0 && found.st_uid != ::geteuid())
    return fmt::format("it belongs to user {}, not to you (user {})", found.st_uid, ::geteuid());
  if ((found.st_mode & S_IWOTH) != 0)
    return fmt::format("all users may write to it (mode {:o})", found.st_mode & 07777);
  if ((found.st_mode & S_IWGRP) != 0)
    return fmt::format("group {}, or whom its ACL names, may write to it (mode {:o})", found.st_gid,
                       found.st_mode & 07777);
  return "";
}

// Adds the directories of the one that is open. Names come from the disk: they are looked up again beneath
// the root alone.
Status list(io::Descriptor directory, const std::string& path, std::vector<std::string>* found) {
  DIR* const stream = ::fdopendir(::fcntl(directory.get(), F_DUPFD_CLOEXEC, 0));
  if (stream == nullptr) return errno_status(errno, path);
  while (const dirent* const entry = ::readdir(stream))
    if (io::is_one_name(entry->d_name) && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
      found->push_back(path.empty() ? entry->d_name : path + "/" + entry->d_name);
  ::closedir(stream);
  return {};
}

}  // namespace

Status check_trust(const std::string& backing_directory, size_t directories_max) {
  const io::Descriptor root(::open(backing_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno_status(errno, backing_directory + ": opening the backing directory");
  std::vector<std::string> waiting = {""};
  for (size_t looked_at = 0; !waiting.empty();) {
    const std::string path = std::move(waiting.back());
    waiting.pop_back();
    const std::string named = path.empty() ? backing_directory : backing_directory + "/" + path;
    io::Descriptor directory(io::open_path_beneath(root.get(), path.empty() ? "." : path.c_str(),
                                                   O_RDONLY | O_DIRECTORY | O_NONBLOCK));
    if (!directory.valid() && (errno == ENOENT || errno == ENOTDIR)) continue;
    if (!directory.valid())
      return untrusted(named, fmt::format("whether another user may write to it cannot be seen ({})",
                                          std::strerror(errno)));
    if (looked_at++ == directories_max)
      return untrusted(backing_directory,
                       fmt::format("it has more than {} directories, too many to see whether "
                                   "another user may write to one",
                                   directories_max));
    struct stat found;
    if (::fstat(directory.get(), &found) != 0) return errno_status(errno, named);
    if (const std::string why = who_may_write(found); !why.empty()) return untrusted(named, why);
    SWALE_RETURN_IF_ERROR(list(std::move(directory), path, &waiting));
  }
  return {};
}

}  // namespace swale::fuse
