// Store: a key-value store as a rival, driven by store_bench.cc: the same records in, the same trajectories
// out.
//
// A record's key is its id and its epoch, both big-endian, so that a trajectory is a range. A store is used
// with its own default options, compression included, but for what is in its favour: writes in batches,
// filters of 10 bits a key, one durable point per epoch. What compression costs is measured by a second store
// without it.
//
// Threads: one, besides the store's own; several for get. Errors: die().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bench/workload.h"

namespace swale::bench {

constexpr size_t kStoreKeyBytes = 12;
using StoreKey = std::array<char, kStoreKeyBytes>;

inline StoreKey store_key(uint64_t key, uint32_t epoch) {
  StoreKey bytes;
  const uint64_t big = __builtin_bswap64(key);
  const uint32_t big_epoch = __builtin_bswap32(epoch);
  __builtin_memcpy(bytes.data(), &big, 8);
  __builtin_memcpy(bytes.data() + 8, &big_epoch, 4);
  return bytes;
}

enum class Reading { kCold, kWarm };  // past the page cache and without a block cache; with both

enum class Compression { kDefault /* of the store's makers */, kNone, kLz4, kZstd };

class Store {
 public:
  virtual ~Store() = default;

  virtual std::string compression() const = 0;  // what is in force: "none", "snappy", "lz4", "zstd"

  virtual void open_for_writing(const std::string& path, uint64_t records) = 0;
  virtual void put(uint64_t key, uint32_t epoch, const Value& value) = 0;
  virtual void end_epoch() = 0;       // durable
  virtual void finish_writing() = 0;  // background work has come to rest; closes
  virtual bool can_compact() const { return false; }
  virtual void compact() {}  // of a store that is closed

  virtual void open_for_reading(const std::string& path, Reading reading) = 0;
  virtual bool get(uint64_t key, uint32_t epoch, Value* value) = 0;  // by several threads, too
  // One scan over the epochs; the number found.
  virtual uint32_t get_range(uint64_t key, uint32_t epochs, Value* values) = 0;
  virtual void close() = 0;
};

// "leveldb-4m", "leveldb-4m-uncompressed", "leveldb-64m"; "rocksdb", "rocksdb-uncompressed", "sst",
// "sst-uncompressed", "sst-lz4", "sst-zstd". nullptr: no such store in this program.
std::unique_ptr<Store> make_store(const std::string& name);

}  // namespace swale::bench
