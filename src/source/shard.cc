#include "source/shard.h"

#include <algorithm>
#include <cassert>

#include "source/bit_stream.h"

namespace swale::source {
namespace {

// DO NOT CHANGE: tables on disk depend on these.
constexpr uint64_t kFirstSeed = 0x1111;
constexpr uint64_t kSecondSeed = 0x2222;
constexpr uint64_t kThirdSeed = 0x3333;
constexpr uint64_t kSecondRound = 2;
constexpr uint64_t kThirdRounds = 100;  // the first of 256

constexpr size_t kSecondLayerKeysMin = 256;  // fewer bumped keys go to the third layer at once
constexpr uint32_t kSeedsMax = 255;
// A maplet that stands in for a ribbon has as few false candidates as this many bits more give.
constexpr uint32_t kStandInBits = 4;

uint32_t first_rows(
    size_t keys) {  // 2 % fewer rows than keys: so few keys are bumped that this takes least space
  return static_cast<uint32_t>(std::max<size_t>(kRibbonWidth, keys - keys / 50));
}
uint32_t second_rows(size_t keys) { return static_cast<uint32_t>(keys); }
uint32_t third_rows(size_t keys) {
  return static_cast<uint32_t>(std::max<size_t>(kRibbonWidth, keys + keys / 8 + 8));
}

std::vector<RibbonKey>& move_to_layer(std::span<const RibbonKey> keys, uint64_t round,
                                      std::vector<RibbonKey>* layer) {
  layer->clear();
  for (const RibbonKey& key : keys) layer->push_back({next_fraction(key.fraction, round), key.value});
  std::sort(layer->begin(), layer->end(),
            [](const RibbonKey& a, const RibbonKey& b) { return a.fraction < b.fraction; });
  return *layer;
}

}  // namespace

void ShardBuilder::split(std::span<const Pair> pairs) {
  keys_.clear();
  extras_.clear();
  const ValueCode code(params_);
  uint64_t previous = kHashEnd;
  for (const Pair pair : pairs) {
    const uint64_t kept = pair_hash(pair);
    const uint64_t fraction = shard_fraction(kept, shard_bits_);
    if (kept == previous) {
      extras_.push_back({fraction, pair_source(pair)});
    } else {
      keys_.push_back({fraction, code.encode(fraction, pair_source(pair))});
    }
    previous = kept;
  }
}

ShardBuilder::Counts ShardBuilder::build(std::span<const Pair> pairs, uint32_t number, std::string* out) {
  out->assign(kShardHeaderBytes, '\0');
  ShardHeader header;
  split(pairs);
  Counts counts{static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(extras_.size()), 0};
  const bool as_ribbon = params_.scheme == Scheme::kRibbon && keys_.size() >= kRibbonKeysMin &&
                         extras_.size() * 100 <= keys_.size() * kExtrasPercentMax &&
                         append_ribbon(&header, &counts, out);
  if (!as_ribbon && !pairs.empty()) {
    out->resize(kShardHeaderBytes);
    append_all_as_maplet(pairs, &header, out);
  }
  out->append(kSlackBytes, '\0');
  seal_shard(header, params_.table_id, number, *out);
  return counts;
}

bool ShardBuilder::append_ribbon(ShardHeader* header, Counts* counts, std::string* out) {
  *header = ShardHeader();
  header->kind = ShardKind::kRibbon;
  header->entries = counts->keys;
  header->extras = counts->extras;
  header->rows[0] = first_rows(keys_.size());
  bumped_.clear();
  solver_.solve_bumping(keys_, header->rows[0], kFirstSeed, out, &bumped_);
  solver_.append_rows(params_.value_bits(), out);
  counts->bumped = static_cast<uint32_t>(bumped_.size());
  if (bumped_.size() > kSecondLayerKeysMin) {
    move_to_layer(bumped_, kSecondRound, &layer_);
    header->rows[1] = second_rows(layer_.size());
    bumped_.clear();
    solver_.solve_bumping(layer_, header->rows[1], kSecondSeed, out, &bumped_);
    solver_.append_rows(params_.value_bits(), out);
  }
  if (!bumped_.empty() && !append_last_layer(bumped_, header, out)) return false;
  if (!extras_.empty()) {
    append_maplet(extras_, {header->extras, kExtraRemainderBits, params_.source_bits()}, out);
  }
  return true;
}

bool ShardBuilder::append_last_layer(std::span<const RibbonKey> keys, ShardHeader* header, std::string* out) {
  header->rows[2] = third_rows(keys.size());
  for (uint32_t seed = 0; seed <= kSeedsMax; ++seed) {
    move_to_layer(keys, kThirdRounds + seed, &last_);
    if (!solver_.solve_all(last_, header->rows[2], kThirdSeed)) continue;
    header->seed = static_cast<uint8_t>(seed);
    solver_.append_rows(params_.value_bits(), out);
    return true;
  }
  return false;
}

void ShardBuilder::append_all_as_maplet(std::span<const Pair> pairs, ShardHeader* header, std::string* out) {
  *header = ShardHeader();
  header->kind = ShardKind::kMaplet;
  header->entries = static_cast<uint32_t>(pairs.size());
  header->remainder_bits =
      static_cast<uint8_t>(params_.fingerprint_bits + (params_.scheme == Scheme::kRibbon ? kStandInBits : 0));
  extras_.clear();
  for (const Pair pair : pairs) {
    extras_.push_back({shard_fraction(pair_hash(pair), shard_bits_), pair_source(pair)});
  }
  append_maplet(extras_, {header->entries, header->remainder_bits, params_.source_bits()}, out);
}

void build_cuckoo_shard(const CuckooTable& table, const TableParams& params, uint32_t number,
                        std::string* out) {
  out->assign(kShardHeaderBytes, '\0');
  table.append_to(out);
  out->append(kSlackBytes, '\0');
  ShardHeader header;
  header.kind = ShardKind::kCuckoo;
  header.entries = table.used_slots();
  header.rows[0] = table.shape().buckets;
  seal_shard(header, params.table_id, number, *out);
}

Result<Shard> Shard::open(Bytes bytes, const TableParams& params, uint32_t shard_bits, uint32_t number,
                          std::string_view where) {
  SWALE_ASSIGN_OR_RETURN(const ShardHeader header,
                         decode_shard_header(bytes, params.table_id, number, where));
  Shard shard(params, shard_bits, header);
  bool fits = bytes.size() >= kShardHeaderBytes + kSlackBytes;
  if (fits) {
    const Bytes body = bytes.substr(kShardHeaderBytes, bytes.size() - kShardHeaderBytes - kSlackBytes);
    shard.body_ = body.data();
    switch (header.kind) {
      case ShardKind::kEmpty:
        fits = body.empty();
        break;
      case ShardKind::kRibbon:
        fits = shard.place_ribbon(body, params);
        break;
      case ShardKind::kMaplet:
        fits = shard.place_maplet(body, params);
        break;
      case ShardKind::kCuckoo:
        fits = shard.place_cuckoo(body, params);
        break;
      default:
        fits = false;
    }
  }
  if (!fits) {
    return corruption("{}: shard {} of an auxiliary table: kind {} with {} entries does not fit its {} bytes",
                      where, number, static_cast<int>(header.kind), header.entries, bytes.size());
  }
  return shard;
}

bool Shard::place_ribbon(Bytes body, const TableParams& params) {
  uint64_t at = 0;
  for (size_t i = 0; i < 3; ++i) {
    const uint32_t rows = header_.rows[i];
    if (rows == 0) continue;
    if (rows < kRibbonWidth) return false;
    const uint64_t thresholds = i < 2 ? threshold_bytes(rows) : 0;
    const uint64_t bytes = thresholds + row_bytes(rows, value_bits_);
    if (bytes > body.size() - at) return false;
    layers_[i] = {body.data() + at, body.data() + at + thresholds};
    at += bytes;
  }
  const MapletShape shape{header_.extras, kExtraRemainderBits, params.source_bits()};
  return header_.rows[0] != 0 && shape.bytes() == body.size() - at && maplet_.open(shape, body.data() + at);
}

bool Shard::place_maplet(Bytes body, const TableParams& params) {
  const MapletShape shape{header_.entries, header_.remainder_bits, params.source_bits()};
  return header_.remainder_bits <= kFingerprintBitsMax + kStandInBits && shape.bytes() == body.size() &&
         maplet_.open(shape, body.data());
}

bool Shard::place_cuckoo(Bytes body, const TableParams& params) {
  cuckoo_ = {header_.rows[0], params.source_bits()};
  return cuckoo_.buckets != 0 && (cuckoo_.buckets & (cuckoo_.buckets - 1)) == 0 &&
         cuckoo_.bytes() == body.size();
}

bool Shard::ribbon_answer(uint64_t fraction, uint32_t* value) const {
  constexpr uint64_t kSeeds[2] = {kFirstSeed, kSecondSeed};
  for (size_t i = 0; i < 2; ++i) {
    if (header_.rows[i] == 0) continue;
    if (i == 1) fraction = next_fraction(fraction, kSecondRound);
    const uint64_t start = high_product(fraction, start_rows(header_.rows[i]));
    if (is_bumped(layers_[i].thresholds, start)) continue;
    *value = ribbon_value(layers_[i].rows, start, ribbon_coefficients(fraction, kSeeds[i]), value_bits_);
    return true;
  }
  if (header_.rows[2] == 0) return false;
  fraction = next_fraction(fraction, kThirdRounds + header_.seed);
  const uint64_t start = high_product(fraction, start_rows(header_.rows[2]));
  *value = ribbon_value(layers_[2].rows, start, ribbon_coefficients(fraction, kThirdSeed), value_bits_);
  return true;
}

void Shard::candidates(uint64_t kept, std::vector<uint32_t>* out) const {
  const uint64_t fraction = shard_fraction(kept, shard_bits_);
  switch (header_.kind) {
    case ShardKind::kEmpty:
      break;
    case ShardKind::kRibbon: {
      uint32_t value = 0;
      uint32_t source = 0;
      if (ribbon_answer(fraction, &value) && code_.decode(fraction, value, &source)) out->push_back(source);
      maplet_.candidates(fraction, out);
      break;
    }
    case ShardKind::kMaplet:
      maplet_.candidates(fraction, out);
      break;
    case ShardKind::kCuckoo:
      CuckooView(cuckoo_, body_).candidates(kept, out);
      break;
  }
}

}  // namespace swale::source
