// Rendezvous: a Bootstrap for jobs that give no communicator. The ranks meet in a directory that all of them
// see.
//
// Nothing that an earlier job left behind is ever taken for ours, whatever its job id: every process draws a
// random nonce and says hello with it; rank 0 draws a random session number and welcomes every nonce that it
// sees; a process joins the session that welcomes its own nonce, and an allgather takes only records of that
// session. A leftover welcome cannot hold a fresh nonce, and a leftover record cannot hold the fresh session
// number. Two processes that live at the same time and claim the same rank or both claim rank 0 are reported,
// not mixed up.
//
// In a job of up to `collect_above` ranks each rank reads what all have given. In a larger one rank 0 alone
// does so, and writes what comes of it: an answer, or the file of an AddressBook, in which each rank looks up
// those that it meets. So the other ranks read one file, and memory does not grow with the job but on rank 0
// (some 5 bytes a rank).
//
// The last rank to leave removes the files; rank 0 waits a little for the others and then removes them in any
// case. What a killed job leaves is removed by the next job with the same id.
//
// Threads: see Bootstrap. Limits: job ids of any length and characters; see also rendezvous_file.h.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "net/meeting/bootstrap.h"

namespace swale::net {

struct RendezvousOptions {
  std::string directory;  // shared by all ranks; created (one level, 0700) if it is not there; checked
  // It is a descriptor's path (/proc/self/fd/N) to a folder that the caller has found to be this user's
  // alone: nobody above it can lead elsewhere, so nothing above it is looked at.
  bool is_descriptor = false;
  std::string job_id;   // the same on all ranks
  std::string node_id;  // the same on all ranks of one machine and on no other machine
  Rank rank = 0;
  int32_t size = 1;
  Nanos deadline = seconds(60);                // of each allgather, and then
  Nanos deadline_per_rank = milliseconds(10);  // as much again per rank
  Nanos leave_wait = seconds(2);
  int32_t collect_above = 1'024;  // ranks
};

Result<std::unique_ptr<Bootstrap>> rendezvous_bootstrap(const RendezvousOptions& options);

}  // namespace swale::net
