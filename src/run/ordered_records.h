// OrderedRecords: the records of one run, in the order of their keys' hashes already, so that the run needs
// no memtable and no sorting.
//
//   ChunkPool::take ─► RecordChunk: space, write, add ─► OrderedRecords: add ─► OrderedRunBuilder ─► the
//   chunks are back in their pool
//
// Format of a chunk: encoded records (record.h) one after the other, each of them whole.
// Threads: a chunk and OrderedRecords: one at a time; a pool: any.
// Limits: no large records; a run's records and blocks (has_room).
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/coding.h"
#include "base/mutex.h"
#include "run/record.h"
#include "run/run_shape.h"

namespace swale::run {

class RecordChunk {
 public:
  RecordChunk(std::shared_ptr<Buffer> block, MutableBytes memory)
      : block_(std::move(block)), memory_(memory) {}

  // Where the next record can be written, of so many bytes; nullptr: they are not left.
  char* space(size_t bytes) { return memory_.size() - used_ >= bytes ? memory_.data() + used_ : nullptr; }
  // Takes the record that was written there. Its key has a higher hash than those before, or the same.
  void add(const RecordView& record) {
    assert(record.encoded.data() == memory_.data() + used_ &&
           used_ + record.encoded.size() <= memory_.size());
    used_ += record.encoded.size();
    data_bytes_ += record.key.size() + record.value.size();
    digest_ += record_digest(record);
    const uint64_t sizes = uint64_t{record.key.size()} << 32 | record.value.size();
    if (records_++ == 0) sizes_ = sizes;
    other_sizes_ |= sizes ^ sizes_;
  }
  // fn(record), until one fails.
  template <class Fn>
  Status walk(Fn&& fn) const {
    RecordView record;
    for (Bytes rest = bytes(); !rest.empty(); rest.remove_prefix(record.encoded.size())) {
      [[maybe_unused]] const RecordParse parse = parse_record(rest, &record);
      assert(parse == RecordParse::kOk);
      SWALE_RETURN_IF_ERROR(fn(record));
    }
    return {};
  }

  Bytes bytes() const { return {memory_.data(), used_}; }
  uint64_t digest() const { return digest_; }  // the sum of record_digest
  RunShape shape() const {
    return {.records = records_,
            .data_bytes = data_bytes_,
            .encoded_bytes = used_,
            .uniform = other_sizes_ == 0,
            .key_bytes = static_cast<uint32_t>(sizes_ >> 32),
            .value_bytes = static_cast<uint32_t>(sizes_)};
  }
  void clear() { used_ = records_ = data_bytes_ = digest_ = sizes_ = other_sizes_ = 0; }

 private:
  std::shared_ptr<Buffer> block_;  // whose memory it is
  MutableBytes memory_;
  size_t used_ = 0;
  uint64_t records_ = 0;
  uint64_t data_bytes_ = 0;
  uint64_t digest_ = 0;
  uint64_t sizes_ = 0;        // of the first record
  uint64_t other_sizes_ = 0;  // bits in which others differ from them
};

// Keeps the memory of chunks that are no more needed for the next ones. It lives as long as its chunks.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  static constexpr size_t kChunkBytes = 256 * kKiB;
  static_assert(kChunkBytes >= kEncodedRecordBytesMax && Buffer::kHugePageBytes % kChunkBytes == 0);

  struct GiveBack {
    std::shared_ptr<ChunkPool> pool;
    void operator()(RecordChunk* chunk) const noexcept { pool->give_back(chunk); }
  };
  using Chunk = std::unique_ptr<RecordChunk, GiveBack>;

  static std::shared_ptr<ChunkPool> create() { return std::make_shared<ChunkPool>(); }
  // An empty one. Throws std::bad_alloc.
  Chunk take();

 private:
  void give_back(RecordChunk* chunk) noexcept;
  void make_some() REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<std::unique_ptr<RecordChunk>> free_ GUARDED_BY(mutex_);  // has capacity for all chunks
  size_t made_ GUARDED_BY(mutex_) = 0;
};

class OrderedRecords {
 public:
  using Chunk = ChunkPool::Chunk;

  // Whether a run may have this chunk's records besides those that are here.
  bool has_room(const RecordChunk& chunk) const {
    if (chunk.bytes().empty()) return true;
    const RunShape both = with(chunk.shape());
    return both.records <= kRunRecordsMax && both.blocks() <= kRunBlocksMax;
  }
  // Records that follow those that are here. Requires has_room.
  void add(Chunk chunk) {
    const RunShape more = chunk->shape();
    if (more.records == 0) return;
    shape_ = with(more);
    digest_ += chunk->digest();
    chunks_.push_back(std::move(chunk));
  }
  bool empty() const { return chunks_.empty(); }
  const RunShape& shape() const { return shape_; }
  uint64_t digest() const { return digest_; }
  std::span<const Chunk> chunks() const { return chunks_; }
  size_t memory_bytes() const { return chunks_.size() * ChunkPool::kChunkBytes; }

 private:
  RunShape with(const RunShape& more) const {
    if (empty()) return more;
    RunShape both = shape_;
    both.records += more.records;
    both.data_bytes += more.data_bytes;
    both.encoded_bytes += more.encoded_bytes;
    both.uniform = shape_.uniform && more.uniform && shape_.key_bytes == more.key_bytes &&
                   shape_.value_bytes == more.value_bytes;
    return both;
  }

  std::vector<Chunk> chunks_;
  RunShape shape_;
  uint64_t digest_ = 0;
};

}  // namespace swale::run
