#include "source/pair_store.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace swale::source {
namespace {

constexpr uint64_t kRangePairsMin = 8'192;
constexpr uint64_t kRangePairsMax = 65'536;        // twice 512 KiB: still in a second-level cache
constexpr uint64_t kCursorsMin = 1'000;            // of a chunk
constexpr uint64_t kPairBytes = 2 * sizeof(Pair);  // the pair, and its place in the scratch

}  // namespace

Result<PairStore> PairStore::create(const Params& params) {
  if (params.sources < 1 || params.sources > kSourcesMax || params.memory_limit < kMemoryMin) {
    return invalid_argument("keys of an epoch: {} sources (1 to {}) in {} bytes of memory (at least {})",
                            params.sources, kSourcesMax, params.memory_limit, kMemoryMin);
  }
  return PairStore(params);
}

PairStore::PairStore(const Params& params)
    : params_(params),
      chunk_bytes_(std::clamp<size_t>(params.memory_limit / 32, kBatchBytesMax + kSlackBytes, kMiB)),
      buckets_(size_t{1} << kBucketBits),
      buckets_in_memory_(size_t{1} << kBucketBits) {}

uint64_t PairStore::spilled_bytes() const { return spill_end_; }

uint64_t PairStore::range_pairs() const {
  return std::clamp(params_.memory_limit / 512, kRangePairsMin, kRangePairsMax);
}

uint64_t PairStore::memory_bytes() const {
  uint64_t bytes = 2 * buckets_.size() * sizeof(uint32_t) + kBuilderBytes;
  for (const Chunk& chunk : chunks_) bytes += chunk.size;
  bytes += batches_ * sizeof(BatchCursor);
  bytes += runs_.size() * (kSpillBlockBytes + sizeof(SpillCursor) + sizeof(SpillRun));
  const uint32_t hottest = *std::max_element(buckets_.begin(), buckets_.end());
  return bytes + std::max<uint64_t>(hottest, range_pairs()) * kPairBytes;
}

Status PairStore::add(Bytes batch) {
  SWALE_ASSIGN_OR_RETURN(const BatchHeader header, decode_batch_header(batch));
  if (header.bytes != batch.size() || header.epoch != params_.epoch || header.source >= params_.sources) {
    return error(
        Code::kCorruption, Scope::kPeer,
        "batch of keys of source {}, epoch {}, {} bytes: expected a source below {}, epoch {}, {} bytes",
        header.source, header.epoch, header.bytes, params_.sources, params_.epoch, batch.size());
  }
  return add_verified(header, batch);
}

Status PairStore::add_pairs(std::span<Pair> pairs, std::span<Pair> scratch) {
  if (pairs.empty()) return ok_status();
  mixed_.clear();
  const auto source_bits = static_cast<uint32_t>(std::bit_width(params_.sources));
  const BatchHeader header = encode_mixed_batch(source_bits, pairs, scratch, &mixed_);
  return add_verified(header, mixed_);
}

Status PairStore::add_verified(const BatchHeader& header, Bytes batch) {
  if (pairs_ + header.count > UINT32_MAX) {
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "epoch {}: more than {} keys at one rank; use more ranks or shorter epochs", params_.epoch,
                 UINT32_MAX);
  }
  SWALE_RETURN_IF_ERROR(make_room(batch.size() + kSlackBytes));
  Chunk& chunk = chunks_.back();
  char* const at = chunk.bytes.get() + chunk.used;
  std::memcpy(at, batch.data(), batch.size());
  SWALE_RETURN_IF_ERROR(count(header, at));
  chunk.used += batch.size();
  ++batches_;
  pairs_ += header.count;
  pairs_in_memory_ += header.count;
  return ok_status();
}

// Batches lie one right after the other; the next one, or the chunk's end, is the slack of each.
Status PairStore::make_room(size_t bytes) {
  const bool fits = !chunks_.empty() && chunks_.back().size - chunks_.back().used >= bytes;
  if (fits && batches_ < batches_max_) return ok_status();
  const uint64_t next_bytes = memory_bytes() + chunk_bytes_ + kCursorsMin * sizeof(BatchCursor);
  if (!chunks_.empty() && (fits || next_bytes > params_.memory_limit)) {
    if (params_.spill_file == nullptr) {
      return error(
          Code::kResourceExhausted, Scope::kOperation,
          "epoch {}: {} keys take {} bytes of memory, the limit is {}, and there is no file to spill to",
          params_.epoch, pairs_, memory_bytes(), params_.memory_limit);
    }
    SWALE_RETURN_IF_ERROR(spill());
  }
  return add_chunk();
}

