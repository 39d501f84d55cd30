// Engine: what was acknowledged and is gone: extents of state kLost, and the list of them that the driver keeps.
//
// A range is lost from the moment when that is found out until something newer covers it, in the log or, when the log is
// gone, on the backing device. The list is written again after each change. Two orders matter: a segment is erased after
// the list that its records led to; without a log, a write over a loss is acknowledged after the list without it.
#include <algorithm>
#include <cassert>

#include "tier/engine/engine.h"

namespace swale::tier {

void Engine::lose_range(FileIndex index, uint64_t from, uint64_t to, const LostRange& as) {
  File& file = files_[index];
  stats_.lost_bytes += to - from;
  if (options_.canaries.forget_losses) return;
  assert(to - from <= kLossStride);
  file.map.carve(from, to, [](const Extent&) {});
  const uint64_t address = kLossBase + losses_.size() * kLossStride;
  losses_.push_back({as, as.address == LostRange::kNoAddress ? log_.count() : log_.segment_of(as.address)});
  file.map.insert({from, address, static_cast<uint32_t>(to - from), ExtentState::kLost});
  losses_changed();
}

// Of [from, to), what still has the log bytes that begin at `address`, and is nowhere else.
void Engine::lose_logged(FileIndex index, uint64_t from, uint64_t to, uint64_t address, LossReason reason) {
  File& file = files_[index];
  std::vector<Extent> gone;
  file.map.visit(from, to, [&](const Extent& extent) {
    if (extent.state < ExtentState::kClean && extent.address == address + (extent.offset - from))
      gone.push_back(extent);
  });
  // What is newer than these bytes is not settled yet, or in the map in their place.
  const uint64_t sequence = settled_.through(sequence_);
  for (const Extent& extent : gone) {
    log_.remove_dirty(log_.segment_of(extent.address), extent.length);
    file.map.carve(extent.offset, extent.end(), [](const Extent&) {});
    lose_range(index, extent.offset, extent.end(),
               {.sequence = sequence, .address = log_.record_of(extent.address).address, .reason = reason});
  }
  if (!gone.empty()) file.deferred = reason == LossReason::kDamaged ? Code::kCorruption : Code::kIoError;
}

bool Engine::has_losses(FileIndex index, uint64_t from, uint64_t to) const {
  bool any = false;
  if (losses_.empty()) return false;
  files_[index].map.visit(from, to, [&](const Extent& extent) { any |= extent.state == ExtentState::kLost; });
  return any;
}

void Engine::drop_losses(FileIndex index, uint64_t from, uint64_t to) {
  if (losses_.empty()) return;
  std::vector<Extent> lost;
  files_[index].map.visit(from, to, [&](const Extent& extent) {
    if (extent.state == ExtentState::kLost) lost.push_back(extent);
  });
  for (const Extent& extent : lost)
    files_[index].map.carve(extent.offset, extent.end(), [](const Extent&) {});
  if (!lost.empty()) losses_changed();
}

// The op has replaced what was lost, and no record says so: the list must.
void Engine::wait_for_losses(OpIndex index) {
  Op& op = ops_[index];
  op.over_loss = false;
  drop_losses(op.file, op.offset, op.kind == Op::Kind::kWrite ? op.offset + op.length : kFileBytesMax);
  if (losses_saved()) return losses_told(index, Code::kOk);
  if (op.kind == Op::Kind::kWrite) op.stage = Op::Stage::kLossWait;
  loss_waiters_.emplace_back(loss_version_, index);
}

// The list is durable without what the op has replaced; or cannot be.
void Engine::losses_told(OpIndex index, Code code) {
  if (ops_[index].kind != Op::Kind::kWrite) return end_barrier(index, code);
  finish(index, code);
}

LossList Engine::losses() const {
  LossList list{.log_id = options_.log_id, .ranges = accepted_};
  const size_t accepted = acceptances_.empty() ? 0 : acceptances_.back().losses;
  if (losses_.empty()) return list;
  for (const File& file : files_) {
    if (file.unlinked) continue;
    file.map.visit(0, kFileBytesMax, [&](const Extent& extent) {
      if (extent.state != ExtentState::kLost) return;
      const size_t number = (extent.address - kLossBase) / kLossStride;
      LostRange range = losses_[number].range;
      range.file = file.id;
      range.offset = extent.offset;
      range.length = extent.length;
      range.accepted = number < accepted;
      list.ranges.push_back(range);
    });
  }
  return list;
}

void Engine::accept_losses(Ticket ticket, Nanos now) {
  set_now(now);
  losses_changed();
  acceptances_.push_back({ticket, loss_version_, losses_.size()});
  pump();
}

// What the list leaves out must be durable before the list is, whatever the mode: or a power cut would leave older bytes that nobody
// names. So a snapshot of the list waits for a sync of the device that has what replaced a loss.
void Engine::save_losses() {
  if (loss_in_flight_ || loss_retry_ > now_) return;
  SyncLane& lane = log_usable() ? log_lane_ : backing_lane_;
  if (loss_lane_ != &lane) loss_snapshot_.reset();  // the log has failed meanwhile
  if (!loss_snapshot_) {
    loss_snapshot_ = losses();
    loss_saving_ = loss_version_;
    loss_lane_ = &lane;
    loss_sync_ = want_sync(&lane, now_);
  }
  if (lane.done < loss_sync_) return;
  loss_in_flight_ = true;
  emit({.kind = Action::Kind::kSaveLosses});
}

void Engine::losses_written(Code code) {
  loss_in_flight_ = false;
  loss_snapshot_.reset();
  segments_changed_ = true;
  if (code == Code::kOk)
    loss_saved_ = loss_saving_;
  else
    loss_retry_ = now_ + options_.retry_ns;
  if (code != Code::kOk && !log_usable()) ++stats_.flush_errors;  // the abandonment waits for the list
  while (!acceptances_.empty() && acceptances_.front().version <= loss_saving_) {
    const Acceptance done = acceptances_.front();
    acceptances_.erase(acceptances_.begin());
    if (code == Code::kOk) end_acceptance(done);
    refuse(done.ticket, kNoFile, code);
  }
  while (!loss_waiters_.empty() && loss_waiters_.front().first <= loss_saving_) {
    const OpIndex index = loss_waiters_.front().second;
    loss_waiters_.pop_front();
    losses_told(index, code);
  }
}

// Reads give what the backing device has; the list keeps the ranges as accepted while the log may have remains of them.
void Engine::end_acceptance(const Acceptance& done) {
  for (File& file : files_) {
    std::vector<Extent> lost;
    file.map.visit(0, kFileBytesMax, [&](const Extent& extent) {
      if (extent.state == ExtentState::kLost && (extent.address - kLossBase) / kLossStride < done.losses)
        lost.push_back(extent);
    });
    for (const Extent& extent : lost) {
      LostRange range = losses_[(extent.address - kLossBase) / kLossStride].range;
      range.file = file.id;
      range.offset = extent.offset;
      range.length = extent.length;
      range.accepted = true;
      if (range.address != LostRange::kNoAddress) accepted_.push_back(range);
      file.map.carve(extent.offset, extent.end(), [](const Extent&) {});
    }
  }
}

}  // namespace swale::tier
