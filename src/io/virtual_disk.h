// VirtualDisk: a disk in virtual time: a queue with priorities and an elevator; the owner of the clock drives
// it. Passive and deterministic: the same requests at the same times complete at the same times. It moves no
// data; code that needs files uses VirtualDevice (virtual_device.h).
//
//   disk.submit(request, now);   ...   disk.advance(disk.next_event(), &completions);
//
// Order of service: the highest priority with waiting requests; within it, the model's order (elevator or
// arrival). Requests submitted at the same time are ordered together: service begins when time advances. A
// sync completes when all earlier writes and discards are served; it delays no other request. Requests that
// overlap are served in any order: a caller that needs an order waits for the first to complete.
//
// Threads: one at a time. Limits: model.slots waiting requests, and as many syncs; submit refuses more. Time
// never goes back (asserted). Errors: std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "io/disk_model.h"

namespace swale::io {

enum class DiskPriority : uint8_t { kUrgent, kNormal, kBackground };
inline constexpr size_t kDiskPriorities = 3;

struct DiskRequest {
  enum class Kind : uint8_t { kRead, kWrite, kSync, kDiscard };
  Kind kind = Kind::kRead;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  DiskPriority priority = DiskPriority::kNormal;
  uint64_t tag = 0;  // the caller's, comes back with the completion
};

struct DiskCompletion {
  uint64_t tag = 0;
  Nanos at = 0;
};

// What a disk has done since it was created.
struct DiskUse {
  Nanos busy = 0;       // time in which at least one request was in service
  uint64_t served = 0;  // requests after merging, without syncs
  uint64_t seeks = 0;   // served requests that did not begin where the previous one ended
  uint64_t merged = 0;  // requests that joined another one
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
};

class VirtualDisk {
 public:
  explicit VirtualDisk(const DiskModel& model) : model_(model) {}

  // False: all slots are taken and the request merges with none of them; nothing has changed. Submit it again
  // after the next event.
  bool submit(const DiskRequest& request, Nanos now);

  // The time of the next event: call advance no later. kForever: the disk is idle.
  Nanos next_event();

  // Advances the time to `now`, and appends the requests that have completed by then, in order of time.
  void advance(Nanos now, std::vector<DiskCompletion>* out);

  const DiskModel& model() const { return model_; }
  const DiskUse& use() const { return use_; }
  uint64_t head() const { return head_; }  // where the request that was started last ends
  size_t waiting() const;                  // slots that are taken
  bool would_merge(const DiskRequest& request) const;
  // Nothing is waiting, in service or completed but not yet returned.
  bool idle() const;

 private:
  struct Member {
    uint64_t tag = 0;
    uint64_t sequence = 0;
    bool told = false;  // its completion was returned already
  };
  struct Slot {
    DiskRequest::Kind kind = DiskRequest::Kind::kRead;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Nanos since = 0;
    std::vector<Member> members;
    uint64_t end() const { return offset + bytes; }
  };
  using Key = std::pair<uint64_t, uint64_t>;  // elevator: offset, sequence; arrival: sequence, 0
  using Slots = std::map<Key, Slot>;
  struct Running {
    Slot slot;
    Nanos done = 0;
  };
  struct Sync {
    uint64_t tag = 0;
    uint64_t sequence = 0;
    Nanos done = kForever;  // kForever: earlier writes are not served yet
  };

  bool changes_data(DiskRequest::Kind kind) const {
    return kind == DiskRequest::Kind::kWrite || kind == DiskRequest::Kind::kDiscard;
  }
  bool fits(const Slot& slot, const DiskRequest& request) const;
  Slots::iterator slot_before(const DiskRequest& request);
  Slots::iterator slot_after(const DiskRequest& request);
  bool merge(const DiskRequest& request, const Member& member);
  bool submit_sync(const DiskRequest& request);
  void run_until(Nanos now);
  void start_waiting();
  Slot take_next();
  Slots::iterator overdue(Slots** slots);
  void start(Slot slot);
  void finish(const Running& running);
  void start_syncs();

  const DiskModel model_;
  Nanos now_ = 0;
  uint64_t sequence_ = 0;
  std::array<Slots, kDiskPriorities> waiting_;
  std::vector<Running> running_;  // in order of their completion
  std::vector<Sync> syncs_;       // in order of arrival
  std::set<uint64_t> unserved_;   // sequence numbers of writes and discards
  std::vector<DiskCompletion> done_;
  uint64_t head_ = 0;
  Nanos bus_free_ = 0;
  DiskUse use_;
};

}  // namespace swale::io
