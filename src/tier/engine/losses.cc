#include "tier/engine/losses.h"

#include <cassert>

namespace swale::tier {

void Losses::add(FileIndex index, uint64_t from, uint64_t to, const LostRange& as) {
  assert(from < to && to - from <= kStride);
  FileState& file = shared_.files[index];
  shared_.stats.lost_bytes += to - from;
  if (shared_.options.canaries.forget_losses) return;
  file.map.carve(from, to, [](const Extent&) {});
  const uint64_t address = kAddressBase + found_.size() * kStride;
  const bool logged = as.address != LostRange::kNoAddress;
  found_.push_back({as, logged ? shared_.log.segment_of(as.address) : shared_.log.count()});
  file.map.insert({from, address, static_cast<uint32_t>(to - from), ExtentState::kLost});
  changed();
}

void Losses::add_logged(FileIndex index, uint64_t from, uint64_t to, uint64_t address, LossReason reason) {
  FileState& file = shared_.files[index];
  std::vector<Extent> gone;
  file.map.visit(from, to, [&](const Extent& extent) {
    if (extent.state < ExtentState::kClean && extent.address == address + (extent.offset - from))
      gone.push_back(extent);
  });
  // What is newer than these bytes is not settled yet, or in the map in their place.
  const uint64_t sequence = records_.settled_through();
  for (const Extent& extent : gone) {
    shared_.log.remove_dirty(shared_.log.segment_of(extent.address), extent.length);
    file.map.carve(extent.offset, extent.end(), [](const Extent&) {});
    add(index, extent.offset, extent.end(),
        {.sequence = sequence, .address = shared_.log.record_of(extent.address).address, .reason = reason});
  }
  if (!gone.empty()) file.deferred = reason == LossReason::kDamaged ? Code::kCorruption : Code::kIoError;
}

void Losses::replaced(const Extent& extent, uint32_t by_segment) {
  assert(is_lost(extent) && number(extent) < found_.size());
  changed();
  const uint32_t lost_segment = found_[number(extent)].segment;
  if (by_segment < shared_.log.count() && lost_segment < shared_.log.count())
    shared_.log.shield(by_segment, lost_segment);
}

bool Losses::any(FileIndex index, uint64_t from, uint64_t to) const {
  bool any = false;
  if (found_.empty()) return false;
  shared_.files[index].map.visit(from, to, [&](const Extent& extent) { any |= is_lost(extent); });
  return any;
}

void Losses::drop(FileIndex index, uint64_t from, uint64_t to) {
  if (found_.empty()) return;
  ExtentMap& map = shared_.files[index].map;
  std::vector<Extent> lost;
  map.visit(from, to, [&](const Extent& extent) {
    if (is_lost(extent)) lost.push_back(extent);
  });
  for (const Extent& extent : lost) map.carve(extent.offset, extent.end(), [](const Extent&) {});
  if (!lost.empty()) changed();
}

bool Losses::replaced_without_record(OpIndex index) {
  Op& op = shared_.ops[index];
  op.over_loss = false;
  drop(op.file, op.offset, op.is_write() ? op.end() : kFileBytesMax);
  if (saved()) return true;
  if (op.is_write()) op.stage = Op::Stage::kLossWait;
  assert(waiters_.empty() || waiters_.back().first <= version_);
  waiters_.emplace_back(version_, index);
  return false;
}

void Losses::accept(Ticket ticket) {
  changed();
  acceptances_.push_back({ticket, version_, found_.size()});
}

LossList Losses::list() const {
  LossList list{.log_id = shared_.options.log_id, .ranges = accepted_};
  const size_t accepted = acceptances_.empty() ? 0 : acceptances_.back().losses;
  if (found_.empty()) return list;
  for (const FileState& file : shared_.files) {
    if (file.unlinked) continue;
    file.map.visit(0, kFileBytesMax, [&](const Extent& extent) {
      if (!is_lost(extent)) return;
      LostRange each = range(extent);
      each.file = file.id;
      each.offset = extent.offset;
      each.length = extent.length;
      each.accepted = number(extent) < accepted;
      list.ranges.push_back(each);
    });
  }
  return list;
}

// What the list leaves out must be durable before the list is, whatever the mode: or a power cut would leave
// older bytes that nobody names. So a snapshot of the list waits for a sync of the device that has what
// replaced a loss.
void Losses::save() {
  if (in_flight_ || retry_ > shared_.now) return;
  SyncLane& lane = records_.usable() ? syncs_.log : syncs_.backing;
  if (lane_ != &lane) snapshot_.reset();  // the log has failed meanwhile
  if (!snapshot_) {
    snapshot_ = list();
    saving_ = version_;
    lane_ = &lane;
    sync_number_ = lane.want(shared_.now);
  }
  if (lane.done() < sync_number_) return;
  in_flight_ = true;
  shared_.outbox.emit({.kind = Action::Kind::kSaveLosses});
}

std::vector<OpIndex> Losses::written(Code code) {
  assert(in_flight_ && snapshot_);
  in_flight_ = false;
  snapshot_.reset();
  shared_.segments_changed = true;
  if (code == Code::kOk)
    saved_ = saving_;
  else
    retry_ = shared_.now + shared_.options.retry_ns;
  if (code != Code::kOk && !records_.usable()) ++shared_.stats.flush_errors;  // the abandonment waits for it
  while (!acceptances_.empty() && acceptances_.front().version <= saving_) {
    const Acceptance done = acceptances_.front();
    acceptances_.erase(acceptances_.begin());
    if (code == Code::kOk) end_acceptance(done);
    shared_.outbox.answer(done.ticket, kNoFile, code);
  }
  std::vector<OpIndex> told;
  for (; !waiters_.empty() && waiters_.front().first <= saving_; waiters_.pop_front())
    told.push_back(waiters_.front().second);
  return told;
}

// Reads give what the backing device has; the list keeps the ranges as accepted while the log may have
// remains of them.
void Losses::end_acceptance(const Acceptance& done) {
  for (FileState& file : shared_.files) {
    std::vector<Extent> lost;
    file.map.visit(0, kFileBytesMax, [&](const Extent& extent) {
      if (is_lost(extent) && number(extent) < done.losses) lost.push_back(extent);
    });
    for (const Extent& extent : lost) {
      LostRange each = range(extent);
      each.file = file.id;
      each.offset = extent.offset;
      each.length = extent.length;
      each.accepted = true;
      if (each.address != LostRange::kNoAddress) accepted_.push_back(each);
      file.map.carve(extent.offset, extent.end(), [](const Extent&) {});
    }
  }
}

}  // namespace swale::tier
