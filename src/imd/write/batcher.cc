#include "imd/write/batcher.h"

#include <cassert>
#include <utility>

#include "base/coding.h"

namespace swale::imd {

Batcher::Batcher(int32_t ranks, Partitioner partitioner, Frames frames)
    : ranks_(static_cast<uint32_t>(ranks)),
      frames_(frames == Frames::kOneForAll ? 1 : ranks_),
      records_per_rank_(frames == Frames::kOneForAll ? 0 : ranks_),
      partitioner_(std::move(partitioner)) {}

net::Rank Batcher::home_of(Hash hash, Bytes key) const {
  if (partitioner_.by_hash()) [[likely]]
    return static_cast<net::Rank>(choose(hash, ranks_).index);
  const uint32_t home = partitioner_.ask(key, ranks_);
  return home < ranks_ ? static_cast<net::Rank>(home) : kNowhere;
}

char* Batcher::place_routed(net::Frame* frame, net::Rank home, size_t bytes) {
  if (frame->capacity - frame->bytes < kRoutedHeadBytes + bytes) return nullptr;
  char* const at = frame->data + frame->bytes;
  frame->bytes += static_cast<uint32_t>(kRoutedHeadBytes + bytes);
  put_u32(at, static_cast<uint32_t>(home));
  put_u16(at + sizeof(uint32_t), static_cast<uint16_t>(bytes));
  return at + kRoutedHeadBytes;
}

inline char* Batcher::place_for(net::Rank home, size_t bytes, net::Rank* destination) {
  *destination = for_all() ? 0 : home;
  net::Frame& frame = frames_[static_cast<size_t>(*destination)];
  if (for_all()) return place_routed(&frame, home, bytes);
  if (frame.capacity - frame.bytes < bytes) return nullptr;
  char* const at = frame.data + frame.bytes;
  frame.bytes += static_cast<uint32_t>(bytes);
  ++records_per_rank_[static_cast<size_t>(home)];
  return at;
}

Batcher::Routed Batcher::take_routed(Bytes* rest) {
  static_assert(run::kEncodedRecordBytesMax <= UINT16_MAX);
  const auto home = static_cast<net::Rank>(get_u32(rest->data()));
  const size_t bytes = get_u16(rest->data() + sizeof(uint32_t));
  const Bytes record = rest->substr(kRoutedHeadBytes, bytes);
  rest->remove_prefix(kRoutedHeadBytes + bytes);
  return {home, record};
}

net::Rank Batcher::append(Bytes key, Bytes value) {
  const Hash hash = hash_bytes(key);
  const net::Rank home = home_of(hash, key);
  if (home < 0) [[unlikely]]
    return kNowhere;
  net::Rank destination = 0;
  char* const at = place_for(home, run::encoded_record_bytes(key.size(), value.size()), &destination);
  if (at == nullptr) return destination;

  ++tally_.records;
  const size_t row_bytes = key.size() + value.size();
  tally_.data_bytes += row_bytes;
  if (run::has_quick_sizes(key, value)) [[likely]] {
    tally_.digest += run::encode_quick_record(key, value, at);
  } else {
    const char* const end = run::encode_record(key, value, at);
    tally_.digest += record_digest({end - row_bytes, row_bytes}, key.size());
  }
  return kAccepted;
}

net::Rank Batcher::append(const run::RecordView& record) {
  const net::Rank home = home_of(hash_bytes(record.key), record.key);
  if (home < 0) return kNowhere;
  net::Rank destination = 0;
  char* const at = place_for(home, record.encoded.size(), &destination);
  if (at == nullptr) return destination;
  record.encoded.copy(at, record.encoded.size());
  tally_.add({1, record.row().size(), run::record_digest(record)});
  return kAccepted;
}

net::Frame Batcher::exchange(net::Rank destination, net::Frame next) {
  net::Frame taken = frames_[static_cast<size_t>(destination)];
  frames_[static_cast<size_t>(destination)] = next;
  return taken;
}

void Batcher::begin_epoch() {
  for ([[maybe_unused]] const net::Frame& frame : frames_) assert(frame.bytes == 0);
  records_per_rank_.assign(records_per_rank_.size(), 0);
  tally_ = {};
}

}  // namespace swale::imd
