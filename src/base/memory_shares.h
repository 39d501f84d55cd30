// MemoryShares: the memory of one process, divided among the directories and engines that are open in it.
//
// Opening something asks for an offer: half of the free memory, but at least what it needs to work and at most what
// it wishes. With a limit of twice the wish W the first gets W, the second W/2, the third W/4, and all later ones the
// least. A share is free for the next opening as soon as its holder closes; an open holder's share never changes.
// Ranks that must have equal shares agree on the smallest offer, and then take it (docs/design/shared-resources.md).
//
// Threads: thread-safe. Another thread may take memory between offer and take: take checks again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/status.h"

namespace swale {

// How much memory this process may hold in total.
struct MemoryLimit {
  // kAdvice (a default): beyond the limit, a new opening still gets the least that it needs. kHard (an option
  // that the user has set): kResourceExhausted beyond the limit.
  enum class Kind : uint8_t { kAdvice, kHard };
  uint64_t bytes = 0;
  Kind kind = Kind::kAdvice;
};

class MemoryShares {
 public:
  static MemoryShares& of_this_process();

  // The share available now. kResourceExhausted, with a list of the holders, if it is less than `least`.
  Result<uint64_t> offer(uint64_t least, uint64_t wish, const MemoryLimit& limit) const;
  // `name` tells users what holds the share: "DIR".
  Result<MemoryBudget::Reservation> take(std::string_view name, uint64_t bytes, const MemoryLimit& limit);

  uint64_t used() const { return held_.used(); }
  std::vector<MemoryBudget::Row> report() const { return held_.report(); }

 private:
  Status check(uint64_t bytes, const MemoryLimit& limit) const;

  Mutex taking_;
  MemoryBudget held_{UINT64_MAX};  // only counts: offer and take pass the limit
};

}  // namespace swale
