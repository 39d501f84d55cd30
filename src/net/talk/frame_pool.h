// FramePool: the frames in which one rank sends data. Each destination has a fixed number of frames of its
// own, so that a slow destination holds up its own frames and nobody else's. All memory is taken when the
// pool is made.
//
// Threads: none; the owner serialises calls.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "net/fabric/per_rank.h"
#include "net/fabric/transport.h"

namespace swale::net {

// Memory of one frame, lent by the pool. `index` names it there.
struct Frame {
  char* data = nullptr;
  uint32_t bytes = 0;  // filled
  uint32_t capacity = 0;
  uint32_t index = 0;

  Bytes payload() const { return {data, bytes}; }
};

class FramePool {
 public:
  // kResourceExhausted if the memory is not to be had.
  static Result<FramePool> create(int32_t ranks, uint32_t frames_per_rank, size_t frame_bytes) {
    SWALE_ASSIGN_OR_RETURN(Buffer memory,
                           Buffer::allocate(static_cast<size_t>(ranks) * frames_per_rank * frame_bytes));
    return FramePool(ranks, frames_per_rank, frame_bytes, std::move(memory));
  }

  bool available(Rank destination) const { return !free_[destination].empty(); }

  // Requires available(destination).
  Frame take(Rank destination) {
    std::vector<uint32_t>& free = free_[destination];
    const uint32_t index = free.back();
    free.pop_back();
    return {memory_.data() + index * frame_bytes_, 0, static_cast<uint32_t>(frame_bytes_), index};
  }

  void give_back(uint32_t index) { free_[static_cast<Rank>(index / frames_per_rank_)].push_back(index); }

 private:
  FramePool(int32_t ranks, uint32_t frames_per_rank, size_t frame_bytes, Buffer memory)
      : frames_per_rank_(frames_per_rank),
        frame_bytes_(frame_bytes),
        memory_(std::move(memory)),
        free_(ranks) {
    uint32_t index = 0;
    for (std::vector<uint32_t>& free : free_) {
      for (uint32_t frame = 0; frame < frames_per_rank; ++frame) free.push_back(index++);
    }
  }

  uint32_t frames_per_rank_;
  size_t frame_bytes_;
  Buffer memory_;
  PerRank<std::vector<uint32_t>> free_;  // by destination
};

}  // namespace swale::net
