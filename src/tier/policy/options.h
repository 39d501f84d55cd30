// What the tier engine is told when it is made: policy, durability, sizes, limits, and what the backing
// device costs.
//
// Units: bytes and nanoseconds, unless a name says otherwise. Threads: plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "io/disk_model.h"

namespace swale::tier {

// Names for files inside one engine: dense, given by Engine::open_file, never reused while the engine lives.
using FileIndex = uint32_t;
// The driver's name for one of its requests; the engine hands it back.
using Ticket = uint64_t;
inline constexpr Ticket kRecoveryTicket = ~Ticket{0};  // of what recovery itself does; answered as any other
inline constexpr Ticket kMarkTicket = ~Ticket{0} - 2;  // of the engine's own marks in the log
inline constexpr uint32_t kWriteBytesMax = 1u << 20;   // of one write; the driver divides longer ones

enum class Policy : uint8_t {
  kBacking,         // every write to the backing device
  kSsdBlocking,     // every write to the SSD; writers wait while the SSD is full (a burst buffer)
  kSsdOverflowing,  // every write to the SSD; to the backing device while the SSD is full
  kSsdup,           // SSDUP: watermarks of 45 % and 30 % of random percentage, regions are flushed at once
  kSsdupPlus,       // SSDUP+: adaptive threshold, traffic-aware flush (ssdup-plus, sections 2.3 and 2.4)
  kSwale,           // per-request back-pressure, gap filling, SSDUP+ as byte budget
};
Result<Policy> parse_policy(
    std::string_view name);  // "backing", "ssd", "ssd-overflow", "ssdup", "ssdup+", "swale"
std::string_view policy_name(Policy policy);

// When a write is acknowledged.
enum class Durability : uint8_t {
  kPageCache,    // survives SIGKILL: when appended to the log, or when admitted to the queue in shared memory
  kGroupCommit,  // survives power loss: after a sync that serves all writes of an interval
  kSync,         // survives power loss: after a sync that starts at once
};

struct DetectorOptions {
  uint32_t stream_requests = 128;  // requests in a stream; the paper takes the length of the device's queue
  double guard_above = 0;          // also needs p above this to go to the SSD; the authors' code has 0.45
  double guard_below = 0;        // p below this always goes to the backing device; the authors' code has 0.30
  double change_distance = 0.2;  // a stream deviates if |p - threshold| is above this
  uint32_t change_streams = 11;  // the first deviating stream opens a count of this many
  double change_share = 0.8;     // this share of deviating streams empties the list of percentages
  double watermark_high = 0.45;  // SSDUP
  double watermark_low = 0.30;
};

struct SwaleOptions {
  // Flush only while the backing queue holds less than this share of its slots, or the log is fuller than the
  // other share.
  double flush_queue_share = 1;
  double flush_always_share = 0.93;
  double gap_fill_share = 2;            // fill gaps once this share of the log is dirty; above 1: never
  int64_t gap_fill_slack_ns = 150'000;  // what a detour may cost
  // At most this share of the bytes that SSDUP+ would have sent to the SSD: for traffic in order of several
  // files, and for random traffic, between them by the square of the mean random percentage; all of them for
  // one file in order, because SSDUP+ would have seen its writes in the same order. 0 for random traffic: no
  // limit.
  double byte_budget_several = 0.85;
  double byte_budget_random = 1;
  // A file that costs few seeks goes to the log in stripes of so many bytes: the backing device passes over a
  // short hole as slowly as it writes it. Which ones, is a fraction of 1 that each stripe has: those below
  // the budget that is left over this many bytes,...
  uint64_t stripe_bytes = 16 * kMiB;
  uint64_t stripe_spread_bytes = 64 * kMiB;
  // ... and below so many times the share that the backing device has no time for, as measured: for traffic
  // in order, and for random traffic, between them by the fourth power of the mean random percentage. While
  // the queue, once it was full, holds more than this share of its slots.
  double stripe_need = 1.25;
  double stripe_need_random = 1.55;
  double stripe_queue_share = 0.2;
  // While files of several kinds would wait for the backing device, the log is for those that cost it most. A
  // file is cheap, and waits, if its bytes cost less than this share of the costliest file's when the log is
  // full, in proportion before...
  double costly_share = 0.95;
  // ... and less than so many times what bytes in order cost: what needs a seek for every request never is.
  double cheap_ratio = 4;
  // A write that finds the log full goes to the backing device if that costs less than this many times a
  // flush.
  double overflow_ratio = 0.7;
  // Writes that need a seek each go to the log although the queue has space, once they cost so many times
  // what a flush of the log costs: the flush sorts more of them than the queue does. 0: never.
  double log_first_ratio = 0.9;
  // A backing device that needs so many times longer for a byte than the writers is overloaded: segments are
  // then flushed at once, half of the log in one sweep, because every seek that is saved is time that is
  // gained.
  double overload_ratio = 8;
};

// Mistakes on purpose, so that tests can show that they would be found.
struct Canaries {
  bool overwrite_directly = false;  // a write over bytes in the log may go to the backing device
  bool skip_shields = false;        // segments are erased in any order
  bool overlap_in_queue = false;    // overlapping writes do not wait for each other
  bool skip_truncate_end = false;   // a truncate has no end in the log
  bool erase_unsynced = false;      // segments are erased before the backing device is synced
  bool forget_losses = false;       // what is lost reads as the backing device has it
  bool erase_unsaved = false;       // segments are erased before the list of losses is durable
  bool sync_without_log = false;    // a sync of a file leaves the log alone
  bool forget_replaced = false;     // a sync does not wait for what has replaced a write in the queue
  bool latch_clock = false;         // time that went back stands still until it is as late again
  bool latch_gate = false;          // a flush that is held back does not yield to anybody
  // records that were torn when the process ended count as lost (the driver's part)
  bool poison_torn = false;
};

struct Options {
  Policy policy = Policy::kSwale;
  Durability durability = Durability::kPageCache;
  uint64_t log_id = 1;         // random, made with the log; a record of another log is never taken for ours
  uint32_t segment_count = 8;  // 2: the paper's regions; 1 only for policies that send everything to the SSD
  uint64_t segment_bytes = kGiB;  // of one segment, headers included
  uint32_t log_alignment = 64;    // records start at multiples of this: a power of two, 64 to 4096
  uint32_t queue_slots = 128;     // of the elevator
  uint32_t merge_bytes_max = 512 * kKiB;
  uint32_t backing_depth = 1;           // operations in flight to the backing device
  uint32_t flush_pieces_max = 16;       // extents between log and backing device
  uint64_t map_bytes_max = 256 * kMiB;  // no more writes to the SSD while the maps are larger
  uint64_t ssd_bytes_per_day = 0;       // wear; 0: unlimited
  int64_t group_commit_ns = 2'000'000;
  int64_t retry_ns = 1'000'000'000;  // after a flush failed
  // the log was idle for so long: a mark says that what is in it was acknowledged
  int64_t settle_ns = 100'000'000;
  // a part-filled segment that received nothing for so long is sealed
  int64_t idle_flush_ns = 10'000'000'000;
  int64_t age_flush_ns = 600'000'000'000;  // data that is dirty for so long is flushed whatever the traffic
  // fewer direct writes than this: the backing device counts as idle
  uint32_t quiet_requests_per_second = 100;
  io::DiskModel backing = *io::disk_model("modern");  // what a gap costs on the backing device
  DetectorOptions detector;
  SwaleOptions swale;
  Canaries canaries;

  Status validate() const;
};

}  // namespace swale::tier
