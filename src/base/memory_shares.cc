#include "base/memory_shares.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "base/mutex.h"

namespace swale {

MemoryShares& MemoryShares::of_this_process() {
  static MemoryShares shares;
  return shares;
}

Status MemoryShares::check(uint64_t bytes, const MemoryLimit& limit) const {
  const uint64_t used = held_.used();
  if (limit.kind == MemoryLimit::Kind::kAdvice || (used <= limit.bytes && bytes <= limit.bytes - used))
    return {};
  std::string holders;
  for (const MemoryBudget::Row& row : held_.report())
    holders += fmt::format("{}{}: {}", holders.empty() ? "" : ", ", row.name, row.bytes);
  return error(Code::kResourceExhausted, Scope::kOperation,
               "{} bytes are needed, {} of this process's {} are free; close a directory, or raise the "
               "limit. Held: {}",
               bytes, limit.bytes - std::min(used, limit.bytes), limit.bytes,
               holders.empty() ? "nothing" : holders);
}

Result<uint64_t> MemoryShares::offer(uint64_t least, uint64_t wish, const MemoryLimit& limit) const {
  assert(least <= wish);
  SWALE_RETURN_IF_ERROR(check(least, limit));
  const uint64_t free = limit.bytes - std::min(held_.used(), limit.bytes);
  return std::clamp(free / 2, least, wish);
}

Result<MemoryBudget::Reservation> MemoryShares::take(std::string_view name, uint64_t bytes,
                                                     const MemoryLimit& limit) {
  const MutexLock lock(taking_);  // two concurrent takes must not both see the same bytes free
  SWALE_RETURN_IF_ERROR(check(bytes, limit));
  return held_.reserve(name, bytes);
}

}  // namespace swale
