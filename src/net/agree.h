// Ranks: what code that all ranks run together needs of a job. agree: all ranks make one status of their own ones, so that
// no rank goes on where another could not, or waits for it.
// Collective. Threads: one at a time per job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/transport.h"

namespace swale::net {

class Job;

using Allgather = std::function<Result<std::vector<std::string>>(Bytes mine)>;

// A job's, or the simulation's.
struct Ranks {
  Rank rank = 0;
  int32_t size = 1;
  Allgather allgather;  // as Job::allgather
};
Ranks ranks_of(Job& job);

// Every rank gives its status and gets the merged one: OK if all are, else the failure of the lowest failing rank,
// with its number. A rank without peers gets its own status back.
Status agree(const Allgather& allgather, const Status& mine);
inline Status agree(const Ranks& ranks, const Status& mine) { return agree(ranks.allgather, mine); }
Status agree(Job& job, const Status& mine);

}  // namespace swale::net
