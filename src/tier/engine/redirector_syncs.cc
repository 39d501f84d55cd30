// Redirector: what a file's syncs have shown decides where its writes go (docs/design/tier.md, "What a waiter
// pays").
#include <algorithm>
#include <utility>

#include "tier/engine/redirector.h"

namespace swale::tier {
namespace {

// A file that has received so many times what it has between two syncs is not waited for.
constexpr double kHabitMax = 8;
constexpr double kHabitSmoothing = 1.0 / 4;
// What the log takes measures nothing of the backing device. After so many times what a sync took there, one
// tries again: 2 % of the time.
constexpr double kTryAgain = 50;
constexpr double kShort = 0.75;  // a write is short below this share of the mean
// So many times what a group or a write has stays in the budget when it goes to the log: for short writes
// that will come.
constexpr double kReserve = 3;

}  // namespace

// A write to the file begins: the first one after a sync says whether the log answers the next one sooner,
// and whether there is budget for all that is written until then.
void Redirector::expect_sync(FileState* file, uint32_t length) {
  if (!shared_.swale()) return;
  SyncHabit& habit = file->habit;
  if (!shared_.page_cache()) {  // each write is waited for
    habit.bytes = std::max<double>(habit.bytes, length);
    habit.writes = 1;
    habit.since_bytes = habit.since_writes = 0;
  }
  if (habit.since_bytes == 0) {
    habit.sooner = habit.bytes > 0 && !shared_.log.exhausted() && log_answers_sooner(*file);
    const double each = habit.bytes / habit.writes;
    // Of writes that are synced one by one, long ones leave a part of the budget to the short ones that will
    // come.
    const double wanted =
        kReserve * (habit.writes < 1.5 ? static_cast<double>(length) * length / each : habit.bytes);
    habit.to_log = habit.sooner && budget_left(Whose::kWaiters) >= wanted;
  } else if (static_cast<double>(habit.since_bytes) > kHabitMax * habit.bytes) {
    habit.sooner = habit.to_log = false;
  }
  habit.since_bytes += length;
  ++habit.since_writes;
}

// Whether a write goes to the log because a sync will wait for it. What SSDUP+ sends to the SSD brings its
// own bytes into the budget. Saved bytes are for whole groups, because the first write of a group that the
// backing device gets makes the sync wait for the device's cache, too. Where they do not suffice for that,
// the short writes get them: a device that needs a seek for each write takes as long for a short one, and
// the budget counts bytes.
bool Redirector::syncs_want_log(const Op& op) {
  SyncHabit& habit = shared_.files[op.file].habit;
  if (!habit.sooner) return false;
  if (shared_.log.exhausted() || budget_left(Whose::kWaiters) < op.length) {
    habit.to_log = false;
    return false;
  }
  return op.stream_to_ssd || habit.to_log ||
         (habit.writes >= 1.5 && op.length * habit.writes < kShort * habit.bytes);
}

// A device that has become quick is found out: one group in a while goes there.
bool Redirector::log_answers_sooner(const FileState& file) const {
  const SyncHabit& habit = file.habit;
  const double backing = habit.direct_ns > 0 ? habit.direct_ns : costs_.file_sync_ns();
  if (habit.direct_ns > 0 && static_cast<double>(shared_.now - habit.measured) > kTryAgain * habit.direct_ns)
    return false;
  return records_.usable() && backing > kWorth * costs_.log_sync_ns();
}

Redirector::Awaited Redirector::sync_begins(FileIndex file) {
  SyncHabit& habit = shared_.files[file].habit;
  const uint32_t writes = habit.since_writes;
  if (habit.since_bytes > 0) {
    const double weight = habit.bytes == 0 ? 1 : kHabitSmoothing;
    habit.bytes += (static_cast<double>(habit.since_bytes) - habit.bytes) * weight;
    habit.writes += (habit.since_writes - habit.writes) * weight;
    habit.since_bytes = habit.since_writes = 0;
  }
  const bool direct = std::exchange(habit.direct, false);
  if (direct) costs_.wait_begins();
  return {direct, writes};
}

void Redirector::sync_waited(FileIndex file, Nanos began, uint32_t writes) {
  SyncHabit& habit = shared_.files[file].habit;
  const Nanos waited = shared_.now - began;
  // What is old says nothing any more.
  if (static_cast<double>(shared_.now - habit.measured) > kTryAgain * habit.direct_ns) habit.direct_ns = 0;
  Costs::smooth_sync(&habit.direct_ns, waited);
  habit.measured = shared_.now;
  costs_.backing_synced(waited, writes);
}

}  // namespace swale::tier
