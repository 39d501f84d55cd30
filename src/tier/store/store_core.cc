#include "tier/store/store_core.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/log.h"

namespace swale::tier {
namespace {

constexpr uint64_t kBlockBytes = 4096;  // in which file systems take space

}  // namespace

StoreCore::StoreCore(io::Device& device, OpenedStore opened)
    : device_(*opened.device),
      opened_(std::move(opened)),
      log_bytes_(opened_.options.engine.segment_count * opened_.options.engine.segment_bytes),
      storage_(io::StorageThread::of(device)),
      slots_(opened_.options.queue_slots),
      log_operations_(opened_.options.engine, opened_.log.get(), opened_.table.get()) {
  const MutexLock lock(mutex_);
  engine_ = std::make_unique<Engine>(opened_.options.engine);
  buffers_.resize(engine_->flush_buffers());
}

StoreCore::~StoreCore() { static_cast<void>(close(false)); }

Status StoreCore::start() {
  SWALE_RETURN_IF_ERROR(storage_->add(this));
  root_ = backing_root(opened_.options.backing_directory);
  for (FoundFile& found : opened_.files) {
    SWALE_ASSIGN_OR_RETURN(const BackingState state, state_of(*found.file));
    const MutexLock lock(mutex_);
    const FileIndex file = add_file(std::move(found.file), state, found.id);
    files_.wait(file);
    files_[file].view.written_bytes = kFileBytesMax;  // not counted
  }
  opened_.files.clear();
  {
    const MutexLock lock(mutex_);
    engine_call([&]() REQUIRES(mutex_) {
      engine_->pause_flush(opened_.options.flush_paused, now());
      const auto recovered = engine_->recover(opened_.found, now());
      opened_.report.records = recovered.records;
      opened_.report.dropped = recovered.dropped - std::min(recovered.dropped, opened_.kept_records);
      opened_.report.dirty_bytes = recovered.dirty_bytes;
      opened_.report.truncates = recovered.truncates;
    });
    opened_.found = {};
    if (!poisoned_.ok()) return poisoned_;
    for (LostBytes& lost : lost_bytes()) opened_.report.lost.push_back(std::move(lost));
  }
  timer_ = std::thread([this] { run_timer(); });
  storage_->wake(this);
  return opened_.options.accept_loss ? accept_losses() : Status();
}

Status StoreCore::close(bool drain_first) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return {};
  }
  // A log without a name is lost with this process.
  const Status there = log_is_there();
  if (!there.ok()) log_error("{}; everything is written to the backing directory now", there.message());
  drain_first |= !there.ok();
  Status status = drain_first ? drain() : Status();
  {
    // Page cache: what is under way has a place in the queue. Other modes: whoever waits for an answer is not
    // done yet.
    MutexLock lock(mutex_);
    answered_.wait(lock, [this]() REQUIRES(mutex_) { return waiters_.empty() || !poisoned_.ok(); });
    slot_free_.wait(lock, [this]() REQUIRES(mutex_) { return slots_.all_free() || !poisoned_.ok(); });
    settle_log(&lock);
    closed_ = stopping_ = true;
    timer_changed_.notify_all();
    slot_free_.notify_all();
  }
  if (timer_.joinable()) timer_.join();
  storage_->remove(this);
  const bool clean = [this] {
    const MutexLock lock(mutex_);
    for (FileIndex file = 0; file < files_.end() && poisoned_.ok(); ++file)
      if (files_.is_open(file) && !files_[file].unlinked) save_times(file);
    return poisoned_.ok();
  }();
  if (clean && opened_.queue) static_cast<void>(device_.remove(opened_.queue->path()));
  if (clean) seal_log();
  if (clean && drain_first && status.ok()) status = end_claim();
  opened_.ssd_lock.reset();
  opened_.backing_lock.reset();
  return status;
}

