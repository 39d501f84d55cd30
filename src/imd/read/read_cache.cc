#include "imd/read/read_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/memory_shares.h"

namespace swale::imd {
namespace {

constexpr size_t kChargeBytes = kMiB;
constexpr size_t kSmallQueuePart = 10;    // of the capacity
constexpr size_t kLargestPiecePart = 16;  // likewise
constexpr size_t kUsualPieceBytes = 4 * kKiB;
constexpr size_t kAllocatorBytes = 16;  // what malloc adds to an allocation
constexpr size_t kGhostsOfBucket = 4;   // so that few are overwritten before their time
constexpr uint8_t kUsesMax = 3;

// Bounds nothing: another limit than the capacity has only a job (job.memory), which counts what is charged.
constexpr MemoryLimit kCacheLimit = {.bytes = UINT64_MAX, .kind = MemoryLimit::Kind::kAdvice};

}  // namespace

// Backed when they are touched: calloc would write some hundred KiB of zeros while a reader is being opened.
template <class T>
ReadCache::Zeros<T> ReadCache::zeros(size_t count) {
  const size_t bytes = count * sizeof(T);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<T*>(memory), Unmap{bytes}};
}

void ReadCache::Unmap::operator()(void* memory) const noexcept { ::munmap(memory, bytes); }

// Its bytes follow it.
struct ReadCache::Piece {
  Name name;
  Hash hash = 0;
  Piece* chain = nullptr;  // the next one of its bucket
  Piece* newer = nullptr;  // the next one of its queue
  std::atomic<uint32_t> holders{0};
  uint32_t size = 0;
  uint8_t uses = 0;  // since it entered its queue, up to kUsesMax

  char* data() { return reinterpret_cast<char*>(this + 1); }
};

struct ReadCache::Shard {
  struct Queue {
    Piece* oldest = nullptr;
    Piece* newest = nullptr;
    size_t bytes = 0;

    void push(Piece* piece) {
      piece->newer = nullptr;
      (oldest == nullptr ? oldest : newest->newer) = piece;
      newest = piece;
      bytes += cost_of(piece->size);
    }
    Piece* pop() {
      Piece* const piece = oldest;
      oldest = piece->newer;
      bytes -= cost_of(piece->size);
      return piece;
    }
  };

  Piece** chain_of(Hash hash) REQUIRES(mutex) { return &buckets[hash & bucket_mask]; }

  Piece* find(const Name& name, Hash hash) REQUIRES(mutex) {
    Piece* piece = *chain_of(hash);
    while (piece != nullptr && !(piece->hash == hash && piece->name == name)) piece = piece->chain;
    return piece;
  }

  void link(Piece* piece, Queue& queue) REQUIRES(mutex) {
    Piece** const chain = chain_of(piece->hash);
    piece->chain = *chain;
    *chain = piece;
    queue.push(piece);
  }

  void unlink(Piece* piece) REQUIRES(mutex) {
    Piece** at = chain_of(piece->hash);
    while (*at != piece) at = &(*at)->chain;
    *at = piece->chain;
  }

  // Fingerprints of pieces that left the small queue; a later one takes the place of an earlier one.
  uint32_t* ghost_of(Hash hash) REQUIRES(mutex) { return &ghosts[hash & ghost_mask]; }
  static uint32_t fingerprint(Hash hash) { return static_cast<uint32_t>(hash >> 32) | 1; }
  bool recall(Hash hash) REQUIRES(mutex) {
    if (*ghost_of(hash) != fingerprint(hash)) return false;
    *ghost_of(hash) = 0;
    return true;
  }

  // Takes a piece out; null if there is none. Ends: each turn moves a piece on, or takes a use from it.
  Piece* displace(size_t small_bytes_max) REQUIRES(mutex) {
    while (small.oldest != nullptr || main.oldest != nullptr) {
      const bool from_small =
          small.oldest != nullptr && (small.bytes > small_bytes_max || main.oldest == nullptr);
      Piece* const piece = (from_small ? small : main).pop();
      if (piece->uses > 0) {
        piece->uses = from_small ? 0 : static_cast<uint8_t>(piece->uses - 1);
        main.push(piece);
        continue;
      }
      if (from_small) *ghost_of(piece->hash) = fingerprint(piece->hash);
      unlink(piece);
      return piece;
    }
    return nullptr;
  }

  Mutex mutex;
  size_t bucket_mask = 0;  // constant, as the next one
  size_t ghost_mask = 0;
  Piece** buckets GUARDED_BY(mutex) = nullptr;
  uint32_t* ghosts GUARDED_BY(mutex) = nullptr;
  Queue small GUARDED_BY(mutex);
  Queue main GUARDED_BY(mutex);
};

Bytes ReadCache::Pin::bytes() const { return {piece_->data(), piece_->size}; }

size_t ReadCache::cost_of(size_t bytes) { return sizeof(Piece) + bytes + kAllocatorBytes; }

ReadCache::ReadCache(size_t capacity_bytes)
    : shard_count_(std::clamp(std::bit_floor(capacity_bytes / kShardBytesMin), size_t{1}, kShardsMax)),
      buckets_(std::bit_ceil(std::max<size_t>(capacity_bytes / shard_count_ / kUsualPieceBytes, 16))),
      capacity_(capacity_bytes),
      bucket_memory_(zeros<Piece*>(shard_count_ * buckets_)),
      ghost_memory_(zeros<uint32_t>(shard_count_ * buckets_ * kGhostsOfBucket)),
      shards_(std::make_unique<Shard[]>(shard_count_)) {
  for (size_t i = 0; i < shard_count_; ++i) {
    const MutexLock lock(shards_[i].mutex);
    shards_[i].bucket_mask = buckets_ - 1;
    shards_[i].ghost_mask = buckets_ * kGhostsOfBucket - 1;
    shards_[i].buckets = &bucket_memory_[i * buckets_];
    shards_[i].ghosts = &ghost_memory_[i * buckets_ * kGhostsOfBucket];
  }
  const MutexLock lock(charging_);
  share_ = std::move(*MemoryShares::of_this_process().take({"cache", "imd.cache"}, 0, kCacheLimit));
}

