// Ops: the writes, truncates and unlinks that an engine has begun and not finished.
//
// Invariants: (1) each is answered once; (2) it counts in an epoch of its file, and in one of the engine,
// from its begin until it is finished or told of its failure; (3) its index is not given again while a read
// uses its buffer.
// Threads: one at a time.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "tier/engine/epochs.h"
#include "tier/engine/extent_map.h"
#include "tier/engine/files.h"
#include "tier/engine/outbox.h"

namespace swale::tier {

struct Op {
  enum class Kind : uint8_t { kWrite, kTruncate, kUnlink };
  enum class Stage : uint8_t {
    kFree,
    kBlocked,      // by an overlapping op before it
    kLogWait,      // for space in the log
    kAppending,    //
    kSlotWait,     // for a slot of the elevator
    kQueued,       // in the elevator, or being written
    kSyncWait,     // for the sync that makes it durable
    kAbandonWait,  // for the failed log to be abandoned
    kLossWait,     // for the list of losses without its range to be durable
    kBarrier,      // truncate, unlink: see Step
    kPinned,       // finished; a read still uses its buffer
  };
  // Of a barrier. A truncate that recovery repeats ends with the erasure of its intent, any other with a
  // record, which says whether the backing file was cut; if the log fails, with its abandonment.
  enum class Step : uint8_t {
    kSpace,
    kQuiesce,
    kIntent,
    kIntentSync,
    kBacking,
    kBackingSync,
    kRefused,  // the backing device has refused the cut's sync, or a repeated cut; told, and tried again
    kEnd,
    kEndSync,
    kErasure,
    kAbandonment
  };
  Kind kind = Kind::kWrite;
  Stage stage = Stage::kFree;
  Step step = Step::kSpace;
  bool stream_to_ssd = false;  // what the detector says of its stream
  bool acknowledged = false;
  bool needs_record = false;             // truncate: something of the log lies behind the new end
  bool repeated = false;                 // truncate: by recovery
  bool told = false;                     // truncate: of its failure, and goes on
  bool cancelled = false;                // truncate: its last record takes the intent back
  bool over_loss = false;                // without a log, over a range that is lost
  uint32_t held_segment = ~uint32_t{0};  // truncate: has the intent, and is not erased before the end
  FileIndex file = 0;
  uint32_t length = 0;
  Code failure = Code::kOk;  // truncate: what is answered in the end
  uint64_t offset = 0;       // truncate: the new size
  ExtentMap::Position at;    // write: where its range stands in the map, as a hint
  Ticket ticket = 0;
  uint64_t address = 0;
  uint32_t segment = 0;        // of the address
  uint64_t sequence = 0;       // of its record; of a truncate: of the intent
  uint64_t last_sequence = 0;  // truncate: of its last record
  uint32_t file_epoch = 0;
  uint32_t epoch = 0;
  uint32_t pins = 0;
  OpIndex next_free = kNoOp;  // of one that is free

  bool is_write() const { return kind == Kind::kWrite; }
  uint64_t end() const { return offset + length; }  // of a write
};

class Ops {
 public:
  Ops(Files* files, Outbox* outbox) : files_(files), outbox_(outbox) {}

  OpIndex make(Op::Kind kind, Ticket ticket, FileIndex file);
  // It is answered, if it was not before, and nothing of it is under way.
  void finish(OpIndex index, Code code);
  // It was answered before, and no read uses its buffer any more.
  void release(OpIndex index);
  // The same without a word to the driver.
  void free(OpIndex index);
  // Ends what a sync waits for, before the op itself ends: whoever asked for it was told of its failure.
  void leave_epochs(const Op& op) {
    (*files_)[op.file].epochs.leave(op.file_epoch);
    epochs_.leave(op.epoch);
  }

  Op& operator[](OpIndex index) {
    assert(index < ops_.size());
    return ops_[index];
  }
  const Op& operator[](OpIndex index) const {
    assert(index < ops_.size());
    return ops_[index];
  }
  Epochs& epochs() { return epochs_; }
  size_t count() const { return count_; }

 private:
  Files* files_;
  Outbox* outbox_;
  std::vector<Op> ops_;
  const Op new_op_ = {};  // to be copied: clearing takes gcc a loop
  OpIndex first_free_ = kNoOp;
  size_t count_ = 0;
  Epochs epochs_;
};

}  // namespace swale::tier