// Everything is on the backing device, so the log does not count any more: another SSD directory may be used,
// and this log, if it comes back one day, is not replayed.
Status StoreCore::end_claim() {
  // Nobody waits, and all slots are free: no write is on its way. What goes on in the log (an erasure, its
  // abandonment) does not matter.
  const bool nothing_left = [this] {
    const MutexLock lock(mutex_);
    return engine_->dirty_files().empty() && engine_->losses().ranges.empty();
  }();
  if (!nothing_left) return {};
  Marker marker = opened_.marker;
  marker.abandoned = true;
  marker.log_id = opened_.options.engine.log_id;
  marker.queues_log_id = marker.queues_from = 0;
  return io::replace_file(device_, marker_path(opened_.options.backing_directory), encode_marker(marker));
}

std::string StoreCore::full_path(const std::string& path) const {
  return opened_.options.backing_directory + "/" + path;
}

// Nothing is known of the engine any more. Whoever waits is told.
void StoreCore::poison(const Status& why) {
  poisoned_ = why.with_context("the tier's engine failed; open the store again to recover");
  for (auto& [ticket, waiter] : waiters_) waiter->answered = true;
  answered_.notify_all();
  slot_free_.notify_all();
  timer_changed_.notify_all();
}

// Gives answers, and keeps what the storage thread has to do.
void StoreCore::collect() {
  bool work = false;
  while (const Action* action = engine_->next_action()) {
    if (action->kind <= Action::Kind::kRelease) {
      answer(*action);
      continue;
    }
    // Not what the engine does for nobody: its ticket is what own_ticket_ is while no write is handed in.
    if (action->kind == Action::Kind::kAppend && own_ticket_ != kRecoveryTicket &&
        action->ticket == own_ticket_) {
      own_append_ = *action;
      continue;
    }
    pending_.push_back(*action);
    work |= action->kind != Action::Kind::kWriteBacking || !helps_;
  }
  if (work) storage_->wake(this);
  if (engine_->next_event() < timer_due_) timer_changed_.notify_one();
}

void StoreCore::answer(const Action& action) {
  if (action.ticket == kRecoveryTicket) return;
  if (action.ticket < slots_.count()) {
    const auto index = static_cast<uint32_t>(action.ticket);
    if (action.kind == Action::Kind::kAcknowledge) {
      if (action.queued && !opened_.options.canary_unsealed_queue) {
        RecordHeader record = action.record;
        record.check = slots_.check(index);
        opened_.queue->seal(index, record);
      }
      slots_.answer(index, action.code);
      answered_.notify_all();
      if (!action.released) return;
    }
    opened_.queue->clear(index);
    if (slots_.release(index)) slot_free_.notify_all();
    return;
  }
  if (action.kind == Action::Kind::kRelease) return;
  const auto waiter = waiters_.find(action.ticket);
  if (waiter == waiters_.end()) return;
  waiter->second->answered = true;
  waiter->second->code = action.code;
  answered_.notify_all();
}

Status StoreCore::failure(Code code, FileIndex file, std::string_view what) {
  if (code == Code::kOk) return {};
  const Status told = error(code, Scope::kFile, "{}: {} failed: {}", name_of(file), what,
                            last_error_.ok() ? "refused by the engine" : last_error_.message());
  // A full disk and a used-up quota have one code, and programs tell them apart.
  return last_error_.code() == code ? told.with_error_number(last_error_.error_number()) : told;
}

