#include "net/agree.h"

#include "net/job.h"
#include "net/status_codec.h"

namespace swale::net {

Status agree(const Allgather& allgather, const Status& mine) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, allgather(encode_status(mine)));
  if (all.size() == 1) return mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Status theirs;
    SWALE_RETURN_IF_ERROR(decode_status(all[rank], &theirs));
    if (!theirs.ok()) return theirs.with_context(fmt::format("rank {}", rank));
  }
  return {};
}

Ranks ranks_of(Job& job) {
  return {job.rank(), job.size(), [&job](Bytes mine) { return job.allgather(mine); }};
}

Status agree(Job& job, const Status& mine) { return agree(ranks_of(job), mine); }

}  // namespace swale::net
