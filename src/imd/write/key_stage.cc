#include "imd/write/key_stage.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "imd/write/batcher.h"
#include "source/key_message.h"
#include "source/pair.h"

namespace swale::imd {

uint64_t key_digest(PartitionNumber home, uint32_t source, uint64_t kept_hash) {
  char row[16];
  put_u32(row, home);
  put_u32(row + 4, source);
  put_u64(row + 8, kept_hash);
  return record_digest({row, sizeof row}, 8);
}

KeyStage::KeyStage(const Params& params)
    : params_(params),
      keys_max_(std::min<size_t>(source::kKeyMessageKeysMax,
                                 (params.message_bytes_max - source::key_message_bytes_max(0)) / 5)),
      hashes_(params.bytes / (2 * sizeof(uint64_t))),
      scratch_(hashes_.size()) {
  assert(params.bytes >= kBytesMin && source::key_message_bytes_max(1) <= params.message_bytes_max);
  kept_.reserve(keys_max_);
  message_.reserve(source::key_message_bytes_max(keys_max_) + kVarint64BytesMax);
}

void KeyStage::sort() {
  const auto end = hashes_.begin() + static_cast<ptrdiff_t>(used_);
  source::sort_pairs(std::span(hashes_).first(used_), scratch_, 0);
  used_ = static_cast<size_t>(std::unique(hashes_.begin(), end) - hashes_.begin());
  const auto mine =
      std::partition_point(hashes_.begin(), hashes_.begin() + static_cast<ptrdiff_t>(used_),
                           [&](Hash hash) { return choose(hash, params_.ranks).index <= params_.own; });
  at_ = static_cast<size_t>(mine - hashes_.begin());
  left_ = used_;
  sending_ = true;
}

// The message of the next keys that have one home. False, and nothing was done: the frame has no space.
bool KeyStage::put_next() {
  if (at_ == used_) at_ = 0;
  const PartitionNumber home(choose(hashes_[at_], params_.ranks).index);
  kept_.clear();
  size_t end = at_;
  for (; end < used_ && kept_.size() < keys_max_; ++end) {
    const HashChoice choice = choose(hashes_[end], params_.ranks);
    if (choice.index != home) break;
    const uint64_t kept = source::kept_hash(choice.rest);
    if (kept_.empty() || kept_.back() != kept) kept_.push_back(kept);
  }
  message_.clear();
  source::encode_key_message(kept_, &message_);
  char* const place = Batcher::place_routed(&frame_, static_cast<net::Rank>(home), message_.size());
  if (place == nullptr) return false;
  std::copy(message_.begin(), message_.end(), place);
  for (const uint64_t kept : kept_) digest_ += key_digest(home, params_.own, kept);
  left_ -= end - at_;
  at_ = end;
  return true;
}

bool KeyStage::put_all() {
  while (left_ > 0) {
    if (!put_next()) return false;
  }
  used_ = 0;
  sending_ = false;
  return true;
}

bool KeyStage::make_room() {
  if (has_room()) return true;
  if (!sending_) sort();
  return put_all();
}

bool KeyStage::finish() {
  if (!sending_) sort();
  return put_all();
}

net::Frame KeyStage::exchange(net::Frame next) { return std::exchange(frame_, next); }

uint64_t KeyStage::take_digest() { return std::exchange(digest_, 0); }

}  // namespace swale::imd