Status PairStore::add_chunk() {
  Chunk chunk;
  chunk.size = chunk_bytes_;
  chunk.bytes = std::make_unique<char[]>(chunk.size);
  chunks_.push_back(std::move(chunk));
  // Small batches need nearly as much memory for their cursors as for themselves.
  const uint64_t used = memory_bytes();
  const uint64_t left = params_.memory_limit > used ? params_.memory_limit - used : 0;
  batches_max_ = batches_ + std::max<uint64_t>(left / sizeof(BatchCursor), kCursorsMin);
  return ok_status();
}

// Counts the keys of a batch by buckets; nothing of a batch that is not well-formed.
Status PairStore::count(const BatchHeader& header, const char* batch) {
  constexpr uint32_t kShift = kHashBits - kBucketBits;
  BatchCursor cursor(header, batch);
  uint32_t counted = 0;
  for (; !cursor.at_end(); cursor.advance(), ++counted) {
    const uint64_t bucket = cursor.hash() >> kShift;
    ++buckets_[bucket];
    ++buckets_in_memory_[bucket];
  }
  if (!cursor.malformed()) return ok_status();
  BatchCursor again(header, batch);
  for (uint32_t i = 0; i < counted; ++i, again.advance()) {
    const uint64_t bucket = again.hash() >> kShift;
    --buckets_[bucket];
    --buckets_in_memory_[bucket];
  }
  return error(Code::kCorruption, Scope::kPeer,
               "batch of {} keys of source {}: its codes do not fit its {} bytes", header.count,
               header.source, header.bytes);
}

void PairStore::open_batches(std::vector<BatchCursor>* cursors) const {
  cursors->reserve(batches_);
  for (const Chunk& chunk : chunks_) {
    size_t at = 0;
    while (at < chunk.used) {
      const char* const batch = chunk.bytes.get() + at;
      const BatchHeader header = read_batch_header(batch);
      cursors->emplace_back(header, batch);
      at += header.bytes;
    }
  }
}

// Decodes ranges of hash space, of which each begins where the one before has ended.
struct PairStore::Range {
  std::vector<BatchCursor> batches;
  std::vector<SpillCursor> runs;
  std::vector<Pair> pairs;
  std::vector<Pair> scratch;
  std::vector<uint32_t> starts;

  // Forgets what is there, so that old and new memory are not held together.
  void make_space(uint64_t count) {
    if (pairs.size() >= count) return;
    std::vector<Pair>().swap(pairs);
    std::vector<Pair>().swap(scratch);
    pairs.resize(count);
    scratch.resize(count);
  }

  // The pairs below `limit` that have not been taken yet. Requires space for them.
  Result<size_t> collect(uint64_t limit) {
    Pair* end = pairs.data();
    for (BatchCursor& batch : batches) end = batch.take_below(limit, end);
    for (SpillCursor& run : runs) SWALE_RETURN_IF_ERROR(run.take_below(limit, &end));
    return static_cast<size_t>(end - pairs.data());
  }

  // Sorts the first `count` pairs, which begin with the same `shard_bits` bits but for the last of them,
  // which say the shard from `first` on; hands out each shard.
  Status hand_out(size_t count, uint32_t shard_bits, uint32_t first, uint32_t shards, const TakeShard& take) {
    starts.assign(size_t{shards} + 1, 0);
    for (size_t i = 0; i < count; ++i) {
      ++starts[shard_number(pairs[i]) - first + 1];
    }
    for (size_t i = 1; i <= shards; ++i) starts[i] += starts[i - 1];
    for (size_t i = 0; i < count; ++i) scratch[starts[shard_number(pairs[i]) - first]++] = pairs[i];
    size_t begin = 0;
    for (uint32_t i = 0; i < shards; ++i) {
      const size_t end = starts[i];  // after scattering: where the next shard begins
      const std::span<Pair> shard(scratch.data() + begin, end - begin);
      sort_pairs(shard, std::span(pairs.data(), shard.size()), shard_bits);
      const auto last = std::unique(shard.begin(), shard.end());
      SWALE_RETURN_IF_ERROR(take(first + i, shard.first(static_cast<size_t>(last - shard.begin()))));
      begin = end;
    }
    return ok_status();
  }

