// Engine: marks in an idle log. A record's header says what was acknowledged before it, so the last records before a pause
// have nobody to speak for them: after a while a record without payload does (settled.h).
#include "tier/engine/engine.h"

namespace swale::tier {

void Engine::settle(Ticket ticket, Nanos now) {
  set_now(now);
  settle_waiters_.push_back(ticket);
  pump();
}

void Engine::advance_settle() {
  if (mark_in_flight_) return;
  const bool possible = log_usable() && settled_.all() && log_waiters_.empty() && log_.fits(control_bytes());
  if (last_logged_ > marked_ && possible) {
    if (settle_due_ == kForever) settle_due_ = now_ + options_.settle_ns;
    if (now_ >= settle_due_ || !settle_waiters_.empty()) append_mark();
    return;
  }
  settle_due_ = kForever;
  if (!settled_.all() && log_usable()) return;
  for (const Ticket ticket : std::exchange(settle_waiters_, {})) refuse(ticket, kNoFile, Code::kOk);
}

void Engine::append_mark() {
  mark_address_ = *log_.reserve(control_bytes(), now_);
  log_.leave_unsealed(log_.segment_of(mark_address_));
  mark_in_flight_ = true;
  Action action{.kind = Action::Kind::kAppend, .id = kNoOp, .ticket = kMarkTicket};
  action.record.type = RecordType::kSettled;
  fill_header(&action.record, kNoFile, mark_address_, log_.segment_of(mark_address_));
  mark_sequence_ = action.record.sequence;
  emit(action);
}

void Engine::mark_appended(Code code) {
  const uint32_t segment = log_.segment_of(mark_address_);
  --log_.at(segment).appending;
  if (segment != log_.active()) segments_changed_ = true;
  settled_.end(mark_sequence_);
  mark_in_flight_ = false;
  if (code != Code::kOk) return log_failed(code);
  if (!page_cache()) want_sync(&log_lane_, sync_due());
}

}  // namespace swale::tier
