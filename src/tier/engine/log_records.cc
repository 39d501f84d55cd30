#include "tier/engine/log_records.h"

namespace swale::tier {

bool LogRecords::take_space(Op* write) {
  assert(write->is_write());
  const uint64_t bytes = record_space(write->length, shared_.options.log_alignment);
  const auto address = shared_.log.reserve(bytes, shared_.now);
  if (!address) return false;
  write->address = *address;
  write->segment = shared_.log.active();
  shared_.log.seal_if_full(bytes);
  return true;
}

void LogRecords::advance_marks() {
  if (mark_in_flight_) return;
  const bool possible = usable() && settled_.all() && waiters_.empty() && shared_.log.fits(control_bytes());
  if (last_logged_ > marked_ && possible) {
    if (mark_due_ == kForever) mark_due_ = shared_.now + shared_.options.settle_ns;
    if (shared_.now >= mark_due_ || !mark_waiters_.empty()) append_mark();
    return;
  }
  mark_due_ = kForever;
  if (!settled_.all() && usable()) return;
  for (const Ticket ticket : std::exchange(mark_waiters_, {}))
    shared_.outbox.answer(ticket, kNoFile, Code::kOk);
}

void LogRecords::append_mark() {
  assert(usable() && settled_.all());
  mark_address_ = *shared_.log.reserve(control_bytes(), shared_.now);
  shared_.log.leave_unsealed(shared_.log.segment_of(mark_address_));
  mark_in_flight_ = true;
  Action action{.kind = Action::Kind::kAppend, .id = kNoOp, .ticket = kMarkTicket};
  action.record.type = RecordType::kSettled;
  fill_header(&action.record, kNoFile, mark_address_, shared_.log.segment_of(mark_address_));
  mark_sequence_ = action.record.sequence;
  shared_.outbox.emit(action);
}

void LogRecords::mark_appended() {
  assert(mark_in_flight_);
  const uint32_t segment = shared_.log.segment_of(mark_address_);
  --shared_.log.at(segment).appending;
  if (segment != shared_.log.active()) shared_.segments_changed = true;
  settled_.end(mark_sequence_);
  mark_in_flight_ = false;
}

// Says, too, until when nothing can be idle or old: a segment that becomes active later is younger.
void LogRecords::seal_old() {
  const Options& options = shared_.options;
  if (shared_.log.active() == LogSpace::kNone) {
    seal_after_ = shared_.now + std::min(options.idle_flush_ns, options.age_flush_ns);
    return;
  }
  const Segment& active = shared_.log.at(shared_.log.active());
  seal_after_ =
      std::min(active.last_write + options.idle_flush_ns, active.first_write + options.age_flush_ns);
  if (shared_.now >= seal_after_) shared_.log.seal_active();
}

std::optional<std::vector<SegmentSeal>> LogRecords::seals() const {
  if (!usable()) return std::nullopt;
  std::vector<SegmentSeal> seals;
  for (uint32_t i = 0; i < shared_.options.segment_count; ++i) {
    const Segment& segment = shared_.log.at(i);
    if (segment.appending > 0) return std::nullopt;
    const bool erased = segment.state == Segment::State::kFree || segment.state == Segment::State::kErasing ||
                        segment.state == Segment::State::kErasureSync;
    seals.push_back({segment.generation, erased ? std::vector<uint32_t>() : shared_.log.sealed_records(i)});
  }
  return seals;
}

}  // namespace swale::tier
