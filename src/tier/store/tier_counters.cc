#include "tier/store/tier_counters.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace swale::tier {
namespace {

struct CountedIn {
  const Stats& stats;
  const RecoveryReport& found;
};
struct Counted {
  CounterRow row;
  uint64_t (*value)(const CountedIn& of);
};

uint64_t rounded(double value) {
  return value > 0 ? static_cast<uint64_t>(std::llround(std::min(value, 9e18))) : 0;
}
uint64_t ppm(double share) { return rounded(share * 1e6); }
uint64_t nanos(int64_t time) { return static_cast<uint64_t>(std::max<int64_t>(0, time)); }

// A row whose value is a field of Stats, and is one of what opening has found.
#define SWALE_OF(field) [](const CountedIn& of) { return static_cast<uint64_t>(of.stats.field); }
#define SWALE_FOUND(expression) [](const CountedIn& of) { return static_cast<uint64_t>(of.found.expression); }

constexpr std::array kCounted = {
    Counted{{"write.requests", "", "writes taken"}, SWALE_OF(writes)},
    Counted{{"write.bytes", "bytes", "in them"}, SWALE_OF(write_bytes)},
    Counted{
        {"write.absorbed", "bytes", "of them that newer writes replaced before they were written anywhere"},
        SWALE_OF(absorbed_bytes)},
    Counted{{"ssd.bytes", "bytes", "sent to the log on the SSD"}, SWALE_OF(ssd_bytes)},
    Counted{{"ssd.diverted", "bytes",
             "of them taken out of the queue to the backing device, because somebody waited"},
            SWALE_OF(diverted_bytes)},
    Counted{{"ssd.forced", "bytes", "of them that only went there because they lie over bytes in the log"},
            SWALE_OF(forced_bytes)},
    Counted{{"ssd.ssdup_plus", "bytes", "that SSDUP+ would have sent there of the same writes: the budget"},
            SWALE_OF(ssdup_plus_bytes)},
    Counted{{"direct.bytes", "bytes", "sent to the backing device at once"}, SWALE_OF(direct_bytes)},
    Counted{{"direct.requests", "", "operations of the backing device"}, SWALE_OF(slots_written)},
    Counted{{"direct.cost", "ps", "that the backing device takes for a byte of direct writes, as measured"},
            [](const CountedIn& of) { return rounded(of.stats.direct_ns_per_byte * 1e3); }},
    Counted{{"flush.bytes", "bytes", "from the log to the backing device"}, SWALE_OF(flushed_bytes)},
    Counted{{"flush.gap_bytes", "bytes", "of them in passing, between direct writes"},
            SWALE_OF(gap_filled_bytes)},
    Counted{{"flush.cost", "ps", "that the backing device takes for a byte of a flush, as measured"},
            [](const CountedIn& of) { return rounded(of.stats.flush_ns_per_byte * 1e3); }},
    Counted{{"flush.active", "", "1: a flush is going on now"}, SWALE_OF(flushing)},
    Counted{{"flush.paused", "ns", "in which there was something to flush and traffic held it back"},
            [](const CountedIn& of) { return nanos(of.stats.paused_ns); }},
    Counted{{"wait.log", "", "writes that waited for space in the log"}, SWALE_OF(log_waits)},
    Counted{{"wait.queue", "", "writes that waited for a place in the queue"}, SWALE_OF(slot_waits)},
    Counted{{"wait.overlap", "", "writes that waited for an overlapping one"}, SWALE_OF(overlap_waits)},
    Counted{{"wait.log_time", "ns", "in which writes waited for space in the log"},
            [](const CountedIn& of) { return nanos(of.stats.stalled_ns); }},
    Counted{{"write.overflows", "", "writes meant for a full log that went to the backing device"},
            SWALE_OF(overflows)},
    Counted{{"log.capacity", "bytes", "of the log"}, SWALE_OF(log_capacity_bytes)},
    Counted{{"log.used", "bytes", "of it now"}, SWALE_OF(log_used_bytes)},
    Counted{{"log.dirty", "bytes", "that only the log has now"}, SWALE_OF(dirty_bytes)},
    Counted{{"log.erasures", "", "of segments"}, SWALE_OF(erasures)},
    Counted{{"log.sync", "ns", "that a sync of the log takes, as measured"},
            [](const CountedIn& of) { return rounded(of.stats.log_sync_ns); }},
    Counted{{"log.failed", "", "1: the log has failed, and takes no more"}, SWALE_OF(log_failed)},
    Counted{{"backing.sync", "ns", "that a sync of a file on the backing device takes, as measured"},
            [](const CountedIn& of) { return rounded(of.stats.backing_sync_ns); }},
    Counted{{"queue.depth", "", "writes that wait for the backing device now"}, SWALE_OF(elevator_depth)},
    Counted{{"requests.open", "", "requests that have begun and are not finished now"}, SWALE_OF(waiting)},
    Counted{{"random.now", "ppm", "the random percentage of the newest stream"},
            [](const CountedIn& of) { return ppm(of.stats.random_percentage); }},
    Counted{{"random.mean", "ppm", "the mean of the last ones"},
            [](const CountedIn& of) { return ppm(of.stats.random_percentage_mean); }},
    Counted{{"random.threshold", "ppm", "above which streams go to the SSD"},
            [](const CountedIn& of) { return ppm(of.stats.threshold); }},
    Counted{{"error.append", "", "writes to the log that failed"}, SWALE_OF(append_errors)},
    Counted{{"error.flush", "", "flushes that failed"}, SWALE_OF(flush_errors)},
    Counted{{"error.direct", "", "direct writes that failed"}, SWALE_OF(direct_errors)},
    Counted{{"lost.bytes", "bytes", "that were acknowledged and are lost"}, SWALE_OF(lost_bytes)},
    Counted{{"memory.reserved", "bytes", "of the process's memory"}, SWALE_OF(reserved_bytes)},
    Counted{{"open.records", "", "records that opening has found in the log"}, SWALE_FOUND(records)},
    Counted{{"open.dirty", "bytes", "of them that the backing directory did not have"},
            SWALE_FOUND(dirty_bytes)},
    Counted{{"open.damaged", "", "records that it has found damaged"}, SWALE_FOUND(damaged.size())},
    Counted{{"open.lost", "", "ranges of files whose newest bytes are lost"}, SWALE_FOUND(lost.size())},
    Counted{{"open.kept", "", "files that were not found, whose bytes are kept aside"},
            SWALE_FOUND(kept.size())},
};

#undef SWALE_OF
#undef SWALE_FOUND

constexpr auto kTierCounterRows = [] {
  std::array<CounterRow, kCounted.size()> rows;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = kCounted[i].row;
  return rows;
}();

}  // namespace

std::span<const CounterRow> tier_counter_rows() { return kTierCounterRows; }

Counters tier_counters(const Store& store, int32_t rank) {
  const Stats stats = store.stats();
  Counters counters = Counters::of_rank(rank);
  for (const Counted& each : kCounted) counters.add(each.row, each.value({stats, store.recovery()}));
  return counters;
}

}  // namespace swale::tier
