// UnmountedTree: a tree that is mounted nowhere, as commands of this user find it on this node: by the socket
// of its server, which stands in the job's folder of memory beside a link to the tree's top.
//
// Threads: free functions. Errors: kNotFound: no server answers; else what the server says, as an errno.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fs/log/unmounted_format.h"
#include "fuse/job_folders.h"

namespace swale::fuse {

struct UnmountedTree {
  std::string socket;
  std::string top;  // the backing, without links
  bool on_nodes = false;

  std::string variable() const;  // of fs::kUnmountedVariable
};

// What find_unmounted_trees() finds of a server: when its socket is there.
Status show_unmounted(const JobFolders& folders, bool on_nodes);

// Those whose servers answer.
Result<std::vector<UnmountedTree>> find_unmounted_trees();

// Where a path leads, whose last name need not be on the backing.
struct UnmountedPlace {
  UnmountedTree tree;
  std::string below;  // the top, without a slash; "": the top itself
};
Result<UnmountedPlace> find_unmounted(const std::string& path);

// Waits for as long as the server takes. `text`: gets that of kStats; else null.
Status ask_unmounted(const UnmountedPlace& place, fs::UnmountedCall call, std::string* text = nullptr);

}  // namespace swale::fuse