  uint32_t shift = 0;  // 64 - shard_bits
  uint32_t shard_number(Pair pair) const { return shift == 64 ? 0 : static_cast<uint32_t>(pair >> shift); }
};

Status PairStore::check_hot_bucket() const {
  const uint32_t hottest = *std::max_element(buckets_.begin(), buckets_.end());
  if (hottest * kPairBytes <= std::max(params_.memory_limit / 2, range_pairs() * kPairBytes))
    return ok_status();
  return error(
      Code::kResourceExhausted, Scope::kOperation,
      "epoch {}: {} of {} keys fall into one 4,096th of the hash space (few keys, each written by many "
      "ranks) and do not fit half of {} bytes of memory: give the directory more memory",
      params_.epoch, hottest, pairs_, params_.memory_limit);
}

Status PairStore::each_shard(uint32_t shard_bits, const TakeShard& take) {
  assert(shard_bits <= 20);
  SWALE_RETURN_IF_ERROR(check_hot_bucket());
  Range range;
  range.shift = 64 - shard_bits;
  open_batches(&range.batches);
  for (const SpillRun& run : runs_) range.runs.emplace_back(params_.spill_file, run);
  // A unit is a bucket or a shard, whichever is larger.
  const uint32_t unit_bits = std::min(shard_bits, kBucketBits);
  const uint32_t units = uint32_t{1} << unit_bits;
  const uint32_t buckets_per_unit = uint32_t{1} << (kBucketBits - unit_bits);
  const uint32_t shards_per_unit = uint32_t{1} << (shard_bits - unit_bits);
  const auto pairs_of = [&](uint32_t unit) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < buckets_per_unit; ++i) sum += buckets_[unit * buckets_per_unit + i];
    return sum;
  };
  uint32_t first = 0;
  while (first < units) {
    uint64_t count = pairs_of(first);
    uint32_t end = first + 1;
    for (; end < units; ++end) {
      const uint64_t more = pairs_of(end);
      if (count + more > range_pairs()) break;
      count += more;
    }
    range.make_space(std::max(count, std::min(pairs_, range_pairs())));
    SWALE_ASSIGN_OR_RETURN(const size_t got, range.collect(uint64_t{end} << (kHashBits - unit_bits)));
    assert(got <= count);
    SWALE_RETURN_IF_ERROR(
        range.hand_out(got, shard_bits, first * shards_per_unit, (end - first) * shards_per_unit, take));
    first = end;
  }
  return ok_status();
}

// All batches in memory become a run. Until the run is written nothing changes but the file beyond
// spill_end_.
Status PairStore::spill() {
  SWALE_RETURN_IF_ERROR(check_hot_bucket());
  runs_.reserve(runs_.size() + 1);
  SpillWriter writer(params_.spill_file, spill_end_, pairs_in_memory_, params_.sources);
  Range range;
  range.shift = 64 - kBucketBits;
  open_batches(&range.batches);
  uint32_t first = 0;
  while (first < buckets_.size()) {
    uint64_t count = buckets_in_memory_[first];
    uint32_t end = first + 1;
    while (end < buckets_.size() && count + buckets_in_memory_[end] <= range_pairs()) {
      count += buckets_in_memory_[end++];
    }
    range.make_space(std::max(count, std::min(pairs_, range_pairs())));
    SWALE_ASSIGN_OR_RETURN(const size_t got, range.collect(uint64_t{end} << (kHashBits - kBucketBits)));
    SWALE_RETURN_IF_ERROR(
        range.hand_out(got, kBucketBits, first, end - first,
                       [&](uint32_t, std::span<const Pair> pairs) { return writer.add(pairs); }));
    first = end;
  }
  SWALE_ASSIGN_OR_RETURN(const SpillRun run, writer.finish());
  runs_.push_back(run);
  spill_end_ += run.bytes();
  chunks_.clear();
  batches_ = 0;
  pairs_in_memory_ = 0;
  std::fill(buckets_in_memory_.begin(), buckets_in_memory_.end(), 0);
  return ok_status();
}

}  // namespace swale::source
