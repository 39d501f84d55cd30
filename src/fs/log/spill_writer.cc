#include "fs/log/spill_writer.h"

#include <algorithm>

#include "base/contain.h"

namespace swale::fs {

SpillWriter::~SpillWriter() {
  queue_.reset();  // waits for what is under way
}

std::string SpillWriter::path_of(uint32_t log, uint64_t number) const {
  return folder_ + "/" + spill_name(log, number);
}

Status SpillWriter::start(ServedLog& log, Chunk& chunk) {
  if (!queue_) {
    SWALE_ASSIGN_OR_RETURN(queue_, device_.make_queue(kAtOnce));
  }
  done_.reserve(kAtOnce);
  synced_.reserve(synced_.size() + kAtOnce);
  Work& work = *std::find_if(works_.begin(), works_.end(), [](const Work& each) { return !each.log; });
  work = {&log, &chunk};
  chunk.is_on_its_way = true;
  ++under_way_;
  const Status begun = contain([&] { return begin(work); });
  if (!begun.ok()) fail(work, begun);
  return std::exchange(failure_, {});
}

// Whole pages go from the log's memory to the disk; the rest goes with the index.
Status SpillWriter::begin(Work& work) {
  const std::string path = path_of(work.log->id(), work.chunk->number);
  SWALE_ASSIGN_OR_RETURN(work.file, device_.open(path, io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(work.file->truncate(0));
  const Bytes payload = work.log->payload(*work.chunk);
  if (payload.size() < rules_.direct_bytes_min) return put_index(work);
  work.pages_end = payload.size() - payload.size() % kPageBytes;
  work.file->prefer_direct();
  SWALE_RETURN_IF_ERROR(work.file->truncate(payload.size()));  // writes that make a file longer go one by one
  io::Operation write;
  write.kind = io::Operation::Kind::kWrite;
  write.from = payload.substr(0, work.pages_end);
  return submit(work, write);
}

Status SpillWriter::put_index(Work& work) {
  std::string text(work.log->payload(*work.chunk).substr(work.pages_end));
  text += encode_spill_index(work.log->index_of(*work.chunk, problems_));
  SWALE_RETURN_IF_ERROR(work.file->pwrite(work.pages_end, text));
  work.has_index = true;
  if (!rules_.sync_spills) {
    go_on(work);
    return {};
  }
  io::Operation sync;
  sync.kind = io::Operation::Kind::kSync;
  return submit(work, sync);
}

// What was started before an allocation failed completes as others do.
Status SpillWriter::submit(const Work& work, io::Operation operation) {
  operation.file = work.file.get();
  operation.tag = static_cast<uint64_t>(&work - works_.data());
  const size_t before = queue_->in_flight();
  const Status status = contain([&] { queue_->submit({&operation, 1}); });
  return queue_->in_flight() > before ? Status() : status;
}

void SpillWriter::go_on(Work& work) noexcept {
  if (!work.has_index) {
    const Status put = contain([&] { return put_index(work); });
    if (!put.ok()) fail(work, put);
    return;
  }
  if (work.has_name) {
    arrive(work);
    return;
  }
  synced_.push_back(std::move(work));  // has space
  work = {};
  --under_way_;
}

// A file that was written past the page cache has two descriptors, of which one is enough.
void SpillWriter::arrive(Work& work) noexcept {
  if (work.pages_end > 0)
    static_cast<void>(contain([&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(work.file, device_.open(work.file->path(), io::OpenMode::kReadWrite));
      return {};
    }));
  work.chunk->spilled = std::move(work.file);
  work.chunk->is_on_its_way = false;
  work = {};
  --under_way_;
}

void SpillWriter::fail(Work& work, const Status& status) noexcept {
  static_cast<void>(contain([&] { return device_.remove(path_of(work.log->id(), work.chunk->number)); }));
  if (failure_.ok()) {
    failure_ = status;
    static_cast<void>(contain([&] {
      failure_ = status.with_context(
          fmt::format("chunk {} of log {} stays in memory", work.chunk->number, work.log->id()));
    }));
  }
  work.chunk->is_on_its_way = false;
  work = {};
  --under_way_;
}

Status SpillWriter::advance(size_t at_least) {
  if (under_way_ > 0) {
    done_.clear();
    queue_->wait(std::min(at_least, under_way_), &done_);
    for (const io::Completion& each : done_) {
      Work& work = works_[each.tag];
      each.status.ok() ? go_on(work) : fail(work, each.status);
    }
  }
  if (synced_.size() >= kNamesAtOnce) sync_names();
  return std::exchange(failure_, {});
}

// The disk syncs the names while it syncs the files.
Status SpillWriter::finish() {
  if (under_way_ + synced_.size() > 0) sync_names();
  Status first = std::exchange(failure_, {});
  while (under_way_ > 0) {
    const Status advanced = advance(1);
    if (first.ok()) first = advanced;
  }
  if (!synced_.empty()) sync_names();  // once more, as it failed
  return first.ok() ? std::exchange(failure_, {}) : first;
}

// Of all files that there are. Those that are synced have arrived, or failed.
void SpillWriter::sync_names() noexcept {
  const Status named =
      rules_.sync_spills ? contain([&] { return device_.sync_directory(folder_); }) : Status();
  named_ |= named.ok();
  for (Work& work : works_) work.has_name |= work.log != nullptr && named.ok();
  under_way_ += synced_.size();
  for (Work& work : synced_) named.ok() ? arrive(work) : fail(work, named);
  synced_.clear();
}

}  // namespace swale::fs
