#include "source/table_writer.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/coding.h"

namespace swale::source {

TableWriter::TableWriter(const TableParams& params, uint32_t shard_bits, ByteSink sink)
    : params_(params), shard_bits_(shard_bits), sink_(std::move(sink)), builder_(params, shard_bits) {
  assert(check_params(params).ok() && shard_bits <= kShardBitsMax);
}

Status TableWriter::put_shard() {
  const uint64_t end = summary_.bytes + shard_.size();
  if (end + index_.size() + 4 + kTrailerBytes > kTableBytesMax) {
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "auxiliary table of epoch {}: more than {} bytes; use more ranks or shorter epochs",
                 params_.epoch, kTableBytesMax);
  }
  append_u32(&index_, static_cast<uint32_t>(end));
  SWALE_RETURN_IF_ERROR(sink_(shard_));
  summary_.bytes = end;
  summary_.shard_bytes_max = std::max(summary_.shard_bytes_max, static_cast<uint32_t>(shard_.size()));
  ++summary_.shards;
  return ok_status();
}

Status TableWriter::add_shard(std::span<const Pair> pairs) {
  assert(params_.scheme != Scheme::kCuckoo && summary_.shards < uint32_t{1} << shard_bits_);
  assert(pairs.empty() || (shard_number(pair_hash(pairs.front()), shard_bits_) == summary_.shards &&
                           shard_number(pair_hash(pairs.back()), shard_bits_) == summary_.shards));
  const ShardBuilder::Counts counts = builder_.build(pairs, summary_.shards, &shard_);
  summary_.keys += counts.keys;
  summary_.pairs += pairs.size();
  summary_.extras += counts.extras;
  summary_.bumped += counts.bumped;
  return put_shard();
}

Status TableWriter::add_cuckoo(const CuckooTable& table) {
  assert(params_.scheme == Scheme::kCuckoo && shard_bits_ == 0);
  build_cuckoo_shard(table, params_, summary_.shards, &shard_);
  return put_shard();
}

Status TableWriter::add_cuckoo_rest(std::span<const Pair> pairs) {
  assert(params_.scheme == Scheme::kCuckoo && shard_bits_ == 0);
  builder_.build(pairs, summary_.shards, &shard_);
  return put_shard();
}

Result<TableSummary> TableWriter::finish(uint64_t cuckoo_keys, uint64_t cuckoo_pairs) {
  assert(params_.scheme == Scheme::kCuckoo || summary_.shards == uint32_t{1} << shard_bits_);
  summary_.keys += cuckoo_keys;
  summary_.pairs += cuckoo_pairs;
  TableTrailer trailer;
  trailer.params = params_;
  trailer.shard_bits = shard_bits_;
  trailer.shard_count = summary_.shards;
  trailer.keys = summary_.keys;
  trailer.pairs = summary_.pairs;
  trailer.index_crc = index_crc(params_.table_id, index_);
  index_ += encode_trailer(trailer);
  SWALE_RETURN_IF_ERROR(sink_(index_));
  summary_.bytes += index_.size();
  return summary_;
}

}  // namespace swale::source
