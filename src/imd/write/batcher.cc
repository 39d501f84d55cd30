#include "imd/write/batcher.h"

#include <cassert>
#include <utility>

namespace swale::imd {

Batcher::Batcher(int32_t ranks, Partitioner partitioner)
    : frames_(static_cast<size_t>(ranks)),
      records_per_rank_(static_cast<size_t>(ranks)),
      partitioner_(std::move(partitioner)) {}

net::Rank Batcher::home_of(Hash hash, Bytes key) const {
  const auto ranks = static_cast<uint32_t>(frames_.size());
  if (partitioner_.by_hash()) [[likely]]
    return static_cast<net::Rank>(choose(hash, ranks).index);
  const uint32_t home = partitioner_.ask(key, ranks);
  return home < ranks ? static_cast<net::Rank>(home) : kNowhere;
}

net::Rank Batcher::append(Bytes key, Bytes value) {
  const Hash hash = hash_bytes(key);
  const net::Rank home = home_of(hash, key);
  if (home < 0) [[unlikely]]
    return kNowhere;
  const auto destination = static_cast<size_t>(home);
  net::Frame& frame = frames_[destination];
  const size_t encoded_bytes = run::encoded_record_bytes(key.size(), value.size());
  if (frame.capacity - frame.bytes < encoded_bytes) return static_cast<net::Rank>(destination);

  const char* const end = run::encode_record(key, value, frame.data + frame.bytes);
  frame.bytes += static_cast<uint32_t>(encoded_bytes);
  ++records_per_rank_[destination];
  ++tally_.records;
  const size_t row_bytes = key.size() + value.size();
  tally_.data_bytes += row_bytes;
  tally_.digest += record_digest({end - row_bytes, row_bytes}, key.size());
  return kAccepted;
}

net::Rank Batcher::append(const run::RecordView& record) {
  const net::Rank home = home_of(hash_bytes(record.key), record.key);
  if (home < 0) return kNowhere;
  const auto destination = static_cast<size_t>(home);
  net::Frame& frame = frames_[destination];
  if (frame.capacity - frame.bytes < record.encoded.size()) return static_cast<net::Rank>(destination);
  record.encoded.copy(frame.data + frame.bytes, record.encoded.size());
  frame.bytes += static_cast<uint32_t>(record.encoded.size());
  ++records_per_rank_[destination];
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
