#include "stage/file_work.h"

#include <algorithm>
#include <utility>

#include "base/contain.h"
#include "io/many_syncs.h"
#include "stage/crc32c_join.h"
#include "stage/in_parallel.h"

namespace swale::stage {

FileWork::FileWork(const CopyPlace& place, const Plan& plan, Journal& journal, Outcomes& outcomes)
    : place_(place), plan_(plan), journal_(journal), outcomes_(outcomes) {}

FileWork::~FileWork() = default;

void FileWork::run() {
  for (const Entry& entry : plan_.files) {
    if (is_there(entry)) continue;
    if (entry.bytes() > place_.options.piece_bytes)
      add_large(entry);
    else
      small_.push_back(&entry);
  }
  add_batches();
  const Status ran = in_parallel(place_.options.threads, tasks_.size(), place_.options.chunk_bytes,
                                 [this](size_t index, Buffer& buffer) { do_task(tasks_[index], buffer); });
  if (!ran.ok()) outcomes_.fail("", ran);
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
  for (size_t i = 0; i < pieces; ++i) tasks_.push_back({large.get(), i, {}});
  large_.push_back(std::move(large));
}

void FileWork::add_batches() {
  const std::span<const Entry* const> all = small_;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool full =
        i - begin == place_.options.batch_files || bytes + all[i]->bytes() > place_.options.batch_bytes;
    if (i > begin && full) {
      tasks_.push_back({nullptr, 0, all.subspan(begin, i - begin)});
      begin = i;
      bytes = 0;
    }
    bytes += all[i]->bytes();
  }
  if (begin < all.size()) tasks_.push_back({nullptr, 0, all.subspan(begin)});
}

void FileWork::do_task(const Task& task, Buffer& buffer) {
  if (task.large != nullptr) return do_piece(*task.large, task.piece, buffer);
  const Status done = contain([&] { do_batch(task.batch, buffer); });
  if (!done.ok()) outcomes_.fail(task.batch.front()->source, done);
}

void FileWork::do_piece(Large& large, size_t index, Buffer& buffer) {
  FileCopy* const copy = opened(large);
  const uint64_t offset = index * place_.options.piece_bytes;
  Status status;
  if (copy != nullptr && !large.crcs[index])
    status = contain([&] {
      return copy_piece(*copy, offset, piece_bytes(large.entry, index), buffer, &large.crcs[index]);
    });
  const MutexLock lock(large.mutex);
  if (large.status.ok()) large.status = status;
  if (--large.left > 0) return;
  if (large.status.ok()) large.status = contain([&]() NO_THREAD_SAFETY_ANALYSIS { return finish(large); });
  if (!large.status.ok()) {
    outcomes_.fail(large.entry.source, large.status);
    // After a stop the pieces that are whole are for the next run.
    if (large.copy && large.status.code() != Code::kAborted) large.copy->discard();
  }
  large.copy.reset();
}

// Null: it has failed.
FileCopy* FileWork::opened(Large& large) {
  const MutexLock lock(large.mutex);
  if (!large.begun) {
    large.begun = true;
    large.status = contain([&]() NO_THREAD_SAFETY_ANALYSIS { return begin(large); });
  }
  return large.status.ok() ? large.copy.get() : nullptr;
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

Status FileWork::copy_piece(FileCopy& copy, uint64_t offset, uint64_t bytes, Buffer& buffer,
                            std::optional<uint32_t>* crc) {
  SWALE_ASSIGN_OR_RETURN(const uint32_t found, copy.copy(offset, bytes, buffer));
  if (place_.durable()) SWALE_RETURN_IF_ERROR(copy.sync());
  SWALE_RETURN_IF_ERROR(copy.read_back(offset, bytes, found, buffer));
  *crc = found;
  journal_.add(copy.entry().destination, copy.entry().identity(), copy.part(), {offset, bytes, found});
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

void FileWork::do_batch(std::span<const Entry* const> batch, Buffer& buffer) {
  std::vector<const std::string*> destinations;
  std::vector<Small> files;
  for (const Entry* const entry : batch) {
    destinations.push_back(&entry->destination);
    files.push_back({*entry});
  }
  journal_.begin(destinations);
  for (Small& file : files) {
    file.status = contain([&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(file.copy, FileCopy::begin(place_, file.entry));
      SWALE_ASSIGN_OR_RETURN(file.crc, file.copy->copy(0, file.entry.bytes(), buffer));
      return file.copy->settle(file.crc);
    });
    if (!file.status.ok() && file.copy) file.copy->discard();
    if (stopped()) break;
  }
  if (place_.durable()) sync(files);
  for (Small& file : files) {
    if (file.status.ok() && file.copy) {
      file.status = contain([&]() -> Status {
        SWALE_RETURN_IF_ERROR(file.copy->read_back(0, file.entry.bytes(), file.crc, buffer));
        return publish(*file.copy, file.crc);
      });
      if (!file.status.ok()) file.copy->discard();
    }
    if (!file.status.ok()) outcomes_.fail(file.entry.source, file.status);
    file.copy.reset();
  }
}

void FileWork::sync(std::vector<Small>& files) {
  std::vector<std::pair<io::File*, Status*>> wanted;
  for (Small& file : files)
    if (file.copy && file.status.ok()) wanted.emplace_back(&file.copy->out(), &file.status);
  io::ManySyncs(place_.device).sync(wanted);
  for (Small& file : files)
    if (file.copy && !file.status.ok()) file.copy->discard();
}

Status FileWork::publish(FileCopy& copy, uint32_t crc) {
  SWALE_ASSIGN_OR_RETURN(const FileIdentity found, copy.publish());
  journal_.add(copy.entry().destination, Finished{copy.entry().identity(), found, crc});
  outcomes_.done(copy.entry(), crc, Outcomes::By::kThisRun);
  return {};
}

}  // namespace swale::stage
