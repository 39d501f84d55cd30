#include "tier/engine/sync_requests.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::tier {

void SyncRequests::sync(Ticket ticket, FileIndex file, const Redirector::Awaited& awaited) {
  assert(file != kNoFile);
  pending_.push_back({.ticket = ticket,
                      .file = file,
                      .epoch = shared_.files[file].epochs.close(),
                      .errors = shared_.stats.flush_errors,
                      .began = shared_.now,
                      .awaited = awaited});
  shared_.rare_work = true;
}

void SyncRequests::drain(Ticket ticket) {
  pending_.push_back(
      {.ticket = ticket, .epoch = shared_.ops.epochs().close(), .errors = shared_.stats.flush_errors});
  ++drains_;
  records_.hurry();
  shared_.rare_work = true;
}

bool SyncRequests::any_of(FileIndex file) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [file](const Pending& pending) { return pending.file == file; });
}

bool SyncRequests::advance() {
  bool any = false;
  for (size_t i = 0; i < pending_.size();) {
    Code result = Code::kOk;
    Pending* const pending = &pending_[i];
    if (!(pending->is_drain() ? advance_drain(pending, &result) : advance_file(pending, &result))) {
      ++i;
      continue;
    }
    const Pending done = pending_[i];
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    answer(done, result);
    any = true;
  }
  return any;
}

void SyncRequests::answer(const Pending& done, Code result) {
  if (done.is_drain()) {
    assert(drains_ > 0);
    --drains_;
    records_.end_hurry();
  } else {
    if (done.awaited.direct) costs_.wait_ends();
    if (result == Code::kOk && done.awaited.direct)
      redirector_.sync_waited(done.file, done.began, done.awaited.writes);
    else if (result == Code::kOk && done.logged)
      costs_.log_synced(shared_.now - done.began);
    const Code lost = std::exchange(shared_.files[done.file].deferred, Code::kOk);
    if (lost != Code::kOk) result = lost;
  }
  shared_.outbox.answer(done.ticket, done.file, result);
}

bool SyncRequests::advance_file(Pending* pending, Code* result) {
  const FileState& file = shared_.files[pending->file];
  if (pending->stage == Pending::Stage::kWrites) {
    if (!file.epochs.finished(pending->epoch)) return false;
    pending->number = syncs_.want_log_sync(file);
    pending->file_number = syncs_.want_file_sync(pending->file);
    pending->logged = pending->number > syncs_.log.done();
    pending->stage = Pending::Stage::kLog;
  }
  if (file.syncs_done < pending->file_number) return false;
  if (syncs_.log.done() >= pending->number || records_.state() == LogRecords::State::kGone) return true;
  // A log that has failed makes nothing durable any more: its abandonment does, unless the backing device
  // fails too.
  if (records_.usable() || shared_.stats.flush_errors == pending->errors) return false;
  *result = Code::kIoError;
  return true;
}

bool SyncRequests::advance_drain(Pending* pending, Code* result) {
  LogSpace& log = shared_.log;
  switch (pending->stage) {
    case Pending::Stage::kWrites:
      if (!shared_.ops.epochs().finished(pending->epoch)) return false;
      log.seal_active();
      shared_.segments_changed = true;
      pending->ordinal = log.ordinal();
      pending->stage = Pending::Stage::kLog;
      [[fallthrough]];
    case Pending::Stage::kLog:
      if (shared_.stats.flush_errors > pending->errors) {
        *result = Code::kIoError;
        return true;
      }
      for (uint32_t i = 0; i < log.count(); ++i)
        if (log.at(i).live() && log.at(i).ordinal <= pending->ordinal && log.at(i).dirty_bytes > 0)
          return false;
      if (barriers_.cuts_refused()) return false;  // the next attempt tells
      pending->number = syncs_.backing.want(shared_.now);
      pending->errors = shared_.stats.flush_errors;
      pending->stage = Pending::Stage::kBacking;
      [[fallthrough]];
    case Pending::Stage::kBacking:
      if (syncs_.backing.done() < pending->number) return false;
      if (shared_.stats.flush_errors > pending->errors) *result = Code::kIoError;
      return true;
  }
  return false;
}

}  // namespace swale::tier
