// DirectIntake: where a record of a job of one rank goes into its memtable. Such a job has nobody to send to, so that an
// append is a hash, a copy and a few sums; everything that it touches besides the memtable stands here.
//
// Closed, it takes nothing, and callers go the long way (Writer::append): in jobs of several ranks always, and
// after a failure or an epoch's end until that way has opened it again.
// Threads: append_quickly and shut by any thread; the others, and what `mutex` guards besides, by whoever holds `mutex`.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/biased_mutex.h"
#include "base/hash.h"
#include "imd/write/batcher.h"
#include "imd/write/partition.h"
#include "run/memtable.h"

namespace swale::imd {

class DirectIntake {
 public:
  // Serialises appends, whichever way they take.
  BiasedMutex mutex;

  // The usual case and nothing else: a short record, room for it where its bin's last one lies, the thread that the
  // mutex is biased to. Small and without calls, so that everything stays in registers. False: nothing was done.
  bool append_quickly(Bytes key, Bytes value) {
    if (key.size() != run::Memtable::kQuickKeyBytes || value.size() > run::Memtable::kQuickValueBytesMax)
      return false;
    if (!mutex.try_lock_by_bias()) return false;
    bool taken = false;
    if (closed_.load(std::memory_order_relaxed) == 0) [[likely]] {
      const char* const row = partition_->append_quickly(key, value);
      taken = row != nullptr;
      if (taken) [[likely]]
        count(row, run::Memtable::kQuickKeyBytes, value.size());
    }
    mutex.unlock_by_bias();
    return taken;
  }
  // Any record whose sizes are within the limits, by the holder of the mutex. Says which way must make room (no row)
  // or where the record lies. Requires that the intake is not closed.
  Partition::Appended append(Hash hash, Bytes key, Bytes value) {
    const Partition::Appended appended = partition_->append(hash, key, value);
    if (appended.row != nullptr) count(appended.row, key.size(), value.size());
    return appended;
  }
  // The same for a record that is encoded.
  Partition::Appended append(Hash hash, const run::RecordView& record) {
    const Partition::Appended appended = partition_->append(hash, record);
    if (appended.row != nullptr) count(appended.row, record.key.size(), record.value.size());
    return appended;
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

  // Of the records taken since the last call.
  RecordTally take_tally() { return std::exchange(tally_, {}); }
  const RecordTally& tally() const { return tally_; }

 private:
  void count(const char* row, size_t key_bytes, size_t value_bytes) {
    ++tally_.records;
    tally_.data_bytes += key_bytes + value_bytes;
    tally_.digest += record_digest({row, key_bytes + value_bytes}, key_bytes);
  }

  static constexpr uint32_t kNoPartition = 1;
  static constexpr uint32_t kFailed = 2;
  static constexpr uint32_t kLongWayOnly = 4;

  std::atomic<uint32_t> closed_{kNoPartition};
  Partition* partition_ = nullptr;
  RecordTally tally_;
};

}  // namespace swale::imd
