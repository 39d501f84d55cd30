// LevelTables: LevelDB behind the shuffle, as one rank's share of a directory, with and without compaction.
//
// A key is the epoch and the particle, both big-endian (deltafs-imd-2017, Fig. 2). With compaction: one
// database.
// Without: LevelDB has no switch for that, so every full memtable becomes a database of one table, which has
// nothing to compact; what a query touches is then what it would touch in one database with as many tables in
// level 0, whose key ranges LevelDB compares before it opens them (tables of other epochs are left alone here
// for the same reason). Either way two memtables of `buffer_bytes` at a time: one fills while the other is
// written.
//
// Threads: one writes; a reader is a value of one thread. Errors: die().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/counting_env.h"
#include "bench/workload.h"

namespace swale::bench {

enum class Compaction { kOn, kOff };

struct LevelOptions {
  std::string path;  // of this rank's share
  Compaction compaction = Compaction::kOn;
  size_t buffer_bytes = size_t{4} << 20;
  int filter_bits = 10;  // of the Bloom filters, per key; 0: none
  leveldb::Env* env = nullptr;
};

class LevelWriter {
 public:
  virtual ~LevelWriter() = default;
  static std::unique_ptr<LevelWriter> make(const LevelOptions& options);
  virtual void put(uint32_t epoch, uint64_t key, const char* value) = 0;  // kValueBytes
  virtual void write() = 0;                                               // what was put since the last one
  virtual void end_epoch() = 0;                                           // everything is in synced tables
  virtual void finish() = 0;  // background work has come to rest; closes
};

class LevelReader {
 public:
  virtual ~LevelReader() = default;
  // Opened, but no table of it.
  static std::unique_ptr<LevelReader> open(const LevelOptions& options, uint32_t epochs);
  virtual bool get(uint32_t epoch, uint64_t key, Value* value) = 0;
};

}  // namespace swale::bench
