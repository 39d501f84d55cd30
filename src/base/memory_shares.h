// MemoryShares: the memory of one process, divided among the directories and engines that are open in it.
//
// Whoever opens something asks for an offer: half of what is free, but at least what it needs to work at all and at most
// what it wishes. With a limit of twice the wish W the first gets W, the second W/2, the third W/4, and all later ones the
// least; what is closed is free again at once, for whoever opens next. What is open keeps its share.
// Ranks that must have equal shares agree on the smallest offer, and then take it (docs/design/shared-resources.md).
//
// Threads: thread-safe. Between offer and take others may take something: take checks again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/status.h"

namespace swale {

// How much this process may hold in all.
struct MemoryLimit {
  // kAdvice, of a default: who opens one thing more gets the least that it needs, also beyond it. kHard, of an option that
  // a user has set: kResourceExhausted beyond it.
  enum class Kind : uint8_t { kAdvice, kHard };
  uint64_t bytes = 0;
  Kind kind = Kind::kAdvice;
};

class MemoryShares {
 public:
  static MemoryShares& of_this_process();

  // The share that is to be had now. kResourceExhausted, with everybody who holds some, if that is less than `least`.
  Result<uint64_t> offer(uint64_t least, uint64_t wish, const MemoryLimit& limit) const;
  // `name` tells a user who holds it: "DIR".
  Result<MemoryBudget::Reservation> take(std::string_view name, uint64_t bytes, const MemoryLimit& limit);

  uint64_t used() const { return held_.used(); }
  std::vector<MemoryBudget::Row> report() const { return held_.report(); }

 private:
  Status check(uint64_t bytes, const MemoryLimit& limit) const;

  Mutex taking_;
  MemoryBudget held_{UINT64_MAX};  // counts; the limits come with the questions
};

}  // namespace swale
