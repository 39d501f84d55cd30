// NodeKeeper: starts the server of a node's tree and ends it when the last program of the node has ended. A
// process of its own: neither a rank that fails nor a launcher that kills its ranks takes the tree from the
// other programs, nor from what is to be drained.
//
//   swale run (each rank of the node) ── FOLDER/programs ──► keeper ──► server
//
// A rank's connection is its program: the program has ended when the connection is shut down, or closed by
// whatever end of the rank. When all have ended, the keeper tells the server, waits for it, and answers each
// connection with one byte: the server's exit code.
//
// A rank that is stopped (SIGSTOP) does not hear the end of its program, and nobody's tree ends before: the
// keeper says which one it is.
//
// A server that is killed ends the servers of all nodes: each keeper starts its own again, to meet anew.
//
// Threads: one, which has started none.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "fuse/job_mount.h"
#include "io/descriptor.h"

namespace swale::tools {

struct NodeKeeperOptions {
  fuse::JobMountOptions mount;  // each start of the servers has a word of its own, after nodes->meeting
  std::string folder;           // of this user alone, on the node
  size_t programs = 1;
  Nanos patience = seconds(60);  // until the last rank of the node is connected
};

// Returns the process when its server's mount is there; ranks may connect then. Else the server has said why.
// `usual`: the signals of its server.
Result<pid_t> start_keeper(const NodeKeeperOptions& options, const sigset_t& usual);

// A keeper's socket in its folder, for programs of its user.
inline constexpr char kKeeperSocket[] = "programs";
Result<io::Descriptor> listen_for_programs(const std::string& folder);
// None: nobody came, or another user's.
io::Descriptor accept_program(const io::Descriptor& listener, pid_t* process = nullptr);

// A rank's connection to the keeper of its node.
Result<io::Descriptor> connect_to_keeper(const std::string& folder);
// The rank's program has ended. Returns the exit code of the node's server.
int end_at_keeper(const io::Descriptor& connection);

}  // namespace swale::tools
