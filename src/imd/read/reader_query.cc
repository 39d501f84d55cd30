#include "imd/read/reader_query.h"

#include <algorithm>
#include <utility>

#include "imd/read/reader_sort.h"
#include "run/block.h"

namespace swale::imd {
namespace {

constexpr size_t kCacheLineBytes = 64;

void prefetch(const char* bytes, size_t count) {
  for (size_t at = 0; at < count; at += kCacheLineBytes) __builtin_prefetch(bytes + at, 0, 2);
}

template <class T>
void trim_vector(std::vector<T>& items, size_t bytes_max) {
  items.clear();
  if (items.capacity() * sizeof(T) > bytes_max) items.shrink_to_fit();
}

}  // namespace

QueryMemory QueryMemory::backed() {
  QueryMemory memory;
  memory.slices.touch();
  memory.blocks.touch();
  return memory;
}

Query::Query(const ReaderFiles& files, const Manifest& manifest, PartitionCache& partitions,
             TableCache& tables, const Partitioners& partitioners, QueryMemory memory)
    : manifest_(manifest),
      rule_(manifest.layout.values()),
      partitions_(partitions),
      tables_(tables),
      partitioners_(partitioners),
      counters_(files.counters),
      cache_(files.options.cache.get()),
      slice_memory_(std::move(memory.slices)),
      block_memory_(std::move(memory.blocks)),
      reads_(files.device, files.options.reads_in_flight_max) {}

Status Query::run(std::span<const QueryKey> keys, EpochRange epochs, Sink& sink, const ClusterSet* clusters) {
  if (!reusable_) {
    return error(Code::kInternal, Scope::kOperation, "a query that did not end runs again; please report it");
  }
  reusable_ = false;
  sink_ = &sink;
  keys_ = keys;
  epochs_ = epochs;
  clusters_ = clusters;
  caches_blocks_ = cache_ != nullptr && keys.size() <= kKeysCachedMax;
  stopped_ = false;
  sequence_ = 0;
  footer_depth_ = table_depth_ = depth_ = 0;
  const Status status = run_all(epochs);
  settle_counters();
  reusable_ = status.ok() && !stopped_ && is_empty();
  return status;
}

Status Query::run_all(EpochRange epochs) {
  for (size_t first = 0; first < keys_.size() && !stopped_;) {
    const size_t end = first + keys_at_once(first, epochs);
    SWALE_RETURN_IF_ERROR(plan(first, end, epochs));
    if (!stopped_) SWALE_RETURN_IF_ERROR(flush());
    first = end;
  }
  return {};
}

// Looks up all that was planned: as many visits at a time as have kRestsMax rests, but at least one.
Status Query::flush() {
  for (auto visit = visits_.begin(); visit != visits_.end() && !stopped_;) {
    do {
      add_groups(*visit++);
    } while (visit != visits_.end() && rests_.size() + visit->keys() <= kRestsMax);
    SWALE_RETURN_IF_ERROR(look_into_groups());
  }
  if (stopped_) return {};
  visits_.clear();
  held_.clear();
  own_held_.clear();
  return {};
}

Status Query::look_into_groups() {
  for (size_t begin = 0; begin < groups_.size() && !stopped_;) {
    size_t end = begin;
    for (size_t bytes = 0; end < groups_.size(); ++end) {
      bytes += groups_[end].location.bytes;
      if (bytes > kChunkBytes && end > begin) break;
    }
    SWALE_RETURN_IF_ERROR(look_into(begin, end));
    begin = end;
  }
  if (stopped_) return {};
  sequence_ += groups_.size();
  forget_groups();
  return {};
}

Status Query::look_into(size_t first_group, size_t end_group) {
  now_ = system_clock().now();
  eager_ = end_group - first_group <= kEagerGroupsMax;
  bool all_cached = true;
  for (size_t i = first_group; i < end_group; ++i) {
    SliceGroup& group = groups_[i];
    if (take_cached(group)) continue;
    all_cached = false;
    ++reads_count_;
    bytes_count_ += group.location.bytes;
    const io::Mapping* map = group.logs->index_map.get();
    if (map != nullptr) group.bytes = map->resident(group.location.offset, group.location.bytes, now_);
    if (group.bytes == nullptr) {
      ask_for_slice(i);
    } else if (eager_ || i < first_group + kSlicesAhead) {
      prefetch(group.bytes, group.location.bytes);
    }
  }
  depth_ = std::max(depth_, all_cached ? 0u : 1u);
  SWALE_RETURN_IF_ERROR(reads_.submit());
  for (size_t i = first_group; i < end_group && !stopped_; ++i) {
    if (!eager_ && i + kSlicesAhead < end_group && groups_[i + kSlicesAhead].bytes != nullptr &&
        !groups_[i + kSlicesAhead].cached) {
      prefetch(groups_[i + kSlicesAhead].bytes, groups_[i + kSlicesAhead].location.bytes);
    }
    // What was read has no tag here: it is examined when it has come.
    if (groups_[i].bytes != nullptr && !groups_[i].asked) SWALE_RETURN_IF_ERROR(examine(i));
  }
  SWALE_RETURN_IF_ERROR(match_resolved());
  SWALE_RETURN_IF_ERROR(take_reads());
  SWALE_RETURN_IF_ERROR(look_at_rest());
  reads_.cancel();
  pending_.clear();
  forget_pins();
  resolved_ = 0;
  block_groups_.clear();
  overflows_.clear();
  slice_memory_.reset();
  block_memory_.reset();
  return {};
}

void Query::ask_for_slice(size_t index) {
  SliceGroup& group = groups_[index];
  char* const memory = slice_memory_.take(group.location.bytes);
  group.bytes = memory;
  group.asked = true;
  reads_.add(*group.logs->index, group.location.offset, {memory, group.location.bytes},
             tag(Stage::kSlice, index));
}

Status Query::examine(size_t index) {
  const SliceGroup& group = groups_[index];
  if (group.cached) return examine_cached(index);
  SWALE_ASSIGN_OR_RETURN(run::Slice slice, open_slice(group));
  if (!slice.complete()) return wait_for_overflow(index, std::move(slice));
  keep(group, slice);
  return take_candidates(index, slice);
}

Result<run::Slice> Query::open_slice(const SliceGroup& group) {
  const auto open = [&](Bytes bytes) {
    return run::Slice::open_seeded(group.record(), group.logs->seeds[group.segment].slices, group.location,
                                   bytes, group.logs->index->path());
  };
  const Bytes bytes(group.bytes, group.location.bytes);
  Result<run::Slice> slice = open(bytes);
  if (slice.ok()) return slice;
  const MutableBytes second(slice_memory_.take(bytes.size()), bytes.size());
  SWALE_RETURN_IF_ERROR(read_again(*group.logs->index, group.location.offset, bytes, second, slice.status(),
                                   [&](Bytes again) { return open(again).status(); }));
  return open(view(second));
}

Status Query::attach_overflow(const SliceGroup& group, run::Slice* slice, Bytes bytes) {
  const Status status = slice->attach_overflow(bytes);
  if (status.ok()) return status;
  const MutableBytes second(slice_memory_.take(bytes.size()), bytes.size());
  return read_again(*group.logs->index, slice->overflow()->offset, bytes, second, status,
                    [&](Bytes again) { return slice->attach_overflow(again); });
}

Status Query::wait_for_overflow(size_t index, run::Slice slice) {
  SliceGroup& group = groups_[index];
  const run::SliceLocation place = *slice.overflow();
  ++reads_count_;
  bytes_count_ += place.bytes;
  depth_ = std::max(depth_, ++group.depth);
  const io::Mapping* map = group.logs->index_map.get();
  const char* mapped = map == nullptr ? nullptr : map->resident(place.offset, place.bytes, now_);
  if (mapped != nullptr) {
    SWALE_RETURN_IF_ERROR(attach_overflow(group, &slice, {mapped, place.bytes}));
    return take_candidates(index, slice);
  }
  const MutableBytes memory(slice_memory_.take(place.bytes), place.bytes);
  reads_.add(*group.logs->index, place.offset, memory, tag(Stage::kOverflow, overflows_.size()));
  overflows_.push_back({index, std::move(slice), memory});
  return {};
}

Status Query::take_candidates(size_t index, const run::Slice& slice) {
  const SliceGroup& group = groups_[index];
  std::vector<Pending>& into = eager_ ? pending_ : deferred_;
  const size_t first = into.size();
  const auto rests = std::span(rests_).subspan(group.first_rest, group.rest_count);
  SWALE_RETURN_IF_ERROR(slice.candidates_of(rests, [&](size_t rest, const run::Candidate& candidate) {
    into.push_back({.candidate = candidate,
                    .group = static_cast<uint32_t>(index),
                    .rest = group.first_rest + static_cast<uint32_t>(rest),
                    .number = static_cast<uint32_t>(into.size() - first),
                    .bytes = nullptr});
  }));
  if (eager_ && !ask_at_once(first)) {
    deferred_.insert(deferred_.end(), pending_.begin() + static_cast<std::ptrdiff_t>(first), pending_.end());
    pending_.resize(first);
  }
  return {};
}

Status Query::take_reads() {
  while (!stopped_) {
    SWALE_ASSIGN_OR_RETURN(const std::optional<uint64_t> tag, reads_.next());
    if (!tag) break;
    SWALE_RETURN_IF_ERROR(take_read(*tag));
  }
  return {};
}

Status Query::take_read(uint64_t tag) {
  const size_t index = tag & ((uint64_t{1} << kStageShift) - 1);
  switch (static_cast<Stage>(tag >> kStageShift)) {
    case Stage::kSlice:
      SWALE_RETURN_IF_ERROR(examine(index));
      break;
    case Stage::kOverflow: {
      Overflow& overflow = overflows_[index];
      SWALE_RETURN_IF_ERROR(attach_overflow(groups_[overflow.group], &overflow.slice, view(overflow.bytes)));
      keep(groups_[overflow.group], overflow.slice);
      SWALE_RETURN_IF_ERROR(take_candidates(overflow.group, overflow.slice));
      break;
    }
    case Stage::kBlocks:
      return match_group(block_groups_[index]);
  }
  SWALE_RETURN_IF_ERROR(reads_.submit());  // the blocks are on their way while the next slice is examined
  return match_resolved();
}

// False if their blocks are too many to be in memory at once.
bool Query::ask_at_once(size_t first_pending) {
  size_t bytes = block_memory_.taken();
  for (size_t i = first_pending; i < pending_.size(); ++i) {
    bytes += pending_[i].candidate.block_count * run::kBlockBytes;
  }
  if (bytes > kChunkBytes) return false;
  for (size_t i = first_pending; i < pending_.size(); ++i) {
    const Pending* const previous = i > first_pending ? &pending_[i - 1] : nullptr;
    if (take_cached(pending_[i], previous)) continue;
    resolve(pending_[i], previous);
    raise_depth(pending_[i]);
    if (pending_[i].bytes == nullptr) ask_for_blocks(i);
  }
  close_block_group();
  return true;
}

Status Query::match_resolved() {
  for (; resolved_ < pending_.size() && !stopped_; ++resolved_) {
    const Pending& pending = pending_[resolved_];
    if (pending.pin != kNoPin) {
      SWALE_RETURN_IF_ERROR(match_cached(pending));
    } else if (pending.bytes != nullptr) {
      SWALE_RETURN_IF_ERROR(look_into_blocks(pending, pending.bytes, true));
    }
  }
  return {};
}

Status Query::look_at_rest() {
  if (deferred_.empty() || stopped_) return {};
  pending_.clear();
  block_groups_.clear();
  block_memory_.reset();
  pending_.swap(deferred_);
  constexpr int kBlockBits = 48;  // what lies beyond is not in order, only slower
  radix_sort(pending_, sort_scratch_, [&](const Pending& pending) {
    return uint64_t{groups_[pending.group].held} << kBlockBits | pending.candidate.block;
  });
  size_t ahead = 0;
  for (size_t i = 0; i < pending_.size() && !stopped_; ++i) {
    for (; ahead < std::min(pending_.size(), i + kCandidatesAhead); ++ahead) {
      const Pending* const previous = ahead > 0 ? &pending_[ahead - 1] : nullptr;
      if (!take_cached(pending_[ahead], previous)) resolve(pending_[ahead], previous);
    }
    if (pending_[i].pin != kNoPin) {
      SWALE_RETURN_IF_ERROR(match_cached(pending_[i]));
      continue;
    }
    raise_depth(pending_[i]);
    if (pending_[i].bytes != nullptr) {
      SWALE_RETURN_IF_ERROR(look_into_blocks(pending_[i], pending_[i].bytes, true));
      continue;
    }
    const size_t open_bytes = group_is_open_ ? block_groups_.back().size_bytes() : 0;
    const size_t more_bytes = pending_[i].candidate.block_count * run::kBlockBytes;
    if (block_memory_.taken() + open_bytes + more_bytes > kChunkBytes) {
      close_block_group();
      SWALE_RETURN_IF_ERROR(take_reads());
      block_groups_.clear();
      block_memory_.reset();
    }
    ask_for_blocks(i);
  }
  close_block_group();
  return take_reads();
}

void Query::resolve(Pending& pending, const Pending* previous) const {
  const PartitionLogs* logs = groups_[pending.group].logs;
  if (!logs->data_map) return;
  const run::Candidate& candidate = pending.candidate;
  if (previous != nullptr && previous->candidate.block == candidate.block &&
      previous->candidate.block_count == candidate.block_count && groups_[previous->group].logs == logs) {
    pending.bytes = previous->bytes;
    return;
  }
  const size_t bytes = candidate.block_count * run::kBlockBytes;
  pending.bytes = logs->data_map->resident(candidate.block * run::kBlockBytes, bytes, now_);
  if (pending.bytes != nullptr) prefetch(pending.bytes, bytes);
}

// Joins the blocks to the group before them where they touch it. A group's candidates are neighbours in
// pending_: one whose blocks are mapped between them ends the group.
void Query::ask_for_blocks(size_t index) {
  const run::Candidate& candidate = pending_[index].candidate;
  const BlockNumber end = candidate.block + candidate.block_count;
  if (group_is_open_) {
    BlockGroup& last = block_groups_.back();
    const SliceGroup& here = groups_[pending_[index].group];
    const SliceGroup& there = groups_[pending_[last.first_pending].group];
    if (index == last.first_pending + last.pending_count && here.logs == there.logs &&
        here.record().epoch == there.record().epoch && candidate.block >= last.first_block &&
        candidate.block <= last.end_block) {
      last.end_block = std::max(last.end_block, end);
      ++last.pending_count;
      return;
    }
    close_block_group();
  }
  block_groups_.push_back({index, 1, candidate.block, end, nullptr});
  group_is_open_ = true;
}

void Query::close_block_group() {
  if (!group_is_open_) return;
  group_is_open_ = false;
  BlockGroup& group = block_groups_.back();
  const size_t bytes = group.size_bytes();
  group.bytes = block_memory_.take(bytes);
  ++reads_count_;
  bytes_count_ += bytes;
  reads_.add(*groups_[pending_[group.first_pending].group].logs->data, group.first_block * run::kBlockBytes,
             {group.bytes, bytes}, tag(Stage::kBlocks, block_groups_.size() - 1));
}

Status Query::match_group(const BlockGroup& group) {
  forget_blocks();
  for (size_t i = group.first_pending; i < group.first_pending + group.pending_count && !stopped_; ++i) {
    const char* bytes = group.bytes + (pending_[i].candidate.block - group.first_block) * run::kBlockBytes;
    SWALE_RETURN_IF_ERROR(look_into_blocks(pending_[i], bytes, false));
  }
  forget_blocks();
  return {};
}

Status Query::look_into_blocks(const Pending& pending, const char* bytes, bool mapped) {
  const Status status = verify(pending, bytes, mapped);
  if (!status.ok()) {
    SWALE_ASSIGN_OR_RETURN(bytes, read_blocks_again(pending, bytes, status));
  }
  SWALE_RETURN_IF_ERROR(match(pending, bytes));
  if (!mapped) keep(pending, bytes);
  return {};
}

Result<const char*> Query::read_blocks_again(const Pending& pending, const char* bytes, const Status& found) {
  const SliceGroup& group = groups_[pending.group];
  const run::Candidate& candidate = pending.candidate;
  const size_t size = candidate.block_count * run::kBlockBytes;
  const MutableBytes second(block_memory_.take(size), size);
  const auto check = [&](Bytes again) {
    return run::verify_blocks(again, group.logs->seeds[group.segment].blocks, candidate.block,
                              group.logs->data->path());
  };
  SWALE_RETURN_IF_ERROR(
      read_again(*group.logs->data, candidate.block * run::kBlockBytes, {bytes, size}, second, found, check));
  return static_cast<const char*>(second.data());
}

// Each block once, if the candidates come in order.
Status Query::verify(const Pending& pending, const char* bytes, bool mapped) {
  const SliceGroup& group = groups_[pending.group];
  const BlockNumber first = pending.candidate.block;
  const BlockNumber end = first + pending.candidate.block_count;
  if (verified_.logs != group.logs || first < verified_.first_block || first > verified_.end_block) {
    verified_ = {group.logs, first, first};
    if (mapped) ++reads_count_;
  }
  const uint32_t seed = group.logs->seeds[group.segment].blocks;
  for (; verified_.end_block < end; ++verified_.end_block) {
    if (mapped) bytes_count_ += run::kBlockBytes;
    const Bytes block(bytes + (verified_.end_block - first) * run::kBlockBytes, run::kBlockBytes);
    const Status status = run::verify_block(block, seed, verified_.end_block, group.logs->data->path());
    if (!status.ok()) {
      verified_ = {};
      return status;
    }
  }
  return {};
}

Status Query::match(const Pending& pending, const char* bytes) {
  const SliceGroup& group = groups_[pending.group];
  const QueryKey& key = keys_[rest_keys_[pending.rest]];
  const Bytes blocks(bytes, pending.candidate.block_count * run::kBlockBytes);
  if (pending.candidate.any_slot()) return match_all(pending, blocks);
  SWALE_ASSIGN_OR_RETURN(
      const std::optional<run::RecordView> record,
      run::RecordMatch::in_verified(pending.candidate, blocks, key.key, &walk_, group.logs->data->path()));
  if (!record) {
    ++false_count_;
  } else if (group.member != nullptr) {
    return match_series(pending, record->value);
  } else if (!sink_->hit({key.index, group.record().epoch, (sequence_ + pending.group) << 32 | pending.number,
                          record->value, run::points(rule_, *record)})) {
    stopped_ = true;
  }
  return {};
}

// Of a filter and fences: all records in the block that have the key.
Status Query::match_all(const Pending& pending, Bytes blocks) {
  const SliceGroup& group = groups_[pending.group];
  const QueryKey& key = keys_[rest_keys_[pending.rest]];
  const uint64_t sequence = (sequence_ + pending.group) << 32 | pending.number;
  bool found = false;
  SWALE_RETURN_IF_ERROR(
      run::RecordMatch::each_in_verified(pending.candidate, blocks, key.key, &walk_, group.logs->data->path(),
                                         [&](const run::RecordView& record) {
                                           found = true;
                                           stopped_ = !sink_->hit({key.index, group.record().epoch, sequence,
                                                                   record.value, run::points(rule_, record)});
                                           return !stopped_;
                                         }));
  if (!found) ++false_count_;
  return {};
}

void Query::raise_depth(const Pending& pending) {
  depth_ = std::max(depth_, groups_[pending.group].depth + 1);
}

bool Query::is_empty() const {
  return reads_.empty() && groups_.empty() && rests_.empty() && rest_keys_.empty() && pending_.empty() &&
         deferred_.empty() && block_groups_.empty() && overflows_.empty() && visits_.empty() &&
         held_.empty() && own_held_.empty() && pins_.empty() && !group_is_open_ && resolved_ == 0;
}

// They have been answered.
void Query::forget_groups() {
  reads_.cancel();
  groups_.clear();
  rests_.clear();
  rest_keys_.clear();
  pending_.clear();
  deferred_.clear();
  block_groups_.clear();
  overflows_.clear();
  slice_memory_.reset();
  block_memory_.reset();
  resolved_ = 0;
  group_is_open_ = false;
  pins_.clear();
  forget_blocks();
}

void Query::settle_counters() {
  counters_.depth_max.update(footer_depth_ + table_depth_ + depth_);
  counters_.reads.add(std::exchange(reads_count_, 0));
  counters_.bytes_read.add(std::exchange(bytes_count_, 0));
  counters_.false_candidates.add(std::exchange(false_count_, 0));
  counters_.blocks_decompressed.add(walk_.take_decompressed());
  counters_.cache_hits.add(std::exchange(cache_hits_, 0));
  counters_.cache_misses.add(std::exchange(cache_misses_, 0));
}

void Query::trim() {
  trim_vector(visits_, kKeptBytes / 8);
  trim_vector(groups_, kKeptBytes / 8);
  trim_vector(rests_, kKeptBytes / 8);
  trim_vector(rest_keys_, kKeptBytes / 8);
  trim_vector(pending_, kKeptBytes / 8);
  trim_vector(deferred_, kKeptBytes / 8);
  trim_vector(sort_scratch_, kKeptBytes / 8);
  trim_vector(block_groups_, kKeptBytes / 8);
  trim_vector(pins_, kKeptBytes / 8);
  slice_memory_.trim(kKeptBytes / 4);
  block_memory_.trim(kKeptBytes / 4);
}

}  // namespace swale::imd
