#include "imd/write/key_batcher.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "source/batch.h"

namespace swale::imd {

net::Frame KeyBatcher::exchange(net::Rank home, net::Frame next, EpochNumber epoch) {
  net::Frame taken = std::exchange(frames_[static_cast<size_t>(home)], next);
  if (taken.bytes > 0) encode(home, epoch, &taken);
  return taken;
}

void KeyBatcher::encode(net::Rank home, EpochNumber epoch, net::Frame* frame) {
  pairs_.resize(frame->bytes / sizeof(source::Pair));
  scratch_.resize(pairs_.size());
  std::memcpy(pairs_.data(), frame->data, frame->bytes);
  batch_.clear();
  source::encode_batch(epoch, own_, pairs_, scratch_, &batch_);
  assert(batch_.size() <= frame->capacity && "at most five bytes a key, and a header");
  std::memcpy(frame->data, batch_.data(), batch_.size());
  frame->bytes = static_cast<uint32_t>(batch_.size());
  pairs_per_rank_[static_cast<size_t>(home)] += get_u16(batch_.data() + 16);
}

}  // namespace swale::imd
