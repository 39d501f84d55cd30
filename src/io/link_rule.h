// The rule of links: whose symbolic links are followed below a directory that other users may write to.
//
// A link of this process's user or of root is followed: users link part folders to other disks. Any other
// user's is refused, as that user could have planted it to lead this process's files elsewhere, or to make it
// change or read files that the user cannot. Whoever only reads also follows the links of the directory's
// owner, whose files they read anyway. How the directory itself is reached is the caller's business.
//
// A link is looked at by its descriptor and read through it, so nobody can exchange it in between. The rest
// of a path after a followed link is under the same rule; an absolute target is resolved as usual.
//
// The kernel says whether there is a link at all (openat2, one system call). Where it cannot, and where there
// is one, names are opened one at a time.
// Threads: any. Needs no /proc.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::io {

enum class LinksOf {
  kNobody,        // a directory whose files every program may change: nothing leads out of it
  kUser,          // and root's
  kUserAndOwner,  // and those of the directory's owner
};

struct OpenedBelow {
  Descriptor fd;
  int failed = 0;         // errno, if there is no fd
  std::string link = {};  // what was refused: the name of the link, from the directory on; failed is ELOOP
  uid_t owner = 0;        // of that link
  LinksOf links = LinksOf::kUser;  // the rule that refused it
};

// openat(directory, path, flags, mode) if no name of the path is a link, in one system call. None: one may
// be, this kernel cannot tell, or the path is longer than it takes.
std::optional<OpenedBelow> open_linkless(int directory, const std::string& path, int flags, mode_t mode = 0);

// openat(directory, rest, flags, mode) under the rule. ".." in `rest` is followed as usual.
OpenedBelow open_below(int directory, const std::string& rest, int flags, mode_t mode, LinksOf links);
// The same with every name opened for itself, as where the kernel has no openat2. For tests.
OpenedBelow walk_below(int directory, const std::string& rest, int flags, mode_t mode, LinksOf links);

// Names the link, its owner, and what to do. `path`: what was asked for, which ends with `rest`.
Status refused_link(const OpenedBelow& refused, const std::string& path, const std::string& rest);

}  // namespace swale::io
