// Engine: what a log says happened. Everything that it names is applied in the order of the sequences:
// records, records that are damaged, and the list of losses.
#include <algorithm>
#include <cassert>
#include <unordered_set>

#include "tier/engine/engine.h"

namespace swale::tier {

// One thing to apply. A range of the list comes before the record of its sequence, which may be whole after
// all; an accepted one after it.
struct Engine::Replayed {
  enum class Kind : uint8_t { kLost, kRecord, kAccepted };
  uint64_t sequence = 0;
  Kind kind = Kind::kRecord;
  const RecordHeader* record = nullptr;
  const DamagedRecord* damaged = nullptr;  // of a record
  const LostRange* range = nullptr;        // of others

  uint64_t file() const { return record ? record->file : range->file; }
  bool operator<(const Replayed& other) const {
    return sequence != other.sequence ? sequence < other.sequence : kind < other.kind;
  }
};

Engine::Recovered Engine::recover(const Found& found, Nanos now) {
  set_now(now);
  Recovered recovered;
  restore_segments(found);
  replay(order_replay(found), &recovered);
  recovered.dirty_bytes = shared_.log.dirty_bytes();
  for (const LostRange& range : losses_.list().ranges)
    if (!range.accepted) recovered.lost.push_back(range);
  if (!found.losses.ranges.empty()) losses_.changed();
  shared_.stats.lost_bytes = 0;
  records_.restored();
  shared_.segments_changed = true;
  pump();
  return recovered;
}

void Engine::restore_segments(const Found& found) {
  std::vector<std::pair<uint64_t, uint32_t>> order;  // first sequence, segment
  std::vector<const RecordHeader*> inside;           // of one segment
  for (const SegmentScan& scan : found.segments) {
    inside.clear();
    for (const RecordHeader& record : scan.records) inside.push_back(&record);
    for (const DamagedRecord& damaged : scan.damaged) inside.push_back(&damaged.header);
    std::sort(inside.begin(), inside.end(),
              [](const RecordHeader* a, const RecordHeader* b) { return a->address < b->address; });
    uint64_t used = round_up(kSegmentHeaderBytes, shared_.options.log_alignment);
    uint64_t first = ~0ull;
    const uint32_t index = scan.header.index;
    // A segment without a whole header is erased before it is used, even if nothing is in it.
    const bool live = !inside.empty() || scan.header_damaged;
    struct Begin {
      uint64_t address;
      bool sealed;
    };
    std::vector<Begin> begins;
    for (const RecordHeader* record : inside) {
      first = std::min(first, record->sequence);
      const uint64_t end_before = shared_.log.begin_of(index) + used;
      if (record->address > end_before) begins.push_back({end_before, false});
      begins.push_back({record->address, record->type != RecordType::kSettled});
      used = record->address - shared_.log.begin_of(index) + record->space(shared_.options.log_alignment);
    }
    shared_.log.restore(index, scan.header.generation, used, live);
    for (const Begin& begin : begins) {
      shared_.log.restore_record(index, begin.address);
      if (!begin.sealed) shared_.log.leave_unsealed(index);
    }
    if (live) order.emplace_back(first, index);
    records_.restore(scan.header.sequence);
  }
  if (!found.queued.empty() || !found.queued_damaged.empty()) {
    inside.clear();
    for (const RecordHeader& record : found.queued) inside.push_back(&record);
    for (const DamagedRecord& damaged : found.queued_damaged) inside.push_back(&damaged.header);
    std::sort(inside.begin(), inside.end(),
              [](const RecordHeader* a, const RecordHeader* b) { return a->address < b->address; });
    const uint32_t segment = shared_.log.add_recovered_queue();
    for (const RecordHeader* record : inside) shared_.log.restore_record(segment, record->address);
    shared_.log.order(segment);
    flusher_.set_queue_segment(segment);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [first, segment] : order) shared_.log.order(segment);
  for (uint32_t i = 0; i < shared_.log.count(); ++i)
    shared_.log.at(i).first_write = shared_.log.at(i).last_write = shared_.now;
}

std::vector<Engine::Replayed> Engine::order_replay(const Found& found) {
  using Kind = Replayed::Kind;
  std::vector<Replayed> items;
  const auto add_damaged = [&](const DamagedRecord& damaged) {
    items.push_back({damaged.header.sequence, Kind::kRecord, &damaged.header, &damaged, nullptr});
  };
  for (const SegmentScan& scan : found.segments) {
    for (const RecordHeader& record : scan.records)
      items.push_back({record.sequence, Kind::kRecord, &record, nullptr, nullptr});
    for (const DamagedRecord& damaged : scan.damaged) add_damaged(damaged);
  }
  for (const RecordHeader& record : found.queued)
    items.push_back({record.sequence, Kind::kRecord, &record, nullptr, nullptr});
  for (const DamagedRecord& damaged : found.queued_damaged) add_damaged(damaged);
  const bool same_log = found.losses.log_id == shared_.options.log_id;
  for (const LostRange& range : found.losses.ranges) {
    if (range.accepted && !same_log) continue;
    // Whatever this log has is newer than a loss of another one.
    items.push_back({same_log ? range.sequence : 0, range.accepted ? Kind::kAccepted : Kind::kLost, nullptr,
                     nullptr, &range});
  }
  std::sort(items.begin(), items.end());
  return items;
}

// Applies all in their order; truncates that have no end begin again, and those that were cancelled mean
// nothing.
void Engine::replay(const std::vector<Replayed>& items, Recovered* recovered) {
  std::unordered_set<uint64_t> cancelled;
  for (const Replayed& item : items)
    if (item.record && item.record->type == RecordType::kTruncateCancelled)
      cancelled.insert(item.record->offset);
  std::vector<std::pair<uint64_t, FileIndex>> ids;
  for (FileIndex i = 0; i < shared_.files.size(); ++i) ids.emplace_back(shared_.files[i].id, i);
  std::sort(ids.begin(), ids.end());
  std::vector<std::pair<const RecordHeader*, FileIndex>> open;  // truncates
  for (const Replayed& item : items) {
    records_.restore(item.sequence);
    recovered->records += item.record != nullptr;
    if (item.record && item.record->type == RecordType::kSettled) continue;
    const auto id = std::lower_bound(ids.begin(), ids.end(), std::make_pair(item.file(), FileIndex{0}));
    if (id == ids.end() || id->first != item.file()) {
      recovered->dropped += item.record != nullptr;
      continue;
    }
    const FileIndex index = id->second;
    if (item.record) {
      if (item.record->type == RecordType::kTruncate && cancelled.contains(item.sequence)) continue;
      replay_record(*item.record, index, item.damaged);
      if (item.record->type == RecordType::kTruncate && item.record->offset < kFileBytesMax)
        open.emplace_back(item.record, index);
      if (item.record->type == RecordType::kTruncateDone)
        std::erase_if(open, [&](const auto& each) { return each.first->sequence == item.record->offset; });
      continue;
    }
    const LostRange& range = *item.range;
    const uint64_t end = range.offset + range.length;
    flusher_.carve(index, range.offset, end, shared_.log.count());
    if (range.accepted) {
      losses_.restore_accepted(range);
      continue;
    }
    LostRange as = range;
    as.sequence = item.sequence;
    if (item.sequence == 0) as.address = LostRange::kNoAddress;
    losses_.add(index, range.offset, end, as);
  }
  // What a truncate has cut off counts no more; the backing file tells the rest.
  for (FileState& file : shared_.files) file.size = std::max(file.size, file.map.end());
  // A file has one at a time; a log that somebody has forged may have more, of which the last one counts.
  std::reverse(open.begin(), open.end());
  for (const auto& [record, index] : open) {
    if (shared_.files[index].barrier != kNoOp) continue;
    ++recovered->truncates;
    barriers_.repeat(shared_.ops.make(Op::Kind::kTruncate, kRecoveryTicket, index), *record);
  }
}

void Engine::replay_record(const RecordHeader& record, FileIndex index, const DamagedRecord* damaged) {
  const uint32_t segment = shared_.log.segment_of(record.address);
  shared_.files[index].log_sync = 1;  // the process before may not have synced the log
  switch (record.type) {
    case RecordType::kWrite:
    case RecordType::kQueued:
      if (record.offset < kFileBytesMax - record.length) replay_write(record, index, damaged);
      break;
    case RecordType::kPunch:
      flusher_.carve(index, record.offset, record.offset + record.length, segment);
      break;
    case RecordType::kTruncate:
      if (record.offset < kFileBytesMax) flusher_.carve(index, record.offset, kFileBytesMax, segment);
      break;
    case RecordType::kUnlink:
      flusher_.carve(index, 0, kFileBytesMax, segment);
      break;
    case RecordType::kTruncateDone:
    case RecordType::kTruncateCancelled:
    case RecordType::kSettled:
      break;
  }
}

// The parts of a damaged record that pass their checksums are as good as any.
void Engine::replay_write(const RecordHeader& record, FileIndex index, const DamagedRecord* damaged) {
  const uint32_t segment = shared_.log.segment_of(record.address);
  FileState& file = shared_.files[index];
  flusher_.carve(index, record.offset, record.offset + record.length, segment);
  const auto take = [&](uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    file.map.insert(
        {record.offset + begin, record.payload_address() + begin, end - begin, ExtentState::kDirty});
    shared_.log.add_dirty(segment, end - begin);
  };
  uint32_t at = 0;
  if (damaged) {
    for (const PayloadRange& range : damaged->ranges) {
      take(at, range.begin);
      losses_.add(index, record.offset + range.begin, record.offset + range.end,
                  {.sequence = record.sequence, .address = record.address, .reason = LossReason::kDamaged});
      at = range.end;
    }
  }
  take(at, record.length);
}

}  // namespace swale::tier
