// Ranks: what code that all ranks run together needs of a job. agree: all ranks make one status of their own
// ones, so that no rank goes on where another could not, or waits for it. With Ranks, what a rank sends, gets
// and holds for it does not grow with the job. Collective. Threads: one at a time per job.
#pragma once

#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

class Bootstrap;
class Job;

// A job's, or the simulation's.
struct Ranks {
  Rank rank = 0;
  int32_t size = 1;
  std::function<Result<std::string>(Bytes mine)> least;  // as Job::least
};
Ranks ranks_of(Job& job);

// What the lowest of those ranks says that say something: `text`, and not nothing.
struct Word {
  Rank rank = -1;  // none says anything
  std::string text;
};
Result<Word> first_word(const Ranks& ranks, Bytes mine);
// Before there is a job.
Result<Word> first_word(Bootstrap& bootstrap, Bytes mine);
// The smallest of the numbers that the ranks give.
Result<uint64_t> least_number(const Ranks& ranks, uint64_t mine);

// Every rank gives its status and gets the merged one: OK if all are, else the failure of the lowest failing
// rank, with its number. A rank without peers gets its own status back.
Status agree(const Ranks& ranks, const Status& mine);
Status agree(Job& job, const Status& mine);
Status agree(Bootstrap& bootstrap, const Status& mine);

}  // namespace swale::net
