#include "imd/reader_query.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "run/block.h"

namespace swale::imd {
namespace {

using Chunk = std::unique_ptr<char[]>;

Chunk make_chunk(size_t bytes) { return std::make_unique_for_overwrite<char[]>(bytes); }

}  // namespace

Query::Query(const Manifest& manifest, PartitionCache& partitions, ReadCounters& counters,
             const ReaderOptions& options, HitFn fn)
    : manifest_(manifest),
      partitions_(partitions),
      counters_(counters),
      fn_(std::move(fn)),
      wave_(options.reads_in_flight_max, counters) {}

Status Query::add(size_t key_index, Bytes key, Hash hash, EpochRange epochs) {
  const PartitionLogs* logs = nullptr;
  uint32_t job_index = 0;
  HashChoice way{};
  for (uint32_t epoch = epochs.first; epoch < epochs.last && !stopped_; ++epoch) {
    if (lookups_.size() >= kLookupsMax || held_.size() >= kPartitionsMax) {
      SWALE_RETURN_IF_ERROR(flush());
      logs = nullptr;
    }
    if (logs == nullptr || manifest_.epochs[epoch].job != job_index) {
      job_index = manifest_.epochs[epoch].job;
      const JobEntry& job = manifest_.jobs[job_index];
      const HashChoice home = choose(hash, static_cast<uint32_t>(job.ranks));
      way = choose(home.rest, job.ways);
      std::shared_ptr<const PartitionLogs>& held = held_[home.index];
      if (!held) {
        SWALE_ASSIGN_OR_RETURN(held, partitions_.get(home.index, &footer_depth_));
      }
      logs = held.get();
    }
    for (const run::SegmentRecord& segment : logs->segments_of(epoch)) {
      if (segment.way != way.index) continue;
      const std::optional<run::SliceLocation> slice = run::locate_slice(segment, way.rest);
      if (slice) lookups_.push_back({logs, &segment, *slice, way.rest, key, key_index});
    }
  }
  return {};
}

Status Query::finish() {
  Status status = stopped_ ? Status() : flush();
  counters_.depth_max.update(footer_depth_ + depth_max_);
  return status;
}

Status Query::flush() {
  std::stable_sort(lookups_.begin(), lookups_.end(), [](const Lookup& a, const Lookup& b) {
    return std::tie(a.logs->partition, a.slice.offset) < std::tie(b.logs->partition, b.slice.offset);
  });
  for (size_t begin = 0; begin < lookups_.size() && !stopped_;) {
    size_t end = begin;
    for (size_t bytes = 0; end < lookups_.size(); ++end) {
      const bool same_slice = end > begin && lookups_[end].logs == lookups_[end - 1].logs &&
                              lookups_[end].slice.offset == lookups_[end - 1].slice.offset;
      if (!same_slice) bytes += lookups_[end].slice.bytes;
      if (bytes > kChunkBytes && end > begin) break;
    }
    chunk_depth_ = 0;
    SWALE_RETURN_IF_ERROR(look_into_slices(std::span(lookups_).subspan(begin, end - begin)));
    if (!stopped_) SWALE_RETURN_IF_ERROR(read_candidates());
    depth_max_ = std::max(depth_max_, chunk_depth_);
    begin = end;
  }
  lookups_.clear();
  held_.clear();
  return {};
}

std::vector<Query::SliceGroup> Query::group_by_slice(std::span<const Lookup> lookups) const {
  std::vector<SliceGroup> groups;
  for (size_t begin = 0; begin < lookups.size();) {
    size_t end = begin + 1;
    while (end < lookups.size() && lookups[end].logs == lookups[begin].logs &&
           lookups[end].slice.offset == lookups[begin].slice.offset) {
      ++end;
    }
    groups.push_back({lookups.subspan(begin, end - begin), nullptr, std::nullopt});
    begin = end;
  }
  return groups;
}

Status Query::look_into_slices(std::span<const Lookup> lookups) {
  std::vector<SliceGroup> groups = group_by_slice(lookups);
  size_t bytes = 0;
  for (const SliceGroup& group : groups) bytes += group.lookups.front().slice.bytes;
  const Chunk chunk = make_chunk(bytes);
  char* at = chunk.get();
  for (SliceGroup& group : groups) {
    const Lookup& lookup = group.lookups.front();
    group.bytes = at;
    at += lookup.slice.bytes;
    wave_.add(*lookup.logs->index, lookup.slice.offset, {group.bytes, lookup.slice.bytes});
  }
  chunk_depth_ += wave_.empty() ? 0 : 1;
  SWALE_RETURN_IF_ERROR(wave_.run());
  for (SliceGroup& group : groups) {
    const Lookup& lookup = group.lookups.front();
    SWALE_ASSIGN_OR_RETURN(group.slice,
                           run::Slice::open(*lookup.segment, lookup.logs->partition, lookup.slice,
                                            {group.bytes, lookup.slice.bytes}, lookup.logs->index->path()));
  }
  SWALE_RETURN_IF_ERROR(attach_overflows(groups));
  for (const SliceGroup& group : groups) {
    for (const Lookup& lookup : group.lookups) {
      SWALE_RETURN_IF_ERROR(group.slice->candidates(lookup.rest, [&](const run::Candidate& candidate) {
        pending_.push_back({&lookup, sequence_++, candidate});
      }));
    }
  }
  return {};
}

Status Query::attach_overflows(std::vector<SliceGroup>& groups) {
  std::vector<std::pair<SliceGroup*, std::vector<char>>> overflows;
  for (SliceGroup& group : groups) {
    if (const auto place = group.slice->overflow()) overflows.emplace_back(&group, place->bytes);
  }
  if (overflows.empty()) return {};
  for (auto& [group, bytes] : overflows) {
    wave_.add(*group->lookups.front().logs->index, group->slice->overflow()->offset, bytes);
  }
  ++chunk_depth_;
  SWALE_RETURN_IF_ERROR(wave_.run());
  for (const auto& [group, bytes] : overflows) {
    SWALE_RETURN_IF_ERROR(group->slice->attach_overflow({bytes.data(), bytes.size()}));
  }
  return {};
}

Status Query::read_candidates() {
  std::sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) {
    return std::tie(a.lookup->logs->partition, a.candidate.block, a.sequence) <
           std::tie(b.lookup->logs->partition, b.candidate.block, b.sequence);
  });
  chunk_depth_ += pending_.empty() ? 0 : 1;
  std::vector<BlockGroup> groups;
  size_t blocks = 0;
  for (size_t i = 0; i < pending_.size() && !stopped_; ++i) {
    const Pending& pending = pending_[i];
    const uint64_t first = pending.candidate.block;
    const uint64_t end = first + pending.candidate.block_count;
    BlockGroup* last = groups.empty() ? nullptr : &groups.back();
    const bool together = last != nullptr && last->pending.front().lookup->logs == pending.lookup->logs &&
                          last->pending.front().lookup->segment->epoch == pending.lookup->segment->epoch &&
                          first <= last->end_block;
    const uint64_t more = together ? (end > last->end_block ? end - last->end_block : 0) : end - first;
    if (!groups.empty() && (blocks + more) * run::kBlockBytes > kChunkBytes) {
      SWALE_RETURN_IF_ERROR(read_groups(groups));
      groups.clear();
      blocks = 0;
    }
    if (together && !groups.empty()) {
      last->pending = {last->pending.data(), last->pending.size() + 1};
      last->end_block = std::max(last->end_block, end);
      blocks += more;
    } else {
      groups.push_back({std::span(&pending, 1), first, end, nullptr});
      blocks += end - first;
    }
  }
  if (!stopped_) SWALE_RETURN_IF_ERROR(read_groups(groups));
  pending_.clear();
  return {};
}

