#include "run/ordered_records.h"

#include <new>

namespace swale::run {

ChunkPool::Chunk ChunkPool::take() {
  const MutexLock lock(mutex_);
  if (free_.empty()) make_some();
  Chunk chunk(free_.back().release(), GiveBack{shared_from_this()});
  free_.pop_back();
  return chunk;
}

// Pages of the block are huge where the system has them: fewer faults.
void ChunkPool::make_some() {
  Result<Buffer> memory = Buffer::allocate(Buffer::kHugePageBytes, HugePages::kAdvise);
  if (!memory.ok()) throw std::bad_alloc();
  const auto block = std::make_shared<Buffer>(std::move(*memory));
  free_.reserve(made_ + block->size() / kChunkBytes);
  for (size_t at = 0; at < block->size(); at += kChunkBytes) {
    free_.push_back(std::make_unique<RecordChunk>(block, block->span().subspan(at, kChunkBytes)));
    ++made_;
  }
}

// Allocates nothing: make_some has reserved.
void ChunkPool::give_back(RecordChunk* chunk) noexcept {
  chunk->clear();
  const MutexLock lock(mutex_);
  free_.emplace_back(chunk);
}

}  // namespace swale::run
