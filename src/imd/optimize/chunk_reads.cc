#include "imd/optimize/chunk_reads.h"

#include <algorithm>
#include <utility>

namespace swale::imd {

Result<std::unique_ptr<ChunkReads>> ChunkReads::start(io::Device& device, size_t in_flight_max) {
  std::unique_ptr<ChunkReads> reads(
      new ChunkReads(std::clamp<size_t>(in_flight_max, 1, io::StorageThread::kBatchMax)));
  const auto thread = io::StorageThread::of(device);
  SWALE_RETURN_IF_ERROR(thread->add(reads.get()));
  reads->thread_ = thread;
  return reads;
}

ChunkReads::~ChunkReads() {
  if (!thread_) return;
  {
    const MutexLock lock(mutex_);
    first_ = last_ = nullptr;
  }
  thread_->remove(this);
}

void ChunkReads::ask(Read* read) {
  const MutexLock lock(mutex_);
  read->done = false;
  read->next = nullptr;
  (last_ != nullptr ? last_->next : first_) = read;
  last_ = read;
}

bool ChunkReads::start(std::vector<io::Operation>* operations) {
  const MutexLock lock(mutex_);
  operations->reserve(in_flight_max_);
  for (size_t tag = 0; tag < running_.size() && first_ != nullptr; ++tag) {
    if (running_[tag] != nullptr) continue;
    Read* const read = first_;
    first_ = read->next;
    if (first_ == nullptr) last_ = nullptr;
    running_[tag] = read;
    operations->push_back(
        {.file = read->file, .offset = read->offset, .into = read->into, .from = {}, .tag = tag});
  }
  return false;
}

void ChunkReads::completed(const io::Completion& completion) {
  {
    const MutexLock lock(mutex_);
    Read& read = *std::exchange(running_[completion.tag], nullptr);
    read.bytes = completion.bytes;
    read.status = completion.status;
    read.done = true;
    done_.notify_all();
    if (first_ == nullptr) return;
  }
  go();
}

void ChunkReads::failed(const Status& why) noexcept {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = why;
  done_.notify_all();
}

Status ChunkReads::wait_for(Read* read) {
  MutexLock lock(mutex_);
  done_.wait(lock, [&]() REQUIRES(mutex_) { return read->done || !failure_.ok(); });
  if (!read->done) return failure_;
  SWALE_RETURN_IF_ERROR(read->status);
  if (read->bytes == read->into.size()) return {};
  return corruption(
      "{}: expected {} bytes at offset {}, found {}: the file has been cut short; run `swale verify`",
      read->file->path(), read->into.size(), read->offset, read->bytes);
}

}  // namespace swale::imd
