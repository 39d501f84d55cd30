// MemoryShares: the memory of one process, divided among the directories, stores and servers that are open in
// it.
//
// Opening something asks for an offer: half of the free memory, but at least what it needs to work and at
// most what it wishes. With a limit of twice the wish W the first gets W, the second W/2, the third W/4, and
// all later ones the least. A share is free for the next opening as soon as its holder closes; an open
// holder's share never shrinks. Ranks that must have equal shares agree on the smallest offer, and then take
// it (docs/design/shared-resources.md).
//
// A limit that a user has set (kHard) counts every holder. A default limit (kAdvice) counts the holders of
// the same kind, so that an open metadata store does not leave the least to a massive directory.
//
// What grows with the data (files, runs) is charged as it grows: resize.
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

// Who asks: "directory", "/data/run7". Messages and reports name both.
struct MemoryHolder {
  std::string_view kind;
  std::string_view name;
};

class MemoryShares {
 public:
  static MemoryShares& of_this_process();

  // The share available now. kResourceExhausted, with a list of the holders and a sufficient limit, if it is
  // less than `least`.
  Result<uint64_t> offer(const MemoryHolder& holder, uint64_t least, uint64_t wish,
                         const MemoryLimit& limit) const;
  Result<MemoryBudget::Reservation> take(const MemoryHolder& holder, uint64_t bytes,
                                         const MemoryLimit& limit);
  // The share has `bytes` from now on. It is unchanged after a failure, which only growth can have.
  Status resize(MemoryBudget::Reservation* share, uint64_t bytes, const MemoryLimit& limit);

  uint64_t used() const { return held_.used(); }
  std::vector<MemoryBudget::Row> report() const { return held_.report(); }

 private:
  uint64_t used_of(const MemoryHolder& holder, const MemoryLimit& limit) const;
  Status check(uint64_t bytes, const MemoryLimit& limit) const;

  Mutex taking_;
  MemoryBudget held_{UINT64_MAX};  // only counts: offer and take pass the limit
};

// What a directory gets by default if it is alone: 3 % of a machine's memory divided by the ranks on it, at
// most 64 MiB, at least 16 MiB. Ranks that must come to equal plans ask with the ranks on the fullest node.
uint64_t default_share_bytes(int32_t ranks_on_node, uint64_t machine_bytes);
uint64_t default_share_bytes(int32_t ranks_on_node);  // of this machine

}  // namespace swale
