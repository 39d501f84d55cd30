// RankFlags: a byte of flags for each rank of a job, all zero at first. Memory is taken in pages of 256
// ranks, when the first rank of a page gets a flag, and 8 bytes a page before.
//
// Threads: any; the flags of a rank are atomic. Errors: operator[] may throw std::bad_alloc and has done
// nothing then.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/fabric/transport.h"

namespace swale::net {

class RankFlags {
 public:
  explicit RankFlags(int32_t ranks) : pages_((static_cast<size_t>(ranks) + kPageRanks - 1) / kPageRanks) {}
  ~RankFlags() {
    for (std::atomic<Page*>& each : pages_) delete each.load(std::memory_order_relaxed);
  }
  RankFlags(const RankFlags&) = delete;
  RankFlags& operator=(const RankFlags&) = delete;

  std::atomic<uint8_t>& operator[](Rank rank) {
    std::atomic<Page*>& place = pages_[page_of(rank)];
    Page* page = place.load(std::memory_order_acquire);
    if (page == nullptr) {
      auto made = std::make_unique<Page>();
      if (place.compare_exchange_strong(page, made.get(), std::memory_order_acq_rel)) page = made.release();
    }
    return (*page)[static_cast<size_t>(rank) % kPageRanks];
  }
  uint8_t of(Rank rank) const {
    const Page* const page = pages_[page_of(rank)].load(std::memory_order_acquire);
    return page == nullptr ? 0
                           : (*page)[static_cast<size_t>(rank) % kPageRanks].load(std::memory_order_relaxed);
  }

  // visit(rank) for all ranks that may have flags, in order.
  template <class Visit>
  void each(const Visit& visit) const {
    for (size_t page = 0; page < pages_.size(); ++page) {
      if (pages_[page].load(std::memory_order_acquire) == nullptr) continue;
      for (size_t i = 0; i < kPageRanks; ++i) visit(static_cast<Rank>(page * kPageRanks + i));
    }
  }

 private:
  static constexpr size_t kPageRanks = 256;
  using Page = std::array<std::atomic<uint8_t>, kPageRanks>;

  size_t page_of(Rank rank) const {
    assert(rank >= 0 && static_cast<size_t>(rank) / kPageRanks < pages_.size());
    return static_cast<size_t>(rank) / kPageRanks;
  }

  std::vector<std::atomic<Page*>> pages_;
};

}  // namespace swale::net