Status StoreCore::write(FileIndex file, uint64_t offset, uint64_t length, const Store::Fill& fill,
                        Helps helps) {
  const uint32_t part_max = opened_.queue->slot_bytes();
  if (offset > kFileBytesMax || length > kFileBytesMax - offset)
    return invalid_argument("a write of {} bytes at {}: files have at most {} bytes", length, offset,
                            kFileBytesMax);
  std::vector<uint32_t> mine;
  MutexLock lock(mutex_);
  if (!files_.has_handle(file)) return unknown(file);
  Status status;
  const auto harvest = [&]() REQUIRES(mutex_) {  // the oldest of our parts
    const uint32_t slot = mine.front();
    if (!slots_.answered(slot)) wake_for_pending();
    answered_.wait(lock, [&]() REQUIRES(mutex_) { return slots_.answered(slot) || !poisoned_.ok(); });
    const Code code = poisoned_.ok() ? slots_.code(slot) : poisoned_.code();
    if (status.ok() && code != Code::kOk)
      status = poisoned_.ok() ? failure(code, file, "a write") : poisoned_;
    if (code == Code::kOk) files_.modify(file);
    if (slots_.collect(slot)) slot_free_.notify_all();
    mine.erase(mine.begin());
  };
  while (length > 0 && status.ok()) {
    if (!slots_.any_free() && !mine.empty()) {
      harvest();
      continue;
    }
    if (!slots_.any_free()) wake_for_pending();
    slot_free_.wait(lock,
                    [&]() REQUIRES(mutex_) { return slots_.any_free() || stopping_ || !poisoned_.ok(); });
    if (!poisoned_.ok()) status = poisoned_;
    if (stopping_ && status.ok()) status = error(Code::kAborted, Scope::kFile, "the store is closed");
    if (!status.ok()) break;
    const uint32_t index = slots_.take();
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, part_max));
    const MutableBytes place(opened_.queue->payload(index), part);
    lock.unlock();
    status = contain([&] { return fill(place); });
    const uint32_t check =
        status.ok() ? make_checks(Bytes(place.data(), part), opened_.queue->checks(index, part)) : 0;
    lock.lock();
    if (!status.ok()) {
      slots_.give_back(index);
      slot_free_.notify_all();
      break;
    }
    slots_.set_check(index, check);
    mine.push_back(index);
    hand_in(index, file, offset, part, helps);
    offset += part;
    length -= part;
  }
  while (!mine.empty()) harvest();
  return status;
}

// Gives the engine a write whose bytes are in slot `index`. If it goes to the log at once, this thread
// appends it.
void StoreCore::hand_in(uint32_t index, FileIndex file, uint64_t offset, uint32_t length, Helps helps) {
  // Each write takes whole blocks.
  uint64_t& written = files_[file].view.written_bytes;
  written = std::min(written + (offset + length + kBlockBytes - 1) / kBlockBytes * kBlockBytes -
                         offset / kBlockBytes * kBlockBytes,
                     kFileBytesMax);
  own_ticket_ = index;
  helps_ = helps == Helps::kYes;
  engine_call([&]() REQUIRES(mutex_) { engine_->write(index, file, offset, length, now()); });
  own_ticket_ = kRecoveryTicket;
  helps_ = false;
  const auto append = std::exchange(own_append_, std::nullopt);
  if (!append) return;
  const auto [at, bytes] = record_bytes(*append);
  mutex_.unlock();
  const Status appended = contain([&] { return opened_.log->pwrite(at, bytes); });
  mutex_.lock();
  finish(Action::Kind::kAppend, append->id, appended);
}

std::pair<io::File*, uint64_t> StoreCore::log_place(uint64_t address) const {
  if (address < log_bytes_) return {opened_.log.get(), address};
  for (size_t i = opened_.old_queues.size(); i-- > 0;)
    if (address >= opened_.old_queues[i].base)
      return {opened_.old_queues[i].file.get(), address - opened_.old_queues[i].base};
  return {opened_.log.get(), address};
}

Status StoreCore::read_piece(const ReadPiece& piece, io::File* backing, MutableBytes out) {
  switch (piece.from) {
    case ReadPiece::From::kBacking:
      return read_backing(piece, backing, out);
    case ReadPiece::From::kLog:
      return read_log_piece(piece, backing, out);
    case ReadPiece::From::kLost:
      return lost(backing->path(), piece);
    case ReadPiece::From::kQueue:
      std::memcpy(out.data(), opened_.queue->payload(static_cast<uint32_t>(piece.ticket)) + piece.skip,
                  out.size());
      return {};
    case ReadPiece::From::kZeros:
      std::memset(out.data(), 0, out.size());
      return {};
  }
  return {};
}

