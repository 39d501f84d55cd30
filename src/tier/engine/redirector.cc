#include "tier/engine/redirector.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {
namespace {

constexpr int64_t kDayNs = 86'400'000'000'000;
constexpr uint32_t kMapCheckEvery = 1024;
constexpr double kLong = 4.0 / 3;  // a write is long above so many times the mean of its file
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t kFileStride = 977;  // files begin at different fractions

Traffic::Rule rule_of(Policy policy) {
  return policy == Policy::kSsdup ? Traffic::Rule::kWatermarks : Traffic::Rule::kAdaptive;
}

}  // namespace

Redirector::Redirector(Shared* shared, const LogRecords* records, Costs* costs, const BackingQueue* queue)
    : shared_(*shared),
      records_(*records),
      costs_(*costs),
      queue_(*queue),
      traffic_(rule_of(shared->options.policy), shared->options.detector) {}

// The redirector: whether the policy sends this write to the SSD.
bool Redirector::wants_log(const Op& op) {
  if (shared_.options.policy == Policy::kBacking) return false;
  if (map_full_ || ++map_check_ >= kMapCheckEvery) {
    map_check_ = 0;
    map_full_ = shared_.map_bytes() > shared_.options.map_bytes_max;
    if (map_full_) return false;
  }
  if (shared_.options.ssd_bytes_per_day > 0) {
    if (wear_day_ != shared_.now / kDayNs) wear_day_ = shared_.now / kDayNs, wear_bytes_ = 0;
    if (wear_bytes_ + op.length > shared_.options.ssd_bytes_per_day) return false;
  }
  switch (shared_.options.policy) {
    case Policy::kSsdBlocking:
    case Policy::kSsdOverflowing:
      return true;
    case Policy::kSsdup:
    case Policy::kSsdupPlus:
      return op.stream_to_ssd;
    default:
      break;
  }
  constexpr double kForget = 1 - 1.0 / 2048;  // a write; the costliest file may have been the last one's
  costliest_ = std::max(costliest_ * kForget, shared_.files[op.file].direct_cost);
  several_files_ |= last_file_ != kNoFile && last_file_ != op.file;
  last_file_ = op.file;
  if (syncs_want_log(op)) return true;
  if (costs_.hidden()) return hidden_wants_log(op);
  return is_costly(op.file) ? costly_wants_log(op) : stripe_wants_log(op);
}

// The page cache takes writes at once, and a sync pays for them. Before the first one of a file the disk
// model says what its writes cost: those that need a seek each go where SSDUP+ sends them. Bytes that were
// saved are not for long ones, because a disk takes as long for a short write as for a long one, and the
// budget counts bytes. Later its syncs say it.
bool Redirector::hidden_wants_log(const Op& op) const {
  const FileState& file = shared_.files[op.file];
  if (file.habit.bytes > 0 || budget_left(Whose::kWaiters) < op.length) return false;
  const Options& options = shared_.options;
  if (file.modelled_cost * options.backing.write_bytes_per_s < options.swale.cheap_ratio * 1e9) return false;
  return op.stream_to_ssd || static_cast<double>(op.length) * file.habit.since_writes <=
                                 kLong * static_cast<double>(file.habit.since_bytes);
}

// Files that need few seeks. Only while the queue is more than half full since it was full: what is served in
// order costs nothing. Then whole stripes, because the backing device passes over a short hole as slowly as
// it writes it.
bool Redirector::stripe_wants_log(const Op& op) {
  const SwaleOptions& own = shared_.options.swale;
  const size_t waiting = queue_.waiting();
  if (waiting >= queue_.elevator().slots_max())
    pressed_ = true;
  else if (static_cast<double>(waiting) < own.stripe_queue_share * queue_.elevator().slots_max())
    pressed_ = false;
  const FileState& file = shared_.files[op.file];
  if (!pressed_ || is_cheap(file)) return false;
  const double left = budget_left();
  if (left < op.length) return false;
  // Multiples of the golden ratio: any stripes that follow each other have all fractions equally often.
  const uint64_t stripe = op.offset / own.stripe_bytes + op.file * kFileStride;
  const double fraction = static_cast<double>(stripe * kGolden >> 11) * 0x1p-53;
  // No more of them than the backing device needs to keep up with writers, and than the budget that is saved
  // up allows.
  return fraction * file.direct_cost < stripe_need() * (file.direct_cost - costs_.arrival()) &&
         fraction * static_cast<double>(own.stripe_spread_bytes) < left;
}

// How many times the share that the backing device has no time for goes to the log. The less of the traffic
// is in order, the more: what is flushed then costs as much as what is written directly, and a log that is
// not full at the end was of no use.
double Redirector::stripe_need() const {
  const SwaleOptions& own = shared_.options.swale;
  const double square = traffic_.percentage_mean() * traffic_.percentage_mean();
  return own.stripe_need + (own.stripe_need_random - own.stripe_need) * square * square;
}

// Files that need a seek for every write: back-pressure, what would wait goes to the log.
bool Redirector::costly_wants_log(const Op& op) const {
  if (queue_.elevator().would_merge(op.file, shared_.files.position(op.file, op.offset), op.offset,
                                    op.length))
    return false;
  const double first = shared_.options.swale.log_first_ratio;
  // What was never flushed costs 0: as SSDUP+.
  if (first > 0 && shared_.files[op.file].direct_cost >= first * costs_.flush())
    return !is_cheap(shared_.files[op.file]) && budget_left() >= op.length;
  if (!queue_.elevator().full() && queue_.waiting() < queue_.elevator().slots_max()) return false;
  return !is_cheap(shared_.files[op.file]) && budget_left() >= op.length;
}

double Redirector::budget_left(Whose whose) const {
  const SwaleOptions& own = shared_.options.swale;
  if (own.byte_budget_random <= 0) return 1e300;
  const double ordered = several_files_ && whose == Whose::kAll ? own.byte_budget_several : 1;
  const double random = traffic_.percentage_mean();
  return (ordered + (own.byte_budget_random - ordered) * random * random) *
             static_cast<double>(traffic_.ssd_bytes() + shared_.stats.forced_bytes) -
         static_cast<double>(shared_.stats.ssd_bytes);
}

bool Redirector::is_costly(FileIndex file) const {
  return shared_.files[file].direct_cost * shared_.options.backing.write_bytes_per_s >=
         shared_.options.swale.cheap_ratio * 1e9;
}

// Whether the log is better used for another file that is being written, which costs the backing device more.
// A file that needs many seeks is never cheap.
bool Redirector::is_cheap(const FileState& file) const {
  const SwaleOptions& own = shared_.options.swale;
  const double used =
      static_cast<double>(shared_.log.used_bytes()) / static_cast<double>(shared_.log.capacity_bytes());
  return file.direct_cost > 0 && file.direct_cost < costliest_ * own.costly_share * used &&
         file.direct_cost * shared_.options.backing.write_bytes_per_s < own.cheap_ratio * 1e9;
}

bool Redirector::waits_when_full(const Op& op) const {
  if (shared_.options.policy == Policy::kSsdOverflowing) return false;
  const double cost = shared_.files[op.file].direct_cost;
  if (shared_.files[op.file].habit.sooner)
    return false;  // a segment takes longer than the sync that is to be spared
  if (shared_.swale() && cost > 0 && cost < shared_.options.swale.overflow_ratio * costs_.flush())
    return false;
  return !(shared_.swale() && costs_.hidden());  // the page cache takes it at once
}

}  // namespace swale::tier
