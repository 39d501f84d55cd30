// DirectIntake: where a record of a job of one rank goes into its memtable. Such a job has nobody to send to,
// so that an append is a hash, a copy and a few sums; everything that it touches besides the memtable stands
// here.
//
// Closed, it takes nothing, and callers go the long way (Writer::append): in jobs of several ranks always,
// and after a failure or an epoch's end until that way has opened it again.
// Threads: append_quickly and shut by any thread; the others, and what `mutex` guards besides, by whoever
// holds `mutex`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/biased_mutex.h"
#include "base/hash.h"
#include "imd/format/record_tally.h"
#include "imd/write/partition.h"
#include "imd/write/value_lengths.h"
#include "run/record.h"

namespace swale::imd {

class DirectIntake {
 public:
  // `value_bytes`: the only length that a value may have; none: any.
  explicit DirectIntake(std::optional<uint32_t> value_bytes = {})
      : quick_(value_bytes, run::kQuickValueBytesMax) {}

  // Serialises appends, whichever way they take.
  BiasedMutex mutex;

  // The usual case and nothing else: a short record, room for it where its bin's last one lies, the thread
  // that the mutex is biased to. Small and without calls, so that everything stays in registers. False:
  // nothing was done.
  [[gnu::always_inline]] bool append_quickly(Bytes key, Bytes value) {
    if (key.size() != run::kQuickKeyBytes || !quick_.fit(value.size())) return false;
    if (value.size() > run::kQuickValueBytesMax)
      __builtin_unreachable();  // so that the copy below stays short
    if (!mutex.try_lock_by_bias()) return false;
    bool taken = false;
    if (closed_.load(std::memory_order_relaxed) == 0) [[likely]] {
      taken = partition_->append_quickly(key, value, &digest_);
    }
    mutex.unlock_by_bias();
    return taken;
  }
  // Any record whose sizes are within the limits, by the holder of the mutex. Says which way must make room
  // (no row) or where the record lies. Requires that the intake is not closed.
  Partition::Appended append(Hash hash, Bytes key, Bytes value) {
    const Partition::Appended appended = partition_->append(hash, key, value);
    if (appended.row != nullptr)
      digest_ += record_digest({appended.row, key.size() + value.size()}, key.size());
    return appended;
  }
  // The same for a record that is encoded.
  Partition::Appended append(Hash hash, const run::RecordView& record) {
    const Partition::Appended appended = partition_->append(hash, record);
    if (appended.row != nullptr)
      digest_ += record_digest({appended.row, record.row().size()}, record.key.size());
    return appended;
  }

  // As Partition::append_run; the caller must also hold what serialises the partition.
  void append_run(std::unique_ptr<run::OrderedRecords> records) {
    digest_ += records->digest();
    partition_->append_run(std::move(records));
  }

  void open(Partition* partition) {
    partition_ = partition;
    closed_.fetch_and(~kNoPartition);
  }
  void close() { closed_.fetch_or(kNoPartition); }
  bool closed() const { return (closed_.load(std::memory_order_relaxed) & kNoPartition) != 0; }
  void shut() { closed_.fetch_or(kFailed); }  // for good
  // Every record goes the long way, which has something to ask first. For good; append goes on taking them.
  void forbid_quickly() { closed_.fetch_or(kLongWayOnly); }

  // The tally of the open epoch so far. The caller must also hold what serialises the partition. Memtables
  // count the records, so that an append need not.
  RecordTally tally() const {
    RecordTally tally = partition_ != nullptr ? partition_->taken() : RecordTally{};
    tally.digest = digest_;
    return tally;
  }
  void begin_epoch() { digest_ = 0; }

 private:
  static constexpr uint32_t kNoPartition = 1;
  static constexpr uint32_t kFailed = 2;
  static constexpr uint32_t kLongWayOnly = 4;

  std::atomic<uint32_t> closed_{kNoPartition};
  const ValueLengths quick_;
  Partition* partition_ = nullptr;
  uint64_t digest_ = 0;  // of the open epoch's records
};

}  // namespace swale::imd