Result<size_t> StoreCore::read(FileIndex file, uint64_t offset, MutableBytes out) {
  ReadPlan plan;
  io::File* backing = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!poisoned_.ok()) return poisoned_;
    if (!files_.has_handle(file)) return unknown(file);
    const uint64_t size = engine_->file_size(file);
    if (offset >= size || out.empty()) return size_t{0};
    out = out.first(std::min<uint64_t>(out.size(), size - offset));
    backing = files_.use(file);
    engine_->plan_read(file, offset, out.size(), &plan);
  }
  Status status;
  for (const ReadPiece& piece : plan.pieces)
    if (status.ok()) status = read_piece(piece, backing, out.subspan(piece.offset - offset, piece.length));
  const MutexLock lock(mutex_);
  files_.unuse(file);
  engine_call([&]() REQUIRES(mutex_) { engine_->read_done(plan, now()); });
  if (!status.ok()) return status;
  return out.size();
}

Result<uint64_t> StoreCore::size(FileIndex file) {
  const MutexLock lock(mutex_);
  if (!files_.has_handle(file)) return unknown(file);
  return engine_->file_size(file);
}

Status StoreCore::wait_for(Ticket ticket, Waiter* waiter, FileIndex file, std::string_view what,
                           MutexLock* lock) {
  answered_.wait(*lock, [&]() { return waiter->answered; });
  waiters_.erase(ticket);
  if (waiters_.empty()) answered_.notify_all();
  if (!poisoned_.ok()) return poisoned_;
  return failure(waiter->code, file, what);
}

Status StoreCore::truncate(FileIndex file, uint64_t size) {
  MutexLock lock(mutex_);
  if (!poisoned_.ok()) return poisoned_;
  if (!files_.has_handle(file)) return unknown(file);
  const Status status = ask(file, "truncate", &lock, [&](Ticket ticket) REQUIRES(mutex_) {
    engine_->truncate(ticket, file, size, now());
  });
  if (status.ok() && files_.has_handle(file)) files_.modify(file);
  return status;
}

Status StoreCore::sync(FileIndex file) {
  MutexLock lock(mutex_);
  if (!poisoned_.ok()) return poisoned_;
  if (!files_.has_handle(file)) return unknown(file);
  const Status status = ask(file, "a write that was acknowledged before, or its sync,", &lock,
                            [&](Ticket ticket) REQUIRES(mutex_) { engine_->sync(ticket, file, now()); });
  save_times(file);
  return status;
}

Status StoreCore::drain() {
  MutexLock lock(mutex_);
  if (!poisoned_.ok()) return poisoned_;
  return ask(~FileIndex{0}, "drain", &lock,
             [&](Ticket ticket) REQUIRES(mutex_) { engine_->drain(ticket, now()); });
}

Status StoreCore::drain_queues() {
  constexpr Nanos kErasure = 60'000'000'000;  // a few syncs
  SWALE_RETURN_IF_ERROR(drain());
  MutexLock lock(mutex_);
  answered_.wait_for(lock, kErasure,
                     [this]() REQUIRES(mutex_) { return opened_.old_queues.empty() || !poisoned_.ok(); });
  return poisoned_;
}

void StoreCore::pause_flush(bool paused) {
  const MutexLock lock(mutex_);
  engine_call([&]() REQUIRES(mutex_) { engine_->pause_flush(paused, now()); });
}

Stats StoreCore::stats() {
  const MutexLock lock(mutex_);
  return engine_->stats();
}

void StoreCore::run_timer() {
  const MutexLock lock(mutex_);
  while (!stopping_ && poisoned_.ok()) {
    const Nanos next = engine_->next_event();
    const Nanos time = now();
    timer_due_ = next;
    if (next <= time) {
      engine_call([&]() REQUIRES(mutex_) { engine_->advance(time); });
      // An engine that wants to be called at once again would keep the mutex busy.
      if (engine_->next_event() <= time) timer_changed_.wait_for(lock, 1'000'000);
      continue;
    }
    if (removals_due_ <= time) {
      sync_removals();
      continue;
    }
    timer_changed_.wait_for(lock, std::min<Nanos>(std::min(next, removals_due_) - time, 3'600'000'000'000));
  }
}

}  // namespace swale::tier
