#include "imd/format/epoch_stats.h"

#include <algorithm>

namespace swale::imd {
namespace {

constexpr std::array kRows = {
    StatRow{Stat::kAppendRecords, "append.records", "", false,
            "records that the application gave to this rank"},
    StatRow{Stat::kAppendBytes, "append.bytes", "bytes", false, "of their keys and values"},
    StatRow{Stat::kAppendWaits, "append.waits", "", false, "appends that found the pipeline full"},
    StatRow{Stat::kAppendWaitNanos, "append.wait", "ns", false, "time that they waited"},
    StatRow{Stat::kNetworkFrames, "network.frames", "", false, "frames of records sent to other ranks"},
    StatRow{Stat::kNetworkBytes, "network.bytes", "bytes", false, "in those frames"},
    StatRow{Stat::kNetworkCreditWaits, "network.credit_waits", "", false,
            "frames that had to wait until a peer had taken earlier ones"},
    StatRow{Stat::kNetworkFramesMax, "network.frames_max", "", true,
            "most frames given to the network at a time"},
    StatRow{Stat::kDeliveryFrames, "delivery.frames", "", false,
            "frames from other ranks that waited for room in a memtable"},
    StatRow{Stat::kDeliveryFramesMax, "delivery.frames_max", "", true, "most of them at a time"},
    StatRow{Stat::kDeliveryWaitNanos, "delivery.wait", "ns", false, "time in which at least one waited"},
    StatRow{Stat::kIndexedRecords, "index.records", "", false, "records that this rank sorted and wrote"},
    StatRow{Stat::kSortRuns, "sort.runs", "", false, "sorted runs written"},
    StatRow{Stat::kSortNanos, "sort.time", "ns", false, "time spent on sorting and gathering them"},
    StatRow{Stat::kIndexSegments, "index.segments", "", false, "segments of the index written"},
    StatRow{Stat::kIndexNanos, "index.time", "ns", false, "time spent on making them"},
    StatRow{Stat::kWriteDataBytes, "write.data", "bytes", false, "written to the data log"},
    StatRow{Stat::kWriteIndexBytes, "write.index", "bytes", false, "written to the index log"},
    StatRow{Stat::kWriteRequests, "write.requests", "", false, "write requests given to storage"},
    StatRow{Stat::kWriteNanos, "write.time", "ns", false,
            "from giving each request to its completion, summed; requests overlap"},
    StatRow{Stat::kWriteRequestsMax, "write.requests_max", "", true, "most requests in flight at a time"},
    StatRow{Stat::kSyncNanos, "sync.time", "ns", false, "for making both logs durable"},
    StatRow{Stat::kEpochOpenNanos, "epoch.open", "ns", false,
            "from the end of the epoch before to the end of this"},
    StatRow{Stat::kEpochDrainNanos, "epoch.drain", "ns", false,
            "from the end of the epoch here until all records of all ranks were in"},
    StatRow{Stat::kEpochFlushNanos, "epoch.flush", "ns", false,
            "from then until this rank's part was durable"},
    StatRow{Stat::kCommitNanos, "commit.time", "ns", false, "for replacing swale.json, on rank 0"},
    StatRow{Stat::kNetworkRefused, "network.refused", "", false,
            "frames and messages dropped because they are not of this job"},
};

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].stat) != i) return false;
  }
  return kRows.size() == kStatCount;
}
static_assert(rows_are_in_order());

}  // namespace

std::span<const StatRow> stat_rows() { return kRows; }

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
  for (size_t i = 0; i < kStatCount; ++i) {
    MergedStat& mine = values[i];
    const MergedStat& theirs = other.values[i];
    mine.sum += theirs.sum;
    if (theirs.min < mine.min || (theirs.min == mine.min && theirs.min_rank < mine.min_rank)) {
      mine.min = theirs.min;
      mine.min_rank = theirs.min_rank;
    }
    if (theirs.max > mine.max || (theirs.max == mine.max && theirs.max_rank < mine.max_rank)) {
      mine.max = theirs.max;
      mine.max_rank = theirs.max_rank;
    }
  }
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
