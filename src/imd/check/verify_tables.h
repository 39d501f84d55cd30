// TablesVerifier: the part of verification that concerns auxiliary tables, in directories of the lossy
// format.
//
//   record … (of one partition and epoch) ─► end_partition ─► … ─► finish: reads every table whole
//
// Every table must be there, whole, and of its epoch; and the table of a record's home must name the
// partition of the record. That it names others, too, costs queries a read and is no damage.
// Threads: one at a time. Memory: 32 bytes for each of kPairsMax records, one shard.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "imd/format/manifest.h"
#include "imd/read/reader_tables.h"
#include "source/pair.h"

namespace swale::imd {

class TablesVerifier {
 public:
  using ProblemFn = std::function<void(const Status&, EpochNumber epoch)>;

  TablesVerifier(const ReaderFiles& files, const Manifest& manifest) : files_(files), manifest_(manifest) {}

  // A record of the epoch in `partition`, whose key has this hash.
  void record(const EpochEntry& epoch, PartitionNumber partition, Hash hash, const ProblemFn& problem);
  void end_partition(const EpochEntry& epoch, PartitionNumber partition, const ProblemFn& problem);
  // After all partitions. `progress(bytes)`.
  void finish(const ProblemFn& problem, const std::function<void(uint64_t)>& progress);

 private:
  static constexpr size_t kPairsMax = size_t{1} << 20;

  struct Keyed {
    PartitionNumber home;
    uint64_t kept;
    bool operator<(const Keyed& other) const {
      return home != other.home ? home < other.home : kept < other.kept;
    }
    bool operator==(const Keyed&) const = default;
  };

  // nullptr, and it is a problem the first time: it cannot be opened.
  const OpenTable* table_of(const EpochEntry& epoch, PartitionNumber home, const ProblemFn& problem);
  Status check_home(const OpenTable& table, PartitionNumber partition, const Keyed* first, const Keyed* end);

  const ReaderFiles& files_;
  const Manifest& manifest_;
  std::vector<Keyed> keys_;  // of one partition and epoch
  std::map<std::pair<EpochNumber, PartitionNumber>, std::shared_ptr<const OpenTable>>
      tables_;  // by epoch and home
};

}  // namespace swale::imd
