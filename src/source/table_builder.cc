#include "source/table_builder.h"

#include <algorithm>
#include <cassert>

namespace swale::source {
namespace {

Result<TableSummary> build_cuckoo(PairStore* store, const TableParams& params, const ByteSink& sink) {
  CuckooBuilder builder(std::max<uint64_t>(store->pairs(), 1), params.source_bits());
  uint64_t keys = 0;
  uint64_t count = 0;
  const uint32_t bits = shard_bits_for(store->pairs(), kShardKeysMax);
  SWALE_RETURN_IF_ERROR(store->each_shard(bits, [&](uint32_t, std::span<const Pair> pairs) {
    uint64_t last = kHashEnd;
    for (const Pair pair : pairs) {
      builder.add(pair);
      keys += pair_hash(pair) != last ? 1 : 0;
      last = pair_hash(pair);
    }
    count += pairs.size();
    return ok_status();
  }));
  TableWriter writer(params, 0, sink);
  std::vector<Pair> rest;
  for (const CuckooTable& table : builder.finish(&rest)) SWALE_RETURN_IF_ERROR(writer.add_cuckoo(table));
  if (!rest.empty()) SWALE_RETURN_IF_ERROR(writer.add_cuckoo_rest(rest));
  return writer.finish(keys, count);
}

// Filters the pairs of base shards and cuts what is left into shards of the delta.
class DeltaBuilder {
 public:
  DeltaBuilder(uint64_t pairs, const TableParams& params, const TableReader& base, const ByteSink& sink)
      : all_pairs_(pairs), params_(params), base_(base), sink_(sink) {}

  Status take(uint32_t base_shard, std::span<const Pair> pairs) {
    SWALE_RETURN_IF_ERROR(filter(base_shard, pairs));
    seen_ += pairs.size();
    const uint32_t done = base_shard + 1;
    if (!writer_.has_value()) {
      const uint32_t shards = base_.trailer().shard_count;
      if (done < shards && (uint64_t{done} * kSampleShare < shards || seen_ < kSamplePairs))
        return ok_status();
      if (!choose()) {
        return error(Code::kAborted, Scope::kOperation, "the delta would be too large");
      }
    }
    return write_until(done);
  }

  bool too_large() const { return too_large_; }
  Result<TableSummary> finish() { return writer_->finish(); }

 private:
  static constexpr uint32_t kSampleShare = 64;
  static constexpr uint64_t kSamplePairs = 100'000;

  Status filter(uint32_t base_shard, std::span<const Pair> pairs) {
    SWALE_RETURN_IF_ERROR(base_.read_shard(base_shard, &bytes_));
    SWALE_ASSIGN_OR_RETURN(const Shard shard, base_.open_shard(bytes_, base_shard));
    uint64_t asked = kHashEnd;
    for (const Pair pair : pairs) {
      if (pair_hash(pair) != asked) {
        asked = pair_hash(pair);
        known_.clear();
        shard.candidates(asked, &known_);
      }
      if (std::find(known_.begin(), known_.end(), pair_source(pair)) == known_.end()) kept_.push_back(pair);
    }
    return ok_status();
  }

  // Whether to go on. The sample tells how many pairs the delta will have.
  bool choose() {
    const uint64_t expected = seen_ == 0 ? 0 : kept_.size() * all_pairs_ / seen_;
    const TableParams& full = base_.trailer().params;
    if (expected * params_.value_bits() * 2 > all_pairs_ * full.value_bits()) {
      too_large_ = true;
      return false;
    }
    shard_bits_ = std::min(shard_bits_for(expected, kShardKeysMax), base_.trailer().shard_bits);
    writer_.emplace(params_, shard_bits_, sink_);
    return true;
  }

  // Writes the delta's shards whose base shards are all done.
  Status write_until(uint32_t base_shards_done) {
    const uint32_t ratio_bits = base_.trailer().shard_bits - shard_bits_;
    size_t from = 0;
    while (writer_->next_shard() < base_shards_done >> ratio_bits) {
      const uint32_t number = writer_->next_shard();
      size_t end = from;
      while (end < kept_.size() && shard_number(pair_hash(kept_[end]), shard_bits_) == number) ++end;
      SWALE_RETURN_IF_ERROR(writer_->add_shard(std::span(kept_).subspan(from, end - from)));
      from = end;
    }
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(from));
    return ok_status();
  }

  uint64_t all_pairs_;
  TableParams params_;
  const TableReader& base_;
  const ByteSink& sink_;
  std::optional<TableWriter> writer_;  // once the sample has been taken
  uint32_t shard_bits_ = 0;
  uint64_t seen_ = 0;
  bool too_large_ = false;
  std::vector<Pair> kept_;  // not written yet
  std::string bytes_;
  std::vector<uint32_t> known_;
};

}  // namespace

uint32_t shard_bits_for(uint64_t pairs, uint32_t shard_keys) {
  uint32_t bits = 0;
  while (bits < kShardBitsMax && pairs >> bits > shard_keys) ++bits;
  return bits;
}

Result<TableSummary> build_table(PairStore* store, const TableParams& params, const ByteSink& sink,
                                 uint32_t shard_keys) {
  SWALE_RETURN_IF_ERROR(check_params(params));
  if (params.base_id != 0) return invalid_argument("auxiliary table: a table of its own has no base");
  if (params.scheme == Scheme::kCuckoo) return build_cuckoo(store, params, sink);
  const uint32_t bits = shard_bits_for(store->pairs(), shard_keys);
  TableWriter writer(params, bits, sink);
  SWALE_RETURN_IF_ERROR(store->each_shard(
      bits, [&](uint32_t, std::span<const Pair> pairs) { return writer.add_shard(pairs); }));
  return writer.finish();
}

Result<std::optional<TableSummary>> build_delta(PairStore* store, const TableParams& params,
                                                const TableReader& base, const ByteSink& sink) {
  SWALE_RETURN_IF_ERROR(check_params(params));
  const TableParams& full = base.trailer().params;
  if (params.base_id == 0 || params.base_id != full.table_id || full.base_id != 0 ||
      params.scheme == Scheme::kCuckoo || full.scheme == Scheme::kCuckoo || params.sources != full.sources) {
    return invalid_argument("auxiliary table: {} is no base for a delta of table {:x} with {} sources",
                            base.where(), params.base_id, params.sources);
  }
  DeltaBuilder builder(store->pairs(), params, base, sink);
  const Status status = store->each_shard(
      base.trailer().shard_bits,
      [&](uint32_t shard, std::span<const Pair> pairs) { return builder.take(shard, pairs); });
  if (builder.too_large()) return std::optional<TableSummary>();
  SWALE_RETURN_IF_ERROR(status);
  SWALE_ASSIGN_OR_RETURN(const TableSummary summary, builder.finish());
  return std::optional<TableSummary>(summary);
}

Status epoch_candidates(const TableReader& table, const TableReader* base, uint64_t kept,
                        std::vector<uint32_t>* out, TableReader::Cost* cost) {
  const uint64_t base_id = table.trailer().params.base_id;
  if (base_id != 0 && (base == nullptr || base->trailer().params.table_id != base_id)) {
    return corruption("{}: its base table {:x} is missing", table.where(), base_id);
  }
  const size_t from = out->size();
  SWALE_RETURN_IF_ERROR(table.candidates(kept, out, cost));
  if (base_id == 0) return ok_status();
  if (Status status = base->candidates(kept, out, cost); !status.ok()) {
    out->resize(from);
    return status;
  }
  sort_candidates(out, from);
  return ok_status();
}

}  // namespace swale::source
