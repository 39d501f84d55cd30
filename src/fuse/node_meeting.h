// How the processes that have one tree on several nodes meet: in the backing directory's `.swale/meeting`,
// which they reach by descriptor; and what all must have alike.
//
// Threads: collective, by one thread. Errors: kDeadlineExceeded names those that are missing;
// kInvalidArgument: both values of an option that differs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "fuse/job_folders.h"
#include "fuse/job_mount.h"
#include "net/job/opening.h"
#include "net/meeting/bootstrap.h"
#include "net/meeting/node_map.h"

namespace swale::fuse {

struct Meeting {
  io::Descriptor folder;  // outlives the bootstrap
  std::unique_ptr<net::Bootstrap> bootstrap;
};

// Of `nodes.count` processes, of which this is `nodes.own`.
Result<Meeting> meet_in_backing(const JobFolders& folders, const JobMountOptions::Nodes& nodes);

// Which of the processes are on one node. `node`: a word that those of a node have in common, and no others.
Result<net::NodeMap> find_nodes(net::Bootstrap& bootstrap, const std::string& node);
// Of this process, as its job of nodes has it. A node is a machine and the mounts that its processes see: in
// another container's namespace nobody has this one's tree.
std::string node_word(const net::JobSettings& settings);

// What all servers of a job have alike.
std::vector<net::AgreedOption> options_in_common(const JobMountOptions& options);

}  // namespace swale::fuse
