// Root: where the paths of one side of a stage are. For a whole tree it is a directory that is held open, and
// no link below it is followed: whoever may write there can plant one. Without a directory (the paths of a
// manifest, which the user has written one by one) folders are found as usual; the last name is still no
// link.
//
// Threads: after open, all calls.
// Errors: errno_status with the path and what was tried.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::stage {

class Root {
 public:
  Root() = default;  // without a directory
  static Result<Root> open(const std::string& directory);

  // The directory, or "".
  const std::string& path() const { return path_; }
  // Opens what has this path, which begins with path(); a symbolic link only with O_PATH. `doing` completes
  // "PATH: ".
  Result<io::Descriptor> open(const std::string& path, int flags, const char* doing) const;
  // Of what has this path; a link's own.
  Result<struct stat> look(const std::string& path) const;

 private:
  std::string path_;
  io::Descriptor fd_;
};

}  // namespace swale::stage
