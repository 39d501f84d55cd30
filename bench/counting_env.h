// A leveldb::Env that counts what LevelDB reads and writes, writes tables no faster than asked for, and
// favours LevelDB where the comparison is about tables: the write-ahead log is thrown away (a burst buffer's
// promise is per epoch, and tables are flushed at its end), only tables are synced, nothing is logged. Tables
// are read by pread, never mapped (pread_env.h says why).
//
// Threads: as leveldb::Env says; the counters are atomic or guarded.
#pragma once

#include <leveldb/env.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace swale::bench {

struct EnvCounts {
  std::atomic<uint64_t> table_bytes_written{0};
  std::atomic<uint64_t> bytes_read{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> tables_written{0};

  void touch(const std::string& path) {
    const std::lock_guard lock(mutex);
    touched.insert(path);
  }
  uint64_t objects_touched() {
    const std::lock_guard lock(mutex);
    return touched.size();
  }
  void reset_reads() {
    bytes_read = 0;
    reads = 0;
    const std::lock_guard lock(mutex);
    touched.clear();
  }

  std::mutex mutex;
  std::set<std::string> touched;  // tables that were read
};

// `counts` outlives the Env. limit: bytes/s; 0: none.
std::unique_ptr<leveldb::Env> make_counting_env(EnvCounts& counts, uint64_t limit);

}  // namespace swale::bench
