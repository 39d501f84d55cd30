// ReadCache: verified slices and blocks of massive directories in memory, shared by all readers of a process.
//
// A query asks the cache before the file, and puts what it has read and verified. Slices stand there whole
// (with their overflow), blocks as a candidate names them (1 to 6 neighbours), those of packed runs with
// their unpacked piece. The name of a piece has the id of its epoch and the number of its job: files of jobs
// are never rewritten, so what has this name has these bytes, whatever epochs come, are dropped or repaired.
//
// What stays is decided by S3-FIFO (Yang et al., SOSP 2023): a new piece enters a small queue, a tenth of the
// memory. If it is asked for again before it leaves that, it moves to the main queue, else the cache
// remembers its hash for a while: if it comes back in that time, it enters the main queue at once. So pieces
// that are asked for once, as by a long batch, displace at most the small queue. Scans, samples and top ask
// no cache.
//
// Threads: any number, at once. Pieces are divided among shards by their hash; a shard has a lock, which a
// find holds for some 20 ns. A Pin may be used and dropped by any thread.
// Invariants: (1) used_bytes() <= capacity_bytes(), but for a piece that each thread is about to put; what is
// displaced while pinned lives on beside it.
// (2) The bytes of a piece never change. (3) Each piece of a shard is in one chain and in one queue.
// Errors: none. What cannot be kept (no memory, too large) is not kept.
// Limits: a piece takes at most a sixteenth of the capacity. Memory is charged to the process's MemoryShares
// as "cache", by the MiB as the cache grows; it shrinks only by its end, with the last reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/memory_budget.h"
#include "base/mutex.h"

namespace swale::imd {

class ReadCache {
  struct Piece;
  struct Shard;

 public:
  static constexpr size_t kDefaultBytes = 32 * kMiB;

  // What a piece is: bytes from `offset` on of a file of one job's partition, of one epoch.
  struct Name {
    uint64_t epoch_id = 0;
    uint64_t offset = 0;
    uint32_t directory = 0;  // its number_of
    uint32_t job = 0;
    uint32_t partition = 0;
    uint32_t blocks = 0;  // 0: a slice of the index log; else so many blocks of the data log

    bool operator==(const Name&) const = default;
  };
  static_assert(std::has_unique_object_representations_v<Name>);  // it is hashed as bytes

  // Keeps a piece alive.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept : piece_(std::exchange(other.piece_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(piece_, other.piece_);
      return *this;
    }
    ~Pin() {
      if (piece_ != nullptr) release(piece_);
    }
    explicit operator bool() const { return piece_ != nullptr; }
    Bytes bytes() const;  // requires a piece

   private:
    friend class ReadCache;
    explicit Pin(Piece* piece) : piece_(piece) {}
    Piece* piece_ = nullptr;
  };

  enum class Admit : uint8_t {
    kAsUsed,    // by S3-FIFO; displaces others
    kIfItFits,  // into the main queue; displaces nothing
  };

  explicit ReadCache(size_t capacity_bytes);
  ~ReadCache();
  ReadCache(const ReadCache&) = delete;
  ReadCache& operator=(const ReadCache&) = delete;

  // The cache of this process, with at least this capacity; null for 0 bytes. It lives as long as somebody
  // has it.
  static std::shared_ptr<ReadCache> of_this_process(size_t capacity_bytes);

  // A number for the directory at this path, the same for all readers.
  uint32_t number_of(const std::string& directory);

  Pin find(const Name& name);
  // Keeps a copy of `bytes` and, after it, `more`. Verified bytes only, from memory that nobody else writes.
  // Whether the piece is there now.
  bool put(const Name& name, Bytes bytes, Bytes more = {}, Admit admit = Admit::kAsUsed) noexcept;

  size_t capacity_bytes() const { return capacity_.load(std::memory_order_relaxed); }
  size_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  // What a piece of so many bytes takes of the capacity.
  static size_t cost_of(size_t bytes);

 private:
  static constexpr size_t kShardsMax = 16;
  static constexpr size_t kShardBytesMin = kMiB;
  static constexpr size_t kDirectoriesMax = 4'096;

  struct Unmap {
    size_t bytes = 0;
    void operator()(void* memory) const noexcept;
  };

  static void release(Piece* piece) noexcept;
  static Piece* make_piece(const Name& name, Bytes bytes, Bytes more) noexcept;
  static Hash hash_of(const Name& name);
  Shard& shard_of(Hash hash) const;
  bool place(Piece* piece, Admit admit, Piece** displaced) noexcept;
  void charge() noexcept;

  const size_t shard_count_;
  const size_t buckets_;  // of a shard
  std::atomic<size_t> capacity_;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> charged_{0};  // of the process's memory
  template <class T>
  using Zeros = std::unique_ptr<T[], Unmap>;
  template <class T>
  static Zeros<T> zeros(size_t count);

  const Zeros<Piece*> bucket_memory_;
  const Zeros<uint32_t> ghost_memory_;
  std::unique_ptr<Shard[]> shards_;
  Mutex charging_;
  MemoryBudget::Reservation share_ GUARDED_BY(charging_);
  Mutex naming_;
  std::map<std::string, uint32_t> numbers_ GUARDED_BY(naming_);
  uint32_t last_number_ GUARDED_BY(naming_) = 0;
};

}  // namespace swale::imd
