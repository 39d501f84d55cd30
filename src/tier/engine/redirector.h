// Redirector: which device a write goes to (ssdup-plus, section 2.3; docs/design/tier.md, "Our policy" and
// "What a waiter pays").
//
// The redirect is a hint: a write over bytes of the log goes to the log whatever is said here, and one may
// find the log full.
//
// Invariants: (1) the shadow SSDUP+ sees each write once, in the order in which they come; (2) swale's policy
// sends no more to the log than budget_left() says, but for what has to go there.
// Threads: one at a time.
#pragma once

#include <cassert>
#include <cstdint>

#include "tier/engine/backing_queue.h"
#include "tier/engine/costs.h"
#include "tier/engine/log_records.h"
#include "tier/engine/shared.h"
#include "tier/policy/traffic.h"

namespace swale::tier {

class Redirector {
 public:
  Redirector(Shared* shared, const LogRecords* records, Costs* costs, const BackingQueue* queue);

  // A write comes. Returns what the detector says of its stream.
  bool arrived(FileIndex file, uint64_t offset, uint32_t length);
  // Whether the policy sends this write to the log.
  bool wants_log(const Op& op);
  // Whether it waits if the log is full; else it goes to the backing device.
  bool waits_when_full(const Op& op) const;
  // The log has taken so many bytes.
  void appended(uint32_t length) { wear_bytes_ += length; }
  // What may still be sent to the log: the shadow's bytes, less what it may have counted too many. It is
  // SSDUP+ itself while one file is written; with several it sees their writes in another order than SSDUP+
  // would. Not by so much that it would be worth the time of somebody who waits.
  enum class Whose : uint8_t { kAll, kWaiters };
  double budget_left(Whose whose = Whose::kAll) const;

  // What a sync waits for.
  struct Awaited {
    bool direct = false;  // the backing device has to write for it
    uint32_t writes = 0;  // that came since the file's last sync
  };
  // A sync of the file is asked for.
  Awaited sync_begins(FileIndex file);
  // Its caller waited since `began`, for the backing device.
  void sync_waited(FileIndex file, Nanos began, uint32_t writes);

  const Traffic& traffic() const { return traffic_; }

  // The log must answer so many times sooner: its bytes are written twice, and a measurement is not exact.
  static constexpr double kWorth = 2;

 private:
  bool stripe_wants_log(const Op& op);
  double stripe_need() const;
  bool hidden_wants_log(const Op& op) const;
  bool costly_wants_log(const Op& op) const;
  bool is_costly(FileIndex file) const;
  bool is_cheap(const FileState& file) const;
  void expect_sync(FileState* file, uint32_t length);
  bool syncs_want_log(const Op& op);
  bool log_answers_sooner(const FileState& file) const;

  Shared& shared_;
  const LogRecords& records_;
  Costs& costs_;
  const BackingQueue& queue_;
  Traffic traffic_;
  bool pressed_ = false;        // the queue has been full, and has not become short since
  bool several_files_ = false;  // have been written
  FileIndex last_file_ = kNoFile;
  double costliest_ = 0;  // the largest FileState::direct_cost among files that are being written
  int64_t wear_day_ = 0;
  uint64_t wear_bytes_ = 0;
  uint32_t map_check_ = 0;
  bool map_full_ = false;
};

// Here, because each write asks for it.
inline bool Redirector::arrived(FileIndex file, uint64_t offset, uint32_t length) {
  assert(length > 0 && length <= kWriteBytesMax);
  const bool to_ssd = traffic_.add(file, offset, length);
  costs_.arrived(length);
  ++shared_.stats.writes;
  shared_.stats.write_bytes += length;
  expect_sync(&shared_.files[file], length);
  return to_ssd;
}

}  // namespace swale::tier
