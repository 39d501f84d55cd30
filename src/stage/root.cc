#include "stage/root.h"

#include <fcntl.h>

#include "io/link_rule.h"

namespace swale::stage {

Result<Root> Root::open(const std::string& directory) {
  Root root;
  root.path_ = directory;
  root.fd_ = io::Descriptor(
      io::continued([&] { return ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!root.fd_.valid()) return errno_status(errno, directory + ": opening the directory");
  return root;
}

Result<io::Descriptor> Root::open(const std::string& path, int flags, const char* doing) const {
  flags |= O_NOFOLLOW | O_CLOEXEC;
  if (path_.empty()) {
    io::Descriptor fd(io::continued([&] { return ::open(path.c_str(), flags); }));
    if (!fd.valid()) return errno_status(errno, fmt::format("{}: {}", path, doing));
    return fd;
  }
  const std::string rest = path.size() > path_.size() ? path.substr(path_.size() + 1) : ".";
  // A link that is named for itself (O_PATH) is opened from its folder.
  const size_t slash = rest.rfind('/');
  const bool in_folder = slash != std::string::npos;
  io::OpenedBelow folder = io::open_below(fd_.get(), in_folder ? rest.substr(0, slash) : ".",
                                          O_PATH | O_DIRECTORY | O_CLOEXEC, 0, io::LinksOf::kNobody);
  if (!folder.link.empty()) return io::refused_link(folder, path, rest);
  int failed = folder.failed;
  if (failed == 0) {
    const std::string name = in_folder ? rest.substr(slash + 1) : rest;
    io::Descriptor fd(io::continued([&] { return ::openat(folder.fd.get(), name.c_str(), flags); }));
    if (fd.valid()) return fd;
    failed = errno;
  }
  return errno_status(failed, fmt::format("{}: {}", path, doing));
}

Result<struct stat> Root::look(const std::string& path) const {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor fd, open(path, O_PATH, "looking at it"));
  struct stat attributes;
  if (::fstat(fd.get(), &attributes) != 0) return errno_status(errno, path + ": looking at it");
  return attributes;
}

}  // namespace swale::stage
