// StoreCore: actions of the engine as operations of the storage thread.
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "tier/store/store_core.h"

namespace swale::tier {
namespace {

constexpr size_t kHelpMax = 64;      // slots that one call of help() writes
constexpr Nanos kQuickNs = 200'000;  // a write to the backing device that does not wait for the device itself
constexpr uint32_t kQuickAgain = 64;  // so many quick ones must follow a slow one
constexpr size_t kActionsMax = 32;    // of one batch; a slot may be several operations

}  // namespace

bool StoreCore::start(std::vector<io::Operation>* operations) {
  MutexLock lock(mutex_);
  for (size_t i = 0;
       i < kActionsMax && !pending_.empty() && operations->size() < io::StorageThread::kBatchMax / 2; ++i) {
    const Action action = pending_.front();
    pending_.pop_front();
    begin_action(action, operations);
  }
  sync_files(operations);
  return !pending_.empty() || file_syncs_.any_to_begin();
}

void StoreCore::begin_action(const Action& action, std::vector<io::Operation>* operations) {
  switch (action.kind) {
    case Action::Kind::kAppend:
      return begin_append(action, operations);
    case Action::Kind::kReadLog:
      return begin_read_log(action, operations);
    case Action::Kind::kWriteBacking:
      return begin_slot(action, operations);
    case Action::Kind::kSyncLog:
      return log_operations_.sync(operations);
    case Action::Kind::kSyncBacking:
      return begin_backing_sync();
    case Action::Kind::kSyncFile:
      return begin_file_sync(action.file);
    case Action::Kind::kErase:
      return begin_erase(action, operations);
    case Action::Kind::kTruncate:
    case Action::Kind::kUnlink:
    case Action::Kind::kAbandonLog:
    case Action::Kind::kSaveLosses:
      return call_blocking(action);
    case Action::Kind::kAcknowledge:
    case Action::Kind::kRelease:
      return;
  }
}

void StoreCore::begin_append(const Action& action, std::vector<io::Operation>* operations) {
  if (!action.record.has_payload()) return log_operations_.append_control(action, operations);
  const auto [offset, bytes] = record_bytes(action);
  operations->push_back(write_of(opened_.log.get(), offset, bytes, tag_of(action.kind, action.id)));
}

// A record with payload, as it is written to the log, and where.
std::pair<uint64_t, Bytes> StoreCore::record_bytes(const Action& action) {
  const auto index = static_cast<uint32_t>(action.ticket);
  RecordHeader record = action.record;
  record.check = slots_.check(index);
  return {record.address, opened_.queue->log_record(index, record, opened_.options.engine.log_alignment)};
}

void StoreCore::begin_read_log(const Action& action, std::vector<io::Operation>* operations) {
  const FlushPiece& piece = engine_->flush_piece(action.id);
  // The record from its begin, so that its checks are there; what an old queue has was checked when it was
  // opened.
  const bool checked = !is_old_queue(piece.address);
  const uint64_t begin = checked ? piece.record.address : piece.address;
  const uint64_t bytes = checked ? verify_bytes(piece.record, piece.address, piece.length) : piece.length;
  std::string& buffer = buffers_[action.id];
  if (buffer.size() < bytes) buffer.resize(bytes);
  const auto [file, offset] = log_place(begin);
  io::Operation operation;
  operation.kind = io::Operation::Kind::kRead;
  operation.file = file;
  operation.offset = offset;
  operation.into = MutableBytes(buffer.data(), bytes);
  operation.tag = tag_of(action.kind, action.id);
  operations->push_back(operation);
}

// Where the bytes of a piece are in its buffer.
const char* StoreCore::flushed_bytes(uint32_t buffer) {
  const FlushPiece& piece = engine_->flush_piece(buffer);
  const uint64_t begin = is_old_queue(piece.address) ? piece.address : piece.record.address;
  return buffers_[buffer].data() + (piece.address - begin);
}

void StoreCore::begin_slot(const Action& action, std::vector<io::Operation>* operations) {
  const tier::Slot& slot = engine_->slot(action.id);
  if (slot_writes_.size() <= action.id) slot_writes_.resize(action.id + 1);
  SlotWrite& write = slot_writes_[action.id] = {};
  write.failed_syncs = file_syncs_.failures(slot.file);
  io::File* const file = files_.use(slot.file);
  write.offset = slot.pieces.front().offset;
  for (const Piece& piece : slot.pieces) {
    write.bytes += piece.length;
    write.direct |= piece.source == Piece::Source::kRequest;
    const char* const from = piece.source == Piece::Source::kRequest
                                 ? opened_.queue->payload(static_cast<uint32_t>(piece.ticket))
                                 : flushed_bytes(piece.op);
    operations->push_back(
        write_of(file, piece.offset, Bytes(from, piece.length), tag_of(action.kind, action.id)));
    ++write.operations;
  }
}

// Writes to the backing device by a thread that has just brought a write. One at a time, and not for ever:
// the storage thread takes over what is left.
//
// While the backing device's page cache takes writes at once, the thread's own write is done before the
// answer: whoever is woken by the answer then finds a processor free, which is worth more than the write
// costs. A device that lets writes wait must not hold up answers: only that lets the queue fill, which tells
// the redirector.
void StoreCore::help_before_answer() {
  const MutexLock lock(mutex_);
  if (slow_writes_ == 0) help_with(1);
}

void StoreCore::help() {
  const MutexLock lock(mutex_);
  help_with(kHelpMax);
  wake_for_pending();
}

void StoreCore::help_with(size_t slots_max) {
  for (size_t i = 0; i < slots_max && !helping_ && poisoned_.ok() && !pending_.empty() &&
                     pending_.front().kind == Action::Kind::kWriteBacking;
       ++i) {
    const uint32_t id = pending_.front().id;
    pending_.pop_front();
    helping_ = true;
    std::vector<io::Operation> writes;
    begin_slot({.kind = Action::Kind::kWriteBacking, .id = id}, &writes);
    mutex_.unlock();
    Status status;
    const Nanos begin = now();
    for (const io::Operation& write : writes)
      if (status.ok()) status = contain([&] { return write.file->pwrite(write.offset, write.from); });
    const bool slow = now() - begin > kQuickNs * static_cast<Nanos>(writes.size());
    mutex_.lock();
    helping_ = false;
    if (slow) slow_writes_ = kQuickAgain;
    if (!slow && slow_writes_ > 0) --slow_writes_;
    slot_done(id, status, Helps::kYes);
  }
}

// Before a thread that might have helped waits, or ends.
void StoreCore::wake_for_pending() {
  if (!pending_.empty()) storage_->wake(this);
}

// The engine tries again or keeps the bytes elsewhere, and its callers may never ask: so the log of the
// program is told, once until the file can be written again.
void StoreCore::tell_write(FileIndex file, const SlotWrite& write, const Status& status) {
  if (status.ok() != files_[file].write_failed) return;
  files_[file].write_failed = !status.ok();
  const std::string name = name_of(file);
  if (status.ok()) {
    log_warn("{}: can be written to again", name);
  } else if (write.direct) {
    log_error(
        "{}: writing {} bytes from offset {} to it failed: {}; they are offered to the SSD log; if it does "
        "not take them, the write fails, or if it was acknowledged, the next fsync and close of the file "
        "say that it is lost",
        name, write.bytes, write.offset, status.message());
  } else {
    log_error(
        "{}: flushing {} bytes from offset {} to it failed: {}; they stay in the SSD log and are tried "
        "again every {:.1f} s; when the log is full, writes fail",
        name, write.bytes, write.offset, status.message(),
        static_cast<double>(opened_.options.engine.retry_ns) / 1e9);
  }
}

// All writes of a slot have ended.
void StoreCore::slot_done(uint32_t slot, const Status& status, Helps helps) {
  const FileIndex file = engine_->slot(slot).file;
  files_.unuse(file);
  tell_write(file, slot_writes_[slot], status);
  if (status.ok() && slot_writes_[slot].failed_syncs != file_syncs_.failures(file)) {
    // The sync that has failed may have had a part of this, and no later one would write or tell of it.
    pending_.push_front({.kind = Action::Kind::kWriteBacking, .id = slot});
    return storage_->wake(this);
  }
  files_[file].times_unsaved = true;  // the write has changed the backing file's
  // Only now: a sync that has begun during the write need not cover it.
  file_syncs_.written(file, slot_writes_[slot].direct);
  helps_ = helps == Helps::kYes;
  finish(Action::Kind::kWriteBacking, slot, status);
  helps_ = false;
  settle(file);
}

void StoreCore::begin_backing_sync() {
  if (file_syncs_.want_all()) return;
  finish(Action::Kind::kSyncBacking, 0, {});
  look_after_files(Action::Kind::kSyncBacking);
}

void StoreCore::begin_file_sync(FileIndex file) {
  if (!file_syncs_.want(file)) finish(Action::Kind::kSyncFile, file, {});
}

// Hands syncs of some of the files to the storage thread.
void StoreCore::sync_files(std::vector<io::Operation>* operations) {
  while (operations->size() < io::StorageThread::kBatchMax / 2) {
    const auto file = file_syncs_.next();
    if (!file) return;
    operations->push_back(sync_of(files_[*file].file.get(), tag_of(Action::Kind::kSyncFile, *file)));
  }
}

void StoreCore::file_synced(FileIndex index, const Status& status) {
  if (!status.ok())
    log_error(
        "{}: syncing it failed: {}; what was flushed since its last sync stays in the SSD log and is "
        "written again, and the fsync that asked for it says so",
        name_of(index), status.message());
  const FileSyncs::Ended ended = file_syncs_.ended(index, status);
  if (ended.another_to_begin) storage_->wake(this);
  if (ended.of_file) finish(Action::Kind::kSyncFile, index, status);
  if (ended.of_all) {
    finish(Action::Kind::kSyncBacking, 0, ended.all);
    look_after_files(Action::Kind::kSyncBacking);
  }
  settle(index);
}

void StoreCore::begin_erase(const Action& action, std::vector<io::Operation>* operations) {
  if (action.id >= opened_.options.engine.segment_count) {  // the queue of a killed process has served
    Status status;
    for (const auto& old : opened_.old_queues)
      if (Status removed = device_.remove(old.path); !removed.ok()) status = removed;
    if (status.ok()) status = device_.sync_directory(opened_.options.ssd_directory);
    if (status.ok()) opened_.old_queues.clear();
    answered_.notify_all();
    finish(action.kind, action.id, status);
    return;
  }
  log_operations_.erase(action, operations);
}

// What has no operation of its own: done by this thread, without the mutex.
void StoreCore::call_blocking(const Action& action) {
  if (action.kind == Action::Kind::kAbandonLog) {
    mutex_.unlock();
    const Status status = contain([this] { return abandon_log(); });
    mutex_.lock();
    return finish(action.kind, action.id, status);
  }
  if (action.kind == Action::Kind::kSaveLosses) {
    const LossList list = engine_->losses_to_save();
    mutex_.unlock();
    const Status status = contain([&] { return save_loss_list(list); });
    mutex_.lock();
    return finish(action.kind, action.id, status);
  }
  if (action.kind == Action::Kind::kUnlink) {  // the name is gone already
    finish(action.kind, action.id, {});
    return settle(action.file);
  }
  io::File* const file = files_.use(action.file);
  mutex_.unlock();
  Status status = contain([&] { return file->truncate(action.size); });
  if (!status.ok()) {  // an answer may be lost on its way; the size tells
    const auto now_is = state_of(*file);
    if (now_is.ok() && now_is->view.size == action.size) status = {};
  }
  mutex_.lock();
  files_.unuse(action.file);
  file_syncs_.written(action.file, true);
  files_[action.file].times_unsaved = true;
  finish(action.kind, action.id, status);
}

// A log whose last name was removed (a node's cleaner) keeps nothing: no later process finds it.
Status StoreCore::log_is_there() const {
  struct stat found;
  if (::fstat(opened_.log->descriptor(), &found) == 0 && found.st_nlink > 0) return {};
  return error(
      Code::kIoError, Scope::kFatal,
      "{}: was removed while it is in use; keep cleaners away from the SSD directory, and start again",
      opened_.log->path());
}

// Records of this log do not count any more: says so on the backing device, durably, after all that was
// flushed.
Status StoreCore::abandon_log() {
  std::vector<std::pair<FileIndex, io::File*>> unsynced;
  std::vector<std::string> old_queues;
  {
    const MutexLock lock(mutex_);
    for (const auto& old : opened_.old_queues) old_queues.push_back(old.path);
    for (FileIndex index = 0; index < files_.end(); ++index)
      if (files_.is_open(index) && file_syncs_.unsynced(index))
        unsynced.emplace_back(index, files_.use(index));
  }
  Status status;
  for (const auto& [index, file] : unsynced) {
    const Status synced = status.ok() ? file->sync() : Status();
    const MutexLock lock(mutex_);
    if (!synced.ok()) file_syncs_.failed(index);
    if (!synced.ok()) status = synced;
    files_.unuse(index);
  }
  SWALE_RETURN_IF_ERROR(status);
  // This process goes on, and acknowledges writes in its own queue. The older queues were flushed with the
  // log.
  const uint64_t log_id = opened_.options.engine.log_id;
  const Marker marker = {.abandoned = true,
                         .log_id = log_id,
                         .queues_log_id = log_id,
                         .queues_from = opened_.queue_number,
                         .trusted_ids = opened_.marker.trusted_ids};
  SWALE_RETURN_IF_ERROR(
      io::replace_file(device_, marker_path(opened_.options.backing_directory), encode_marker(marker)));
  for (const std::string& path : old_queues)
    static_cast<void>(device_.remove(path));  // the mark alone makes them void: the SSD may refuse
  return {};
}

// An action is carried out, or has failed.
void StoreCore::finish(Action::Kind kind, uint32_t id, const Status& status) {
  if (!status.ok()) last_error_ = status;
  engine_call([&]() REQUIRES(mutex_) { engine_->completed(kind, id, status.code(), now()); });
}

void StoreCore::completed(const io::Completion& completion) {
  const auto kind = static_cast<Action::Kind>(completion.tag >> 32);
  const auto id = static_cast<uint32_t>(completion.tag);
  if (kind == Action::Kind::kReadLog && completion.status.ok()) return log_was_read(id, completion.bytes);
  const MutexLock lock(mutex_);
  if (!poisoned_.ok()) return;
  if (kind == Action::Kind::kWriteBacking) {
    SlotWrite& write = slot_writes_[id];
    if (!completion.status.ok()) write.status = completion.status;
    if (--write.operations > 0) return;
    return slot_done(id, write.status, Helps::kNo);
  }
  if (kind == Action::Kind::kSyncFile) return file_synced(id, completion.status);
  std::optional<Status> ended = log_operations_.ended(kind, id, completion.status);
  if (!ended) return;
  Status status = *std::move(ended);
  if (kind == Action::Kind::kSyncLog && status.ok()) status = log_is_there();
  finish(kind, kind == Action::Kind::kSyncLog ? 0 : id, status);
  look_after_files(kind);
}

// After what may have been the last thing that kept files without handles.
void StoreCore::look_after_files(Action::Kind kind) {
  if (files_.waiting().empty() || !poisoned_.ok()) return;
  const bool synced =
      kind == Action::Kind::kSyncBacking && opened_.options.engine.durability != Durability::kPageCache;
  if (kind != Action::Kind::kSyncLog && !synced) return;
  const uint64_t erasures = engine_->stats().erasures;
  if (std::exchange(erasures_, erasures) != erasures || synced) settle_all();
}

// The checksums are computed without the mutex: nobody else has the buffer.
void StoreCore::log_was_read(uint32_t id, size_t bytes) {
  FlushPiece piece;
  Bytes record;
  {
    const MutexLock lock(mutex_);
    if (!poisoned_.ok()) return;
    piece = engine_->flush_piece(id);
    record = buffers_[id];
  }
  const auto damaged = damage_of(piece, record.substr(0, bytes));
  const MutexLock lock(mutex_);
  if (damaged.empty()) return finish(Action::Kind::kReadLog, id, {});
  engine_call([&]() REQUIRES(mutex_) { engine_->read_damaged(id, damaged, now()); });
}

void StoreCore::failed(const Status& why) noexcept {
  static_cast<void>(contain([&] {
    const MutexLock lock(mutex_);
    poison(why);
  }));
}

}  // namespace swale::tier
