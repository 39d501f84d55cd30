#include "base/memory_shares.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <string>

#include "base/bytes.h"
#include "base/mutex.h"

namespace swale {
namespace {

constexpr uint64_t kDefaultShareBytesMin = 16 * kMiB;
constexpr uint64_t kDefaultShareBytesMax = 64 * kMiB;

std::string row_name(const MemoryHolder& holder) { return fmt::format("{} {}", holder.kind, holder.name); }

}  // namespace

MemoryShares& MemoryShares::of_this_process() {
  static MemoryShares shares;
  return shares;
}

uint64_t MemoryShares::used_of(const MemoryHolder& holder, const MemoryLimit& limit) const {
  if (limit.kind == MemoryLimit::Kind::kHard) return held_.used();
  uint64_t used = 0;
  for (const MemoryBudget::Row& row : held_.report()) {
    if (row.name.starts_with(row_name({holder.kind, ""}))) used += row.bytes;
  }
  return used;
}

Status MemoryShares::check(uint64_t bytes, const MemoryLimit& limit) const {
  const uint64_t used = held_.used();
  if (limit.kind == MemoryLimit::Kind::kAdvice || (used <= limit.bytes && bytes <= limit.bytes - used))
    return {};
  std::string holders;
  for (const MemoryBudget::Row& row : held_.report())
    holders += fmt::format("{}{}: {}", holders.empty() ? "" : ", ", row.name, row.bytes);
  return error(
      Code::kResourceExhausted, Scope::kOperation,
      "{} bytes are needed, {} of this process's {} are free; give at least {}, or close what is open. "
      "Held: {}",
      bytes, limit.bytes - std::min(used, limit.bytes), limit.bytes, used + bytes,
      holders.empty() ? "nothing" : holders);
}

Result<uint64_t> MemoryShares::offer(const MemoryHolder& holder, uint64_t least, uint64_t wish,
                                     const MemoryLimit& limit) const {
  assert(least <= wish);
  SWALE_RETURN_IF_ERROR(check(least, limit));
  const uint64_t free = limit.bytes - std::min(used_of(holder, limit), limit.bytes);
  return std::clamp(free / 2, least, wish);
}

Result<MemoryBudget::Reservation> MemoryShares::take(const MemoryHolder& holder, uint64_t bytes,
                                                     const MemoryLimit& limit) {
  const MutexLock lock(taking_);  // two concurrent takes must not both see the same bytes free
  SWALE_RETURN_IF_ERROR(check(bytes, limit));
  return held_.reserve(row_name(holder), bytes);
}

Status MemoryShares::resize(MemoryBudget::Reservation* share, uint64_t bytes, const MemoryLimit& limit) {
  const MutexLock lock(taking_);
  if (bytes > share->bytes()) SWALE_RETURN_IF_ERROR(check(bytes - share->bytes(), limit));
  return share->resize(bytes);
}

uint64_t default_share_bytes(int32_t ranks_on_node, uint64_t machine_bytes) {
  const uint64_t share = machine_bytes / 100 * 3 / static_cast<uint64_t>(std::max(ranks_on_node, 1));
  return std::clamp(share, kDefaultShareBytesMin, kDefaultShareBytesMax);
}

uint64_t default_share_bytes(int32_t ranks_on_node) {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return kDefaultShareBytesMax;
  return default_share_bytes(ranks_on_node, static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes));
}

}  // namespace swale
