// EpochStats: what one epoch cost: a table of named counters, counted on each rank (RankStats) and merged
// over all of them (EpochStats: sum, least, greatest, and on which rank), on the way of the DURABLE messages.
//
// Counted per frame, task, storage request or wait, never per record.
// Threads: values; the owner serialises calls.
// Format: in messages, see append_to; on storage, a line of JSON (stats_log.h). Numbers and names of counters
// stand in both: DO NOT CHANGE OR REUSE THEM; a new counter gets a new number at the end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/counters.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::imd {

enum class Stat : uint16_t {
  kAppendRecords = 0,
  kAppendBytes = 1,
  kAppendWaits = 2,
  kAppendWaitNanos = 3,
  kNetworkFrames = 4,
  kNetworkBytes = 5,
  kNetworkCreditWaits = 6,
  kNetworkFramesMax = 7,
  kDeliveryFrames = 8,
  kDeliveryFramesMax = 9,
  kDeliveryWaitNanos = 10,
  kIndexedRecords = 11,
  kSortRuns = 12,
  kSortNanos = 13,
  kIndexSegments = 14,
  kIndexNanos = 15,
  kWriteDataBytes = 16,
  kWriteIndexBytes = 17,
  kWriteRequests = 18,
  kWriteNanos = 19,
  kWriteRequestsMax = 20,
  kSyncNanos = 21,
  kEpochOpenNanos = 22,
  kEpochDrainNanos = 23,
  kEpochFlushNanos = 24,
  kCommitNanos = 25,
  kNetworkRefused = 26,
  kMemoryReserved = 27,
};
inline constexpr size_t kStatCount = 28;

struct StatRow : CounterRow {
  Stat stat;
};
std::span<const StatRow> stat_rows();            // by number
const StatRow* stat_row(std::string_view name);  // nullptr: this build does not know it
std::span<const CounterRow> counter_rows();      // the same

// One rank's part of one epoch.
class RankStats {
 public:
  void add(Stat stat, uint64_t n = 1) { values_[static_cast<size_t>(stat)] += n; }
  void raise(Stat stat, uint64_t value) {
    uint64_t& mark = values_[static_cast<size_t>(stat)];
    if (value > mark) mark = value;
  }
  // Sums; of marks the greater.
  void merge(const RankStats& other);
  uint64_t value(Stat stat) const { return values_[static_cast<size_t>(stat)]; }

 private:
  std::array<uint64_t, kStatCount> values_{};
};

using MergedStat = MergedCount;

// Over `ranks` ranks; 0: nothing is known.
struct EpochStats {
  uint32_t ranks = 0;
  std::array<MergedStat, kStatCount> values{};

  bool empty() const { return ranks == 0; }
  const MergedStat& at(Stat stat) const { return values[static_cast<size_t>(stat)]; }
  MergedStat& at(Stat stat) { return values[static_cast<size_t>(stat)]; }

  Counters counters() const;

  static EpochStats of(net::Rank rank, const RankStats& stats);
  void merge(const EpochStats& other);

  // u32 ranks | u16 count | count × (u16 number | varint sum, min, min_rank, max, max_rank). A decoder passes
  // over numbers that it does not know: ranks may run different builds.
  void append_to(std::string* out) const;
  static EpochStats read(Decoder* in);  // the decoder fails for bytes that are cut off

  bool operator==(const EpochStats&) const = default;
};

}  // namespace swale::imd
