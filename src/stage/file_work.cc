#include "stage/file_work.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/contain.h"
#include "base/crc32c_join.h"
#include "io/many_syncs.h"
#include "stage/in_batches.h"

namespace swale::stage {

FileWork::FileWork(const CopyPlace& place, const Plan& plan, Journal& journal, Outcomes& outcomes)
    : place_(place), plan_(plan), journal_(journal), outcomes_(outcomes) {}

FileWork::~FileWork() = default;

void FileWork::run() {
  std::vector<Task> small;
  for (const Entry& entry : plan_.files) {
    if (is_there(entry)) continue;
    if (entry.bytes() > place_.options.piece_bytes)
      add_large(entry);
    else
      small.push_back({&entry});
  }
  std::move(small.begin(), small.end(), std::back_inserter(tasks_));
  const Status began = in_batches(
      place_.options.threads, place_.options.chunk_bytes,
      {.begin = [this](size_t first) { return begin_batch(first); },
       .write = [this](size_t task, Buffer& buffer) { write(tasks_[task], buffer); },
       .sync = [this](size_t first, size_t count) { sync(std::span(tasks_).subspan(first, count)); },
       .check = [this](size_t task, Buffer& buffer) { check(tasks_[task], buffer); }});
  if (!began.ok()) outcomes_.fail("", began);
  for (const Entry& link : plan_.links) {
    if (stopped()) return;
    const Status copied = contain([&] { return copy_link(place_, link); });
    if (copied.ok())
      outcomes_.done(link, std::nullopt, Outcomes::By::kThisRun);
    else
      outcomes_.fail(link.source, copied);
  }
}

// An earlier run has finished it, and neither side has changed since.
bool FileWork::is_there(const Entry& entry) {
  const Finished* const before = journal_.finished(entry.destination);
  if (before == nullptr || !(before->source == entry.identity())) return false;
  if (entry.crc && *entry.crc != before->crc) return false;
  const Result<struct stat> copy = place_.destination.look(entry.destination);
  if (!copy.ok() || !(FileIdentity::of(*copy) == before->copy)) return false;
  outcomes_.done(entry, before->crc, Outcomes::By::kEarlierRun);
  journal_.add(entry.destination, *before);
  return true;
}

void FileWork::add_large(const Entry& entry) {
  auto large = std::make_unique<Large>(entry);
  const uint64_t piece = place_.options.piece_bytes;
  const size_t pieces = (entry.bytes() + piece - 1) / piece;
  large->crcs.resize(pieces);
  {
    const MutexLock lock(large->mutex);
    large->left = pieces;
  }
  for (size_t i = 0; i < pieces; ++i) tasks_.push_back({&entry, large.get(), i});
  large_.push_back(std::move(large));
}

size_t FileWork::tasks_of_batch(size_t begin) const {
  size_t end = begin;
  uint64_t bytes = 0, files = 0;
  for (; end < tasks_.size(); ++end) {
    const Task& task = tasks_[end];
    bytes += bytes_of(task);
    files += task.large == nullptr || task.piece == 0 || end == begin ? 1 : 0;
    if (end > begin && (bytes > place_.options.batch_bytes || files > place_.options.batch_files)) break;
  }
  return end - begin;
}

// After a stop, and once all have begun: none.
size_t FileWork::begin_batch(size_t begin) {
  if (stopped()) return 0;
  const std::span<Task> batch = std::span(tasks_).subspan(begin, tasks_of_batch(begin));
  const Status noted = contain([&] {
    std::vector<const std::string*> destinations;
    for (const Task& task : batch)
      if (task.large == nullptr) destinations.push_back(&task.entry->destination);
    journal_.begin(destinations);
  });
  if (!noted.ok()) fail(batch, noted);
  return batch.size();
}

// Each task is failed already: its next steps do nothing.
void FileWork::fail(std::span<Task> batch, const Status& status) {
  for (Task& task : batch) {
    if (task.large != nullptr)
      note(*task.large, status);
    else if (task.status.ok())
      task.status = status;
  }
}

void FileWork::write(Task& task, Buffer& buffer) {
  if (stopped() || !task.status.ok()) return;
  if (task.large != nullptr) return write_piece(task, buffer);
  task.status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(task.copy, FileCopy::begin(place_, *task.entry));
    SWALE_ASSIGN_OR_RETURN(task.crc, task.copy->copy(0, task.entry->bytes(), buffer));
    return task.copy->settle(*task.crc);
  });
}

void FileWork::write_piece(Task& task, Buffer& buffer) {
  FileCopy* const copy = opened(*task.large);
  if (copy == nullptr || task.large->crcs[task.piece]) return;
  note(*task.large, contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(task.crc, copy->copy(offset_of(task), bytes_of(task), buffer));
    return {};
  }));
}

// Null: it has failed.
FileCopy* FileWork::opened(Large& large) {
  const MutexLock lock(large.mutex);
  if (!large.begun && large.status.ok()) {
    large.begun = true;
    large.status = contain([&]() NO_THREAD_SAFETY_ANALYSIS { return begin(large); });
  }
  return large.status.ok() ? large.copy.get() : nullptr;
}

