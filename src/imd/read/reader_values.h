// ValueReader: reads values that lie in value logs or value pages, whole or a part of them, of any writer;
// and walks heads of value logs.
//
// Every byte that is handed out was verified with its piece of 64 KiB, or its page. In a value log a pointer
// must fit the head that it leads to, and both the key and the epoch that they were asked for; pages must be
// of the epoch.
// Threads: all calls, by any number of threads. Limits: kOpenMax files stay open.
// Memory: a head (4 bytes per 64 KiB of the value) and up to two pieces beside the caller's; of pages 1 MiB
// at most.
// Errors: kCorruption that names file and offset.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "imd/read/reader_io.h"
#include "io/device.h"
#include "run/value_format.h"
#include "run/value_pages.h"

namespace swale::imd {

// The head at `offset` of the writer's log.
Result<run::ValueHead> read_value_head(io::File& file, PartitionNumber writer, uint64_t offset);

// Reads all of the value and compares its checksums; `progress(bytes)` after each part.
Status check_value(io::File& file, const run::ValueHead& head, const std::function<void(uint64_t)>& progress);

// One page of a writer's value pages: whole, at its place, and of this epoch.
Status check_page(Bytes page, PartitionNumber writer, uint64_t number, EpochNumber epoch, uint64_t epoch_id,
                  const std::string& path);

class ValueReader {
 public:
  explicit ValueReader(const ReaderFiles& files) : files_(files) {}  // which must outlive it

  // What a record of `key` in `epoch` points to.
  struct Place {
    run::ValueRule rule = run::ValueRule::kLarge;
    run::ValuePointer pointer;
    uint32_t job = 0;  // the number of the one that wrote it
    EpochNumber epoch = {};
    uint64_t epoch_id = 0;
    Hash key_hash = 0;
  };

  // Of what a record of `key` in `epoch` has in the value's place. kCorruption, naming `what`, for bytes that
  // are no pointer.
  static Result<Place> place_of(const Manifest& manifest, const EpochEntry& epoch, Bytes key, Bytes stored,
                                std::string_view what);

  Result<std::string> read(const Place& place);
  // Bytes first..first + out.size() - 1; requires that the value has them.
  Status read(const Place& place, uint64_t first, MutableBytes out);
  // Of a value log, the head alone: that the pointer leads to a value of this key and epoch.
  Result<run::ValueHead> head(const Place& place);
  // All of the value.
  Status check(const Place& place);

  // The values of one writer of one job: its value log or its value pages.
  Result<std::shared_ptr<io::File>> file(run::ValueRule rule, LogId id);

 private:
  static constexpr size_t kOpenMax = 128;
  static constexpr size_t kOneReadBytes = 256 * kKiB;  // up to here head and value are read at once

  Result<std::shared_ptr<io::File>> file_of(const Place& place) {
    return file(place.rule, {place.job, place.pointer.writer});
  }
  Status read_pieces(io::File& file, const run::ValueHead& head, uint64_t first, MutableBytes out);
  Status read_paged(const Place& place, uint64_t first, MutableBytes out);
  Status read_counted(io::File& file, uint64_t offset, MutableBytes out);

  const ReaderFiles& files_;
  Mutex mutex_;
  std::map<LogId, std::shared_ptr<io::File>> open_ GUARDED_BY(mutex_);
};

}  // namespace swale::imd
