// SyncRequests: syncs of files and drains, which wait for what came before them (docs/design/tier.md, "What a
// sync waits for").
//
//   writes that came before ─► the log: a sync (file), or everything flushed (drain) ─► the backing device
//
// Invariants: (1) a request waits for nothing that came after it; (2) a failure of an acknowledged write is
// told by one sync.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "tier/engine/barriers.h"
#include "tier/engine/costs.h"
#include "tier/engine/log_records.h"
#include "tier/engine/redirector.h"
#include "tier/engine/shared.h"
#include "tier/engine/syncs.h"

namespace swale::tier {

class SyncRequests {
 public:
  SyncRequests(Shared* shared, LogRecords* records, Syncs* syncs, Costs* costs, Redirector* redirector,
               const Barriers* barriers)
      : shared_(*shared),
        records_(*records),
        syncs_(*syncs),
        costs_(*costs),
        redirector_(*redirector),
        barriers_(*barriers) {}

  void sync(Ticket ticket, FileIndex file, const Redirector::Awaited& awaited);
  void drain(Ticket ticket);
  // Answers those that are over. Returns whether there were any.
  bool advance();

  bool any() const { return !pending_.empty(); }
  bool any_of(FileIndex file) const;
  size_t count() const { return pending_.size(); }
  uint32_t drains() const { return drains_; }

 private:
  struct Pending {
    enum class Stage : uint8_t { kWrites, kLog, kBacking };
    Ticket ticket = 0;
    FileIndex file = kNoFile;  // kNoFile: a drain
    uint32_t epoch = 0;
    uint64_t ordinal = 0;  // drain: of the youngest segment that it covers
    Stage stage = Stage::kWrites;
    uint64_t number = 0;               // of the sync that it waits for; kLog of a file: of the log
    uint64_t errors = 0;               // drain: flush errors when it began
    uint64_t file_number = 0;          // of a file: the sync of the file alone that it waits for
    Nanos began = 0;                   // of a file: when it was asked for
    Redirector::Awaited awaited = {};  // of a file
    bool logged = false;               // of a file: it waits for a sync of the log

    bool is_drain() const { return file == kNoFile; }
  };
  // Whether it is over, and its result.
  bool advance_file(Pending* pending, Code* result);
  bool advance_drain(Pending* pending, Code* result);
  void answer(const Pending& done, Code result);

  Shared& shared_;
  LogRecords& records_;
  Syncs& syncs_;
  Costs& costs_;
  Redirector& redirector_;
  const Barriers& barriers_;
  std::vector<Pending> pending_;
  uint32_t drains_ = 0;
};

}  // namespace swale::tier
