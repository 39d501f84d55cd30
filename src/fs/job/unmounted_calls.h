// UnmountedCalls: what a program's calls of names do to a tree that is mounted nowhere
// (fs/log/unmounted_format.h): the part of the kernel that walks paths and looks at modes.
//
// A path leads through directories of the tree alone: a link or ".." on its way is an errno. The program's
// kernel has resolved these, because directories and links are on the backing.
//
// Threads: thread-safe. Invariants: (1) No path leads out of the tree, or into .swale. (2) Each component is
// looked at by the rights of the caller, as they are at that call. (3) Changes of names come one after the
// other, as FileSystem wants it.
// Errors: errnos in answers, those of the kernel.
#pragma once

#include <sys/socket.h>

#include <string_view>

#include "base/mutex.h"
#include "fs/job/job_fs.h"
#include "fs/job/stand_in_files.h"
#include "fs/log/attach_format.h"
#include "fs/log/unmounted_format.h"
#include "io/descriptor.h"

namespace swale::fs {

class UnmountedCalls {
 public:
  struct Answer {
    UnmountedAnswer said;
    io::Descriptor passed;
  };

  UnmountedCalls(JobFs& fs, StandInFiles& stand_ins) : fs_(fs), stand_ins_(stand_ins) {}

  // Whether a message is one that a program may send; `bytes`: what has come.
  static bool is_whole(const UnmountedRequest& request, size_t bytes);
  // Of a whole one, from this process.
  Answer serve(const UnmountedRequest& request, const ucred& who);

 private:
  class Who;
  class Known;
  class Place;
  struct Asked;

  int call(const Asked& asked, Answer* answer);
  int open(const Asked& asked, Answer* answer);
  int open_there(const Asked& asked, Answer* answer);
  int make(const Asked& asked, Answer* answer);
  int make_name(const Asked& asked, const Caller& caller, Place* place, Known* made,
                std::unique_ptr<OpenFile>* file);
  int look(const Asked& asked, Answer* answer);
  int list(const Asked& asked, Answer* answer);
  int unlink(const Asked& asked);
  int remove_directory(const Asked& asked);
  int make_directory(const Asked& asked);
  int make_link(const Asked& asked);
  int rename(const Asked& asked);
  int truncate(const Asked& asked);
  int change(const Asked& asked);
  int sync(const Asked& asked);
  int seal(const Asked& asked);
  int seal_of(Node& node, const Caller& caller, SealState* state);
  int find_attributes(const Asked& asked, int wanted, Known* known, Answer* answer);
  int get_attribute(const Asked& asked, Answer* answer);
  int list_attributes(const Asked& asked, Answer* answer);
  int set_attribute(const Asked& asked, Answer* answer);
  int remove_attribute(const Asked& asked, Answer* answer);
  int lock(const Asked& asked, Answer* answer);
  int pass_text(std::string_view text, io::Descriptor* out);
  int find_file(const Asked& asked, Known* known, bool* by_descriptor);

  JobFs& fs_;
  StandInFiles& stand_ins_;
  Mutex names_;  // they change
};

}  // namespace swale::fs