ReadCache::~ReadCache() {
  for (size_t i = 0; i < shard_count_; ++i) {
    const MutexLock lock(shards_[i].mutex);
    for (Shard::Queue* queue : {&shards_[i].small, &shards_[i].main}) {
      while (queue->oldest != nullptr) release(queue->pop());
    }
  }
}

std::shared_ptr<ReadCache> ReadCache::of_this_process(size_t capacity_bytes) {
  if (capacity_bytes == 0) return nullptr;
  static Mutex mutex;
  static std::weak_ptr<ReadCache> shared;
  const MutexLock lock(mutex);
  std::shared_ptr<ReadCache> cache = shared.lock();
  if (cache == nullptr) {
    cache = std::make_shared<ReadCache>(capacity_bytes);
    shared = cache;
  } else if (capacity_bytes > cache->capacity_bytes()) {
    cache->capacity_ = capacity_bytes;
  }
  return cache;
}

// Numbers are not given twice: pieces of a forgotten directory age and go.
uint32_t ReadCache::number_of(const std::string& directory) {
  const MutexLock lock(naming_);
  if (const auto found = numbers_.find(directory); found != numbers_.end()) return found->second;
  if (numbers_.size() >= kDirectoriesMax) numbers_.clear();
  const uint32_t number = last_number_ + 1;
  numbers_.emplace(directory, number);
  return last_number_ = number;
}

Hash ReadCache::hash_of(const Name& name) {
  return hash_bytes_of_any_length({reinterpret_cast<const char*>(&name), sizeof name});
}

// Buckets and ghosts take the lowest bits, fingerprints the highest.
ReadCache::Shard& ReadCache::shard_of(Hash hash) const {
  constexpr int kShardBitsAt = 24;
  return shards_[hash >> kShardBitsAt & (shard_count_ - 1)];
}

void ReadCache::release(Piece* piece) noexcept {
  if (piece->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  piece->~Piece();
  ::operator delete(piece);
}

ReadCache::Piece* ReadCache::make_piece(const Name& name, Bytes bytes, Bytes more) noexcept {
  const size_t size = bytes.size() + more.size();
  void* const memory = ::operator new(sizeof(Piece) + size, std::nothrow);
  if (memory == nullptr) return nullptr;
  Piece* const piece = new (memory) Piece;
  piece->name = name;
  piece->hash = hash_of(name);
  piece->size = static_cast<uint32_t>(size);
  piece->holders.store(1, std::memory_order_relaxed);
  std::memcpy(piece->data(), bytes.data(), bytes.size());
  if (!more.empty()) std::memcpy(piece->data() + bytes.size(), more.data(), more.size());
  return piece;
}

ReadCache::Pin ReadCache::find(const Name& name) {
  const Hash hash = hash_of(name);
  Shard& shard = shard_of(hash);
  const MutexLock lock(shard.mutex);
  Piece* const piece = shard.find(name, hash);
  if (piece == nullptr) return Pin();
  piece->uses = std::min<uint8_t>(static_cast<uint8_t>(piece->uses + 1), kUsesMax);
  piece->holders.fetch_add(1, std::memory_order_relaxed);
  return Pin(piece);
}

// Charges the process's memory for all that is used.
void ReadCache::charge() noexcept {
  if (used_bytes() <= charged_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(charging_);
  const size_t wanted = std::min(used_bytes() + kChargeBytes, std::max(capacity_bytes(), used_bytes()));
  if (wanted <= share_.bytes()) return;
  static_cast<void>(MemoryShares::of_this_process().resize(&share_, wanted, kCacheLimit));  // has no limit
  charged_.store(wanted, std::memory_order_relaxed);
}

bool ReadCache::put(const Name& name, Bytes bytes, Bytes more, Admit admit) noexcept {
  const size_t cost = cost_of(bytes.size() + more.size());
  if (cost > capacity_bytes() / kLargestPiecePart) return false;
  Piece* const piece = make_piece(name, bytes, more);
  if (piece == nullptr) return false;
  used_.fetch_add(cost, std::memory_order_relaxed);
  Piece* displaced = nullptr;  // a list, freed when the lock is free
  const bool there = place(piece, admit, &displaced);
  if (there) charge();
  while (displaced != nullptr) release(std::exchange(displaced, displaced->newer));
  return there;
}

// A piece that is not placed is added to `*displaced`.
bool ReadCache::place(Piece* piece, Admit admit, Piece** displaced) noexcept {
  const auto give_back = [&](Piece* out) {
    used_.fetch_sub(cost_of(out->size), std::memory_order_relaxed);
    out->newer = std::exchange(*displaced, out);
  };
  Shard& shard = shard_of(piece->hash);
  const MutexLock lock(shard.mutex);
  if (shard.find(piece->name, piece->hash) != nullptr) {
    give_back(piece);
    return true;
  }
  const size_t small_bytes_max = capacity_bytes() / shard_count_ / kSmallQueuePart;
  while (used_bytes() > capacity_bytes()) {
    Piece* const out = admit == Admit::kAsUsed ? shard.displace(small_bytes_max) : nullptr;
    if (out == nullptr) {
      give_back(piece);
      return false;
    }
    give_back(out);
  }
  const bool to_main = admit == Admit::kIfItFits || shard.recall(piece->hash);
  shard.link(piece, to_main ? shard.main : shard.small);
  return true;
}

}  // namespace swale::imd
