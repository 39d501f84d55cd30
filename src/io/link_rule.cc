#include "io/link_rule.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <string_view>
#include <utility>

#include "io/beneath.h"

namespace swale::io {
namespace {

constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;
constexpr int kLinksMax = 40;  // as the kernel

std::deque<std::string> names_of(std::string_view path) {
  std::deque<std::string> names;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (!name.empty() && name != ".") names.emplace_back(name);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return names;
}

class Walk {
 public:
  Walk(int directory, LinksOf links) : top_(directory), links_(links) {}

  OpenedBelow open(const std::string& rest, int flags, mode_t mode) {
    names_ = names_of(rest);
    if (names_.empty()) names_.emplace_back(".");
    while (true) {
      const std::string name = names_.front();
      names_.pop_front();
      const bool last = names_.empty();
      Descriptor fd(continued(
          [&] { return ::openat(here(), name.c_str(), (last ? flags : kFolder) | O_NOFOLLOW, mode); }));
      int failed = fd.valid() ? 0 : errno;
      if (failed == 0 && last) return {std::move(fd)};
      // With O_DIRECTORY a link is ENOTDIR.
      if (failed == ELOOP || failed == ENOTDIR) {
        OpenedBelow followed = follow(name, failed, flags, mode);
        if (followed.failed != 0 || followed.fd.valid()) return followed;
        continue;
      }
      if (failed != 0) return {{}, failed};
      note(name);
      at_ = std::move(fd);
    }
  }

 private:
  int here() const { return at_.valid() ? at_.get() : top_; }
  void note(const std::string& name) { way_ += (way_.empty() ? "" : "/") + name; }

  // `name` could not be opened, maybe because it is a link. Neither a descriptor nor a failure: its target
  // stands before the names that are left.
  OpenedBelow follow(const std::string& name, int failed, int flags, mode_t mode) {
    const Descriptor link(::openat(here(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat is;
    if (!link.valid() || ::fstat(link.get(), &is) != 0) return {{}, errno};
    if (!S_ISLNK(is.st_mode)) return {{}, failed};
    if (!follows(is.st_uid)) {
      note(name);
      return {{}, ELOOP, way_, is.st_uid, links_};
    }
    if (++followed_ > kLinksMax) return {{}, ELOOP};
    std::string target(PATH_MAX, '\0');
    const ssize_t bytes = ::readlinkat(link.get(), "", target.data(), target.size());
    if (bytes < 0) return {{}, errno};
    target.resize(static_cast<size_t>(bytes));
    if (!target.starts_with('/')) {
      std::deque<std::string> names = names_of(target);
      names_.insert(names_.begin(), names.begin(), names.end());
      if (names_.empty()) names_.emplace_back(".");
      return {};
    }
    const bool last = names_.empty();
    Descriptor fd(continued([&] { return ::open(target.c_str(), last ? flags : kFolder, mode); }));
    if (!fd.valid()) return {{}, errno};
    if (last) return {std::move(fd)};
    note(name);
    at_ = std::move(fd);
    return {};
  }

  bool follows(uid_t owner) const {
    if (links_ == LinksOf::kNobody) return false;
    if (owner == ::geteuid() || owner == 0) return true;
    struct stat is;
    return links_ == LinksOf::kUserAndOwner && ::fstat(top_, &is) == 0 && is.st_uid == owner;
  }

  const int top_;
  const LinksOf links_;
  Descriptor at_;  // none: still at the top
  std::string way_;
  std::deque<std::string> names_;  // still to come
  int followed_ = 0;
};

}  // namespace

OpenedBelow walk_below(int directory, const std::string& rest, int flags, mode_t mode, LinksOf links) {
  return Walk(directory, links).open(rest, flags, mode);
}

std::optional<OpenedBelow> open_linkless(int directory, const std::string& path, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_NO_SYMLINKS;
  const auto fd = static_cast<int>(continued([&] { return openat2(directory, path.c_str(), how); }));
  if (fd >= 0) return OpenedBelow{Descriptor(fd)};
  // EPERM and EACCES: a filter of system calls that was made before there was openat2, or a real answer.
  if (errno == ELOOP || errno == ENOSYS || errno == EPERM || errno == EACCES) return {};
  // A program that goes down folder by folder makes longer paths than the kernel takes at once.
  if (errno == ENAMETOOLONG && path.size() >= PATH_MAX) return {};
  return OpenedBelow{{}, errno};
}

OpenedBelow open_below(int directory, const std::string& rest, int flags, mode_t mode, LinksOf links) {
  if (std::optional<OpenedBelow> opened = open_linkless(directory, rest, flags, mode))
    return *std::move(opened);
  return walk_below(directory, rest, flags, mode, links);
}

Status refused_link(const OpenedBelow& refused, const std::string& path, const std::string& rest) {
  const std::string above = path.size() > rest.size() ? path.substr(0, path.size() - rest.size()) : "";
  if (refused.links == LinksOf::kNobody)
    return invalid_argument("{}{}: is a symbolic link; none is followed here; put the file in its place",
                            above, refused.link);
  return invalid_argument(
      "{}{}: is a symbolic link of user {}, which is not followed: that user could lead these files "
      "elsewhere; remove it, or if you trust that user, make the link yourself",
      above, refused.link, refused.owner);
}

}  // namespace swale::io
