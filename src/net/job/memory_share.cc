#include "net/job/memory_share.h"

#include <string>

#include "net/job/agree.h"

namespace swale::net {

MemoryLimit memory_limit(const Job& job, uint64_t otherwise) {
  if (job.memory_bytes() != 0) return {job.memory_bytes(), MemoryLimit::Kind::kHard};
  return {otherwise, MemoryLimit::Kind::kAdvice};
}

Result<MemoryBudget::Reservation> take_equal_share(Job& job, const MemoryHolder& holder, uint64_t least,
                                                   uint64_t wish, const MemoryLimit& limit) {
  MemoryShares& shares = MemoryShares::of_this_process();
  const Result<uint64_t> mine = shares.offer(holder, least, wish, limit);
  const std::string context = fmt::format("{}: job.memory", holder.name);
  SWALE_RETURN_IF_ERROR(agree(job, mine.status().with_context(context)));
  SWALE_ASSIGN_OR_RETURN(const uint64_t equal, least_number(ranks_of(job), *mine));
  Result<MemoryBudget::Reservation> share = shares.take(holder, equal, limit);
  SWALE_RETURN_IF_ERROR(agree(job, share.status().with_context(context)));
  return share;
}

}  // namespace swale::net
