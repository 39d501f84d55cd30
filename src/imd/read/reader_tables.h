// TableCache: in directories of the lossy format, which partitions may have records of a key: the auxiliary
// tables that a Reader has met, in the .source files of the keys' homes.
//
// The first question about a table reads its end (4 KiB: trailer and index, which stay in memory), every
// question one shard of some 31 KB. A table that is damaged or missing is an error for the keys whose home it
// is; it never means that a key is not there. `swale repair` makes it anew.
// Threads: all calls, by any number of threads. Limits: kOpenMax tables stay open, a descriptor and 2 KiB of
// index (at 8 M keys) each; those in use live on.
// Errors: kCorruption that names file and offset.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "source/table_reader.h"

namespace swale::imd {

// An auxiliary table and its file.
struct OpenTable {
  std::shared_ptr<io::File> file;
  source::TableReader reader;
};

// The table of the epoch in the home's file, as its index log names it; that it is this table, and of this
// epoch's job, is checked.
Result<std::shared_ptr<const OpenTable>> open_table(const ReaderFiles& files, const Manifest& manifest,
                                                    const EpochEntry& epoch, const PartitionLogs& home);

class TableCache {
 public:
  static constexpr size_t kOpenMax = 256;

  // All must outlive the cache.
  TableCache(const ReaderFiles& files, const Manifest& manifest, PartitionCache& partitions)
      : files_(files), manifest_(manifest), partitions_(partitions) {}

  // Whether the epoch has tables.
  static bool has_tables(const Manifest& manifest, const EpochEntry& epoch) {
    return manifest.layout.format == run::ShuffleFormat::kLossy && manifest.job_of(epoch).ranks > 1;
  }

  // The partitions that may have the key with this hash, ascending. `*depth`: raised to the reads that
  // followed one another.
  Result<std::vector<uint32_t>> candidates(const EpochEntry& epoch, Hash hash, uint32_t* depth);

 private:
  using Id = std::pair<LogId, EpochNumber>;  // of a home's epoch
  struct Entry {
    std::shared_ptr<const OpenTable> table;
    std::list<Id>::iterator age;
  };

  Result<std::shared_ptr<const OpenTable>> table_of(const EpochEntry& epoch, PartitionNumber home,
                                                    uint32_t* depth);

  const ReaderFiles& files_;
  const Manifest& manifest_;
  PartitionCache& partitions_;
  Mutex mutex_;
  std::map<Id, Entry> open_ GUARDED_BY(mutex_);
  std::list<Id> by_age_ GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace swale::imd
