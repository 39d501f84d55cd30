// What a node and the root of a file say to each other about locks (docs/design/node-files.md, "Locks").
//
//   kSet     lock, or unlock; `waits`: until others have unlocked
//   kEnd     all of an owner: of fcntl and OFD; `waits`: and of flock
//   kVoid    the kSet of this number is given up, whether it has come or not: its range is not locked
//   kGet     what is in the way
//   kLook    whether the kSet of this number still waits
//   kCancel  the kSet of number `target` is to wait no more
//
//   message := op u8, node u32, number u64, floor u64, target u64, file u64 u64, lock, waits u8
//   lock    := kind u8, type u8, begin u64, end u64, owner u64, pid u32
//   answer  := outcome u8, node u32, lock
//
// Numbers of a node ascend. `floor`: the node waits for no answer to a smaller number. The root obeys each
// number once (but for kGet and kLook, which change nothing), and none below the floor: copies that come late
// or twice do nothing, and get the same answer.
// A node that is told kWaits hears of the grant by a message (PeerMethod::kLockGranted), or when it looks:
// the root drops no wait but for a grant, kVoid, kCancel, or the end of the node.
//
// Errors: decoding foreign bytes gives kCorruption.
// Threads: plain values.
#pragma once

#include <string>

#include "fs/locks/lock_table.h"

namespace swale::fs {

enum class LockOp : uint8_t { kSet = 1, kEnd, kVoid, kGet, kLook, kCancel };

struct LockMessage {
  LockOp op = LockOp::kSet;
  uint64_t number = 0;
  uint64_t floor = 0;
  uint64_t target = 0;
  meta::FileId file = {};
  OwnedLock wanted = {};
  bool waits = false;
  friend bool operator==(const LockMessage&, const LockMessage&) = default;
};

enum class LockOutcome : uint8_t {
  kDone = 1,   // kLook, kCancel: it does not wait, so it has been granted
  kWaits,      // kSet, kLook
  kTaken,      // kSet, kGet: `found` is in the way
  kDeadlock,   // kSet
  kTooMany,    // kSet
  kCancelled,  // kCancel
  kLate,       // the root has heard that nobody waits for an answer
};

struct LockAnswer {
  LockOutcome outcome = LockOutcome::kDone;
  OwnedLock found = {};
  friend bool operator==(const LockAnswer&, const LockAnswer&) = default;
};

std::string encode(const LockMessage& message);
Result<LockMessage> decode_lock_message(Bytes bytes);
std::string encode(const LockAnswer& answer);
Result<LockAnswer> decode_lock_answer(Bytes bytes);

}  // namespace swale::fs
