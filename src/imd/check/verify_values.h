// ValuesVerifier: the part of verification that concerns value logs and value pages.
//
//   record … (of all partitions) ─► add_ranges … ─► finish: walks what each writer's log has of each epoch
//
// Each record that points must lead to a value of its key and epoch whose first bytes it repeats; every byte
// of an epoch's ranges is read; there must be as many values as pointers, at the same places (count and sum
// of offsets), and as many as swale.json says. Of an epoch that repair has recovered in part, or whose logs
// were freed, only the values with pointers count: those are read whole.
// Values in pages have no heads: their pointers must cover what the pages have of an epoch, each byte once.
// Threads: one at a time. Memory: 64 bytes for each writer and epoch with large values, one megabyte.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "imd/format/manifest.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"
#include "run/run_cursor.h"

namespace swale::imd {

class ValuesVerifier {
 public:
  using ProblemFn = std::function<void(const Status&, EpochNumber epoch)>;

  ValuesVerifier(const Manifest& manifest, ValueReader& values) : manifest_(manifest), values_(values) {}

  // A large record of the epoch, found in the data log at `path`.
  Status record(const EpochEntry& epoch, const run::ScannedRecord& record, const std::string& path);
  void add_ranges(const PartitionLogs& logs);
  // Call after all partitions. `whole(epoch)` returns false if other damage made records of the epoch
  // unreadable; then its values are read but not counted. Calls `progress(bytes)`.
  void finish(const std::function<bool(EpochNumber)>& whole, const ProblemFn& problem,
              const std::function<void(uint64_t)>& progress);

 private:
  struct Sums {
    run::ValueRange range;
    LargeTally pointed;
    uint64_t offsets = 0;  // sum over the pointers; in pages of their value_tile
  };
  using Place = std::pair<EpochNumber, PartitionNumber>;  // of its writer

  // Whether the index logs say where its values begin and end: not of one that was recovered in part, nor of
  // one whose logs were freed.
  static bool has_ranges(const EpochEntry& epoch) {
    return epoch.recovered != Recovered::kPartial && epoch.origin == 0;
  }

  void walk(const Place& place, const Sums& sums, bool whole, const ProblemFn& problem,
            const std::function<void(uint64_t)>& progress);
  void walk_pages(const Place& place, const Sums& sums, bool whole, const ProblemFn& problem,
                  const std::function<void(uint64_t)>& progress);

  const Manifest& manifest_;
  ValueReader& values_;
  std::map<Place, Sums> sums_;
};

}  // namespace swale::imd
