#include "source/cuckoo.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "source/bit_stream.h"
#include "source/ribbon.h"

namespace swale::source {
namespace {

constexpr uint32_t kMovesMax = 500;  // the paper's "typically 500"
constexpr uint64_t kSlotsMax = uint64_t{1} << 30;
constexpr uint64_t kSlotsMin = 128;

struct Partial {
  uint32_t bucket;
  uint64_t fingerprint;  // not 0: an empty slot has 0
};

Partial partial_key(uint64_t kept, uint32_t buckets) {
  const uint64_t mixed = next_fraction(kept, 7);
  const uint64_t fingerprint = mixed >> (64 - kCuckooFingerprintBits);
  return {static_cast<uint32_t>(mixed) & (buckets - 1), fingerprint == 0 ? 1 : fingerprint};
}

uint32_t other_bucket(uint32_t bucket, uint64_t fingerprint, uint32_t buckets) {
  return (bucket ^ static_cast<uint32_t>(fingerprint * 0x5bd1e995)) & (buckets - 1);
}

uint32_t buckets_for(uint64_t slots) {
  return static_cast<uint32_t>(std::clamp(slots, kSlotsMin, kSlotsMax) / kCuckooSlotsPerBucket);
}

// 95 % of the slots of a table can be used (the paper).
uint64_t slots_of(uint64_t pairs) { return std::bit_ceil(pairs * 20 / 19 + 1); }

// The first table for so many pairs: the one that takes them all, unless a table of half its size or less and
// a side table for the rest take fewer slots.
uint64_t first_slots(uint64_t pairs) {
  const uint64_t all = slots_of(pairs);
  const uint64_t less = std::bit_floor(std::max<uint64_t>(pairs, 1));
  const uint64_t taken = less * 19 / 20;
  return taken >= pairs || less + slots_of(pairs - taken) >= all ? all : less;
}

}  // namespace

CuckooTable::CuckooTable(uint32_t buckets, uint32_t source_bits) : shape_{buckets, source_bits} {
  assert(std::has_single_bit(buckets));
  slots_.resize(shape_.slot_bytes() + kSlackBytes);
}

uint64_t CuckooTable::slot(uint64_t index) const {
  return load_bits(slots_.data(), index * shape_.slot_bits(), shape_.slot_bits());
}

void CuckooTable::set_slot(uint64_t index, uint64_t value) {
  const uint64_t bit = index * shape_.slot_bits();
  char* const at = slots_.data() + bit / 8;
  const uint64_t mask = low_bits(shape_.slot_bits()) << bit % 8;
  put_u64(at, (get_u64(at) & ~mask) | value << bit % 8);
}

bool CuckooTable::put(uint32_t bucket, uint64_t value) {
  for (uint32_t i = 0; i < kCuckooSlotsPerBucket; ++i) {
    const uint64_t index = uint64_t{bucket} * kCuckooSlotsPerBucket + i;
    const uint64_t there = slot(index);
    if (there == value) return true;
    if (there != 0) continue;
    set_slot(index, value);
    ++used_;
    return true;
  }
  return false;
}

bool CuckooTable::add(Pair pair) {
  if (full_) return false;
  const uint32_t buckets = shape_.buckets;
  const Partial partial = partial_key(pair_hash(pair), buckets);
  uint64_t value = partial.fingerprint << shape_.source_bits | pair_source(pair);
  if (put(partial.bucket, value)) return true;
  uint32_t bucket = other_bucket(partial.bucket, partial.fingerprint, buckets);
  for (uint32_t move = 0; move < kMovesMax; ++move) {
    if (put(bucket, value)) return true;
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    const uint64_t index = uint64_t{bucket} * kCuckooSlotsPerBucket + (random_ >> 40) % kCuckooSlotsPerBucket;
    const uint64_t displaced = slot(index);
    set_slot(index, value);
    value = displaced;
    bucket = other_bucket(bucket, value >> shape_.source_bits, buckets);
  }
  full_ = true;
  victim_bucket_ = bucket;
  victim_ = static_cast<uint32_t>(value);
  return true;
}

void CuckooTable::append_to(std::string* out) const {
  out->append(slots_, 0, shape_.slot_bytes());
  append_u32(out, victim_bucket_);
  append_u32(out, victim_);
}

void CuckooView::candidates(uint64_t kept, std::vector<uint32_t>* out) const {
  const Partial partial = partial_key(kept, shape_.buckets);
  const uint32_t other = other_bucket(partial.bucket, partial.fingerprint, shape_.buckets);
  const uint32_t width = shape_.slot_bits();
  const auto take = [&](uint64_t value) {
    if (value >> shape_.source_bits != partial.fingerprint) return;
    out->push_back(static_cast<uint32_t>(value & low_bits(shape_.source_bits)));
  };
  const auto look = [&](uint32_t bucket) {
    for (uint32_t i = 0; i < kCuckooSlotsPerBucket; ++i) {
      take(load_bits(bytes_, (uint64_t{bucket} * kCuckooSlotsPerBucket + i) * width, width));
    }
  };
  look(partial.bucket);
  if (other != partial.bucket) look(other);
  const char* const victim = bytes_ + shape_.slot_bytes();
  const uint32_t bucket = get_u32(victim);
  if (bucket == partial.bucket || bucket == other) take(get_u32(victim + 4));
}

CuckooBuilder::CuckooBuilder(uint64_t pairs, uint32_t source_bits) : source_bits_(source_bits) {
  tables_.emplace_back(buckets_for(first_slots(pairs)), source_bits);
}

void CuckooBuilder::add(Pair pair) {
  if (!tables_.back().add(pair)) left_.push_back(pair);
}

std::vector<CuckooTable> CuckooBuilder::finish(std::vector<Pair>* rest) {
  size_t next = 0;
  while (next < left_.size()) {
    const uint64_t slots = first_slots(left_.size() - next);
    tables_.emplace_back(buckets_for(slots), source_bits_);
    while (next < left_.size() && tables_.back().add(left_[next])) ++next;
    if (next < left_.size() && uint64_t{tables_.back().used_slots()} * 2 < slots) break;
  }
  rest->assign(left_.begin() + static_cast<ptrdiff_t>(next), left_.end());
  return std::move(tables_);
}

}  // namespace swale::source
