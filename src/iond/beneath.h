// Beneath: names that others send, looked up below a directory: nothing leads out of it, no link is followed
// on the way, and what is opened is a regular file.
//
// The kernel does it (openat2, RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS). An older one, or a filter that knows
// no openat2, makes us walk the name part by part; each part is opened below the one before it, by
// descriptor, so that a rename meanwhile leads nowhere else.
//
// Threads: any, once it is open. Errors: kInvalidArgument, with the errno of a plain directory: a link, or no
// regular file; the name is in each message. Needs /proc.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "io/descriptor.h"

namespace swale::iond {

class Beneath {
 public:
  enum class Lookup { kByKernel, kByWalk };  // kByWalk: for tests
  // The root is followed as any path: it is the user's own.
  static Result<Beneath> open(const std::string& root, Lookup lookup = Lookup::kByKernel);

  // The directory that the name's last part is in, for ...at calls, and that part.
  struct Place {
    io::Descriptor directory;  // O_PATH
    std::string last;
    std::string full;  // for messages
  };
  Result<Place> place_of(const std::string& name) const;

  // A regular file, to be looked at (O_PATH); descriptor_path leads to it.
  Result<io::Descriptor> look(const Place& place) const;
  // The same, or a directory.
  Result<io::Descriptor> look_at_any(const Place& place) const;
  // The same, or a symbolic link itself.
  Result<io::Descriptor> look_at_name(const Place& place) const;
  // A directory, to be read. "": the root.
  Result<io::Descriptor> open_to_list(const std::string& name) const;
  // Makes it, with the mode less the umask. False: something of that name is there already.
  Result<bool> make(const Place& place, mode_t mode) const;
  // Makes the last part a directory, if it is not there.
  Status make_directory(const Place& place, mode_t mode) const;

  static Status sync_directory(const Place& place);

 private:
  Beneath(io::Descriptor root, std::string path, Lookup lookup)
      : root_(std::move(root)), path_(std::move(path)), lookup_(lookup) {}
  Result<io::Descriptor> look(const Place& place, bool directories, bool links) const;
  int open_directory(const std::string& name) const;
  int walk(const std::string& name) const;

  io::Descriptor root_;  // O_PATH
  std::string path_;
  Lookup lookup_;
};

}  // namespace swale::iond