void FileWork::note(Large& large, const Status& status) {
  const MutexLock lock(large.mutex);
  if (large.status.ok()) large.status = status;
}

void FileWork::sync(std::span<Task> batch) {
  if (!place_.durable()) return;
  if (const Status synced = contain([&] { sync_files(batch); }); !synced.ok()) fail(batch, synced);
}

// Each file once, however many pieces of it there are.
void FileWork::sync_files(std::span<Task> batch) {
  std::vector<std::pair<io::File*, Status*>> wanted;
  std::vector<Large*> large;
  for (Task& task : batch) {
    if (task.large == nullptr && task.copy && task.status.ok())
      wanted.emplace_back(&task.copy->out(), &task.status);
    if (task.large != nullptr && task.crc && (large.empty() || large.back() != task.large))
      large.push_back(task.large);
  }
  std::vector<Status> statuses(large.size());
  for (size_t i = 0; i < large.size(); ++i) {
    const MutexLock lock(large[i]->mutex);
    if (large[i]->status.ok()) wanted.emplace_back(&large[i]->copy->out(), &statuses[i]);
  }
  io::ManySyncs(place_.device).sync(wanted);
  for (size_t i = 0; i < large.size(); ++i) note(*large[i], statuses[i]);
}

void FileWork::check(Task& task, Buffer& buffer) {
  if (task.large != nullptr) return check_piece(task, buffer);
  if (task.copy && task.status.ok()) {
    task.status = contain([&]() -> Status {
      SWALE_RETURN_IF_ERROR(task.copy->read_back(0, task.entry->bytes(), task.crc.value_or(0), buffer));
      return publish(*task.copy, task.crc.value_or(0));
    });
  }
  if (task.copy && !task.status.ok()) task.copy->discard();
  if (!task.status.ok()) outcomes_.fail(task.entry->source, task.status);
  task.copy.reset();
}

void FileWork::check_piece(Task& task, Buffer& buffer) {
  Large& large = *task.large;
  FileCopy* const copy = opened(large);
  if (copy != nullptr && !large.crcs[task.piece])
    note(large, contain([&] { return check_written(*copy, task, buffer); }));
  const MutexLock lock(large.mutex);
  if (--large.left > 0) return;
  if (large.status.ok()) large.status = contain([&]() NO_THREAD_SAFETY_ANALYSIS { return finish(large); });
  if (!large.status.ok()) {
    outcomes_.fail(large.entry.source, large.status);
    // After a stop the pieces that are whole are for the next run.
    if (large.copy && large.status.code() != Code::kAborted) large.copy->discard();
  }
  large.copy.reset();
}

Status FileWork::check_written(FileCopy& copy, const Task& task, Buffer& buffer) {
  const uint64_t offset = offset_of(task), bytes = bytes_of(task);
  if (!task.crc) return stage_was_stopped(task.entry->source);
  SWALE_RETURN_IF_ERROR(copy.read_back(offset, bytes, *task.crc, buffer));
  task.large->crcs[task.piece] = task.crc;
  journal_.add(task.entry->destination, task.entry->identity(), copy.part(), {offset, bytes, *task.crc});
  return {};
}

Status FileWork::begin(Large& large) {
  const Entry& entry = large.entry;
  const Unfinished* const before = journal_.unfinished(entry.destination);
  const std::string* const destination = &entry.destination;
  journal_.begin({&destination, 1});
  if (before != nullptr && before->source == entry.identity()) {
    SWALE_ASSIGN_OR_RETURN(large.copy, FileCopy::go_on(place_, entry, before->device, before->inode));
  }
  if (!large.copy) {
    SWALE_ASSIGN_OR_RETURN(large.copy, FileCopy::begin(place_, entry));
    return {};
  }
  for (const PieceDone& piece : before->pieces) {
    const size_t index = piece.offset / place_.options.piece_bytes;
    if (index >= large.crcs.size() || piece.offset != index * place_.options.piece_bytes ||
        piece.bytes != piece_bytes(entry, index) || large.crcs[index])
      continue;  // of pieces of another size
    large.crcs[index] = piece.crc;
    outcomes_.counts().bytes_before += piece.bytes;
    journal_.add(entry.destination, entry.identity(), large.copy->part(), piece);
  }
  return {};
}

Status FileWork::finish(Large& large) {
  uint32_t crc = 0;
  for (size_t i = 0; i < large.crcs.size(); ++i)
    crc = crc32c_join(crc, *large.crcs[i], piece_bytes(large.entry, i));
  SWALE_RETURN_IF_ERROR(large.copy->settle(crc));
  if (place_.durable()) SWALE_RETURN_IF_ERROR(large.copy->sync());
  return publish(*large.copy, crc);
}

Status FileWork::publish(FileCopy& copy, uint32_t crc) {
  SWALE_ASSIGN_OR_RETURN(const FileIdentity found, copy.publish());
  journal_.add(copy.entry().destination, Finished{copy.entry().identity(), found, crc});
  outcomes_.done(copy.entry(), crc, Outcomes::By::kThisRun);
  return {};
}

}  // namespace swale::stage