Status Query::read_groups(std::vector<BlockGroup>& groups) {
  size_t bytes = 0;
  for (const BlockGroup& group : groups) bytes += (group.end_block - group.first_block) * run::kBlockBytes;
  const Chunk chunk = make_chunk(bytes);
  char* at = chunk.get();
  for (BlockGroup& group : groups) {
    const size_t group_bytes = (group.end_block - group.first_block) * run::kBlockBytes;
    wave_.add(*group.pending.front().lookup->logs->data, group.first_block * run::kBlockBytes,
              {at, group_bytes});
    group.bytes = at;
    at += group_bytes;
  }
  SWALE_RETURN_IF_ERROR(wave_.run());
  for (const BlockGroup& group : groups) {
    if (!stopped_) SWALE_RETURN_IF_ERROR(match(group));
  }
  return {};
}

Status Query::match(const BlockGroup& group) {
  const Lookup& first = *group.pending.front().lookup;
  const std::string& path = first.logs->data->path();
  const Bytes blocks{group.bytes, (group.end_block - group.first_block) * run::kBlockBytes};
  const uint32_t seed = run::epoch_seed(first.logs->partition, first.segment->epoch_id);
  SWALE_RETURN_IF_ERROR(run::verify_blocks(blocks, seed, group.first_block, path));
  for (const Pending& pending : group.pending) {
    const run::Candidate& candidate = pending.candidate;
    const Bytes its_blocks = blocks.substr((candidate.block - group.first_block) * run::kBlockBytes,
                                           candidate.block_count * run::kBlockBytes);
    SWALE_ASSIGN_OR_RETURN(
        const std::optional<run::RecordView> record,
        run::RecordMatch::in_verified(candidate, its_blocks, pending.lookup->key, &scratch_, path));
    if (!record) {
      counters_.false_candidates.add();
    } else if (!fn_({pending.lookup->key_index, pending.lookup->segment->epoch, pending.sequence,
                     record->value})) {
      stopped_ = true;
      return {};
    }
  }
  return {};
}

}  // namespace swale::imd
