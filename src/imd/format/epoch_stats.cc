#include "imd/format/epoch_stats.h"

#include <algorithm>

namespace swale::imd {
namespace {

constexpr std::array kRows = {
    StatRow{{"append.records", "", "records that the application gave to this rank"}, Stat::kAppendRecords},
    StatRow{{"append.bytes", "bytes", "of their keys and values"}, Stat::kAppendBytes},
    StatRow{{"append.waits", "", "appends that found the pipeline full"}, Stat::kAppendWaits},
    StatRow{{"append.wait", "ns", "time that they waited"}, Stat::kAppendWaitNanos},
    StatRow{{"network.frames", "", "frames of records sent to other ranks"}, Stat::kNetworkFrames},
    StatRow{{"network.bytes", "bytes", "in those frames"}, Stat::kNetworkBytes},
    StatRow{{"network.credit_waits", "", "frames that had to wait until a peer had taken earlier ones"},
            Stat::kNetworkCreditWaits},
    StatRow{{"network.frames_max", "", "most frames given to the network at a time", true},
            Stat::kNetworkFramesMax},
    StatRow{{"delivery.frames", "", "frames from other ranks that waited for room in a memtable"},
            Stat::kDeliveryFrames},
    StatRow{{"delivery.frames_max", "", "most of them at a time", true}, Stat::kDeliveryFramesMax},
    StatRow{{"delivery.wait", "ns", "time in which at least one waited"}, Stat::kDeliveryWaitNanos},
    StatRow{{"index.records", "", "records that this rank sorted and wrote"}, Stat::kIndexedRecords},
    StatRow{{"sort.runs", "", "sorted runs written"}, Stat::kSortRuns},
    StatRow{{"sort.time", "ns", "time spent on sorting and gathering them"}, Stat::kSortNanos},
    StatRow{{"index.segments", "", "segments of the index written"}, Stat::kIndexSegments},
    StatRow{{"index.time", "ns", "time spent on making them"}, Stat::kIndexNanos},
    StatRow{{"write.data", "bytes", "written to the data log"}, Stat::kWriteDataBytes},
    StatRow{{"write.index", "bytes", "written to the index log"}, Stat::kWriteIndexBytes},
    StatRow{{"write.requests", "", "write requests given to storage"}, Stat::kWriteRequests},
    StatRow{{"write.time", "ns", "from giving each request to its completion, summed; requests overlap"},
            Stat::kWriteNanos},
    StatRow{{"write.requests_max", "", "most requests in flight at a time", true}, Stat::kWriteRequestsMax},
    StatRow{{"sync.time", "ns", "for making both logs durable"}, Stat::kSyncNanos},
    StatRow{{"epoch.open", "ns", "from the end of the epoch before to the end of this"},
            Stat::kEpochOpenNanos},
    StatRow{{"epoch.drain", "ns", "from the end of the epoch here until all records of all ranks were in"},
            Stat::kEpochDrainNanos},
    StatRow{{"epoch.flush", "ns", "from then until this rank's part was durable"}, Stat::kEpochFlushNanos},
    StatRow{{"commit.time", "ns", "for replacing swale.json, on rank 0"}, Stat::kCommitNanos},
    StatRow{{"network.refused", "", "frames and messages dropped because they are not of this job"},
            Stat::kNetworkRefused},
    StatRow{{"memory.reserved", "bytes", "of the process's memory, while it was written", true},
            Stat::kMemoryReserved},
};

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].stat) != i) return false;
  }
  return kRows.size() == kStatCount;
}
static_assert(rows_are_in_order());

constexpr auto kCounterRows = [] {
  std::array<CounterRow, kStatCount> rows;
  for (size_t i = 0; i < kStatCount; ++i) rows[i] = kRows[i];
  return rows;
}();

}  // namespace

std::span<const StatRow> stat_rows() { return kRows; }
std::span<const CounterRow> counter_rows() { return kCounterRows; }

const StatRow* stat_row(std::string_view name) {
  const auto found =
      std::find_if(kRows.begin(), kRows.end(), [&](const StatRow& row) { return row.name == name; });
  return found == kRows.end() ? nullptr : &*found;
}

void RankStats::merge(const RankStats& other) {
  for (const StatRow& row : kRows) {
    row.is_mark ? raise(row.stat, other.value(row.stat)) : add(row.stat, other.value(row.stat));
  }
}

Counters EpochStats::counters() const {
  Counters out = Counters::of_ranks(ranks);
  for (const StatRow& row : kRows) {
    if (!empty()) out.add(row, at(row.stat));
  }
  return out;
}

EpochStats EpochStats::of(net::Rank rank, const RankStats& stats) {
  EpochStats out;
  out.ranks = 1;
  for (const StatRow& row : kRows) {
    const uint64_t value = stats.value(row.stat);
    out.at(row.stat) = {value, value, value, rank, rank};
  }
  return out;
}

void EpochStats::merge(const EpochStats& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  ranks += other.ranks;
  for (size_t i = 0; i < kStatCount; ++i) values[i].merge(other.values[i]);
}

void EpochStats::append_to(std::string* out) const {
  append_u32(out, ranks);
  append_u16(out, ranks == 0 ? 0 : kStatCount);
  for (size_t i = 0; i < kStatCount && ranks != 0; ++i) {
    append_u16(out, static_cast<uint16_t>(i));
    append_varint(out, values[i].sum);
    append_varint(out, values[i].min);
    append_varint(out, static_cast<uint32_t>(values[i].min_rank));
    append_varint(out, values[i].max);
    append_varint(out, static_cast<uint32_t>(values[i].max_rank));
  }
}

EpochStats EpochStats::read(Decoder* in) {
  EpochStats out;
  out.ranks = in->u32();
  const uint16_t count = in->u16();
  for (uint16_t i = 0; i < count && in->ok(); ++i) {
    const uint16_t number = in->u16();
    MergedStat value;
    value.sum = in->varint64();
    value.min = in->varint64();
    value.min_rank = static_cast<net::Rank>(in->varint32());
    value.max = in->varint64();
    value.max_rank = static_cast<net::Rank>(in->varint32());
    if (number < kStatCount) out.values[number] = value;
  }
  return out;
}

}  // namespace swale::imd
