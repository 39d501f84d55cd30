// KeyBatcher: the application's end of the shuffle in a directory of the lossy format: gathers hashes of keys
// for each home and makes a batch (source/batch.h) of each full frame.
//
// A frame has pairs of 8 bytes while it is filled; they are sorted, doubles removed, and encoded in their
// place when the frame is taken. So a frame holds at most 1/8 as many keys as it has bytes, and needs no
// other memory while it waits.
// Threads: none of its own; the owner serialises calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "net/talk/frame_pool.h"
#include "source/pair.h"

namespace swale::imd {

class KeyBatcher {
 public:
  KeyBatcher(PartitionNumber own, uint32_t ranks) : own_(own), frames_(ranks), pairs_per_rank_(ranks) {}

  bool has_room(net::Rank home) const {
    const net::Frame& frame = frames_[static_cast<size_t>(home)];
    return frame.capacity - frame.bytes >= sizeof(source::Pair);
  }
  // Requires room. `rest`: of the hash, after the choice of its home.
  void push(net::Rank home, Hash rest) {
    net::Frame& frame = frames_[static_cast<size_t>(home)];
    put_u64(frame.data + frame.bytes, source::make_pair(source::kept_hash(rest), 0));
    frame.bytes += sizeof(source::Pair);
  }

  // Takes the home's frame, with a batch of the epoch in it or empty (data == nullptr: it had none), and
  // lends it another.
  net::Frame exchange(net::Rank home, net::Frame next, EpochNumber epoch);

  // That were taken in this epoch.
  const std::vector<uint64_t>& pairs_per_rank() const { return pairs_per_rank_; }
  void begin_epoch() { pairs_per_rank_.assign(pairs_per_rank_.size(), 0); }

 private:
  void encode(net::Rank home, EpochNumber epoch, net::Frame* frame);

  const PartitionNumber own_;
  std::vector<net::Frame> frames_;  // by home
  std::vector<uint64_t> pairs_per_rank_;
  std::vector<source::Pair> pairs_;
  std::vector<source::Pair> scratch_;
  std::string batch_;
};

}  // namespace swale::imd
