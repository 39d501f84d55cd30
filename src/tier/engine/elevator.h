// Elevator: the engine's own queue to the backing device: merged slots, served in one direction (C-SCAN).
//
// The engine must own this queue, because back-pressure is a question to it: does this write merge, is there
// a free slot, where is the head, how long is the gap before the next slot?
//
// Invariants: (1) waiting slots do not overlap; (2) a slot is one contiguous range of one file; its pieces
// are in file order and cover it.
// Threads: one at a time. Slots are reused; a slot's pieces stay valid until release().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tier/policy/options.h"

namespace swale::tier {

using SlotIndex = uint32_t;
inline constexpr SlotIndex kNoSlot = ~SlotIndex{0};

// Where bytes of a write to the backing device come from.
struct Piece {
  enum class Source : uint8_t { kRequest, kLog };
  Source source = Source::kRequest;
  uint32_t length = 0;
  uint64_t offset = 0;   // in the file
  uint64_t address = 0;  // in the log, if from there
  Ticket ticket = 0;     // of the request, if from there
  uint32_t op = 0;       // the engine's: which request, or which buffer the log's bytes were read into
};

struct Slot {
  FileIndex file = 0;
  uint64_t position = 0;  // on the backing device, as far as we know: the file's base + offset
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t direct_count = 0;  // pieces that are writers' requests
  bool passing = false;       // does not count as one of the slots: it is written on the way
  std::vector<Piece> pieces;
};

// A driver has an operation for each piece.
inline constexpr size_t kSlotPiecesMax = 32;

class Elevator {
 public:
  Elevator(uint32_t slots, uint64_t merge_bytes_max) : slots_max_(slots), merge_bytes_max_(merge_bytes_max) {}

  // Appends to a slot that ends, or prepends to one that begins, where the piece does. False: there is none.
  bool merge(FileIndex file, uint64_t position, const Piece& piece);
  bool full() const { return depth() >= slots_max_; }
  bool would_merge(FileIndex file, uint64_t position, uint64_t offset, uint32_t length) const;
  // full() is allowed: the caller decides. Passing: what lies in a gap that the head crosses next (gap
  // filling).
  void add(FileIndex file, uint64_t position, const Piece& piece, bool passing = false);

  // Puts `piece` in the place of another piece of the same range that waits. False: none does.
  bool replace(FileIndex file, uint64_t position, const Piece& piece);

  bool empty() const { return waiting_.empty(); }
  size_t depth() const { return waiting_.size() - passing_; }  // slots that count
  uint32_t slots_max() const { return slots_max_; }

  // The slot that comes next: the first at or after the head, or else the first of all.
  SlotIndex next() const;
  // Takes a waiting slot out; the head moves to its end.
  void take(SlotIndex slot);
  // Takes a waiting slot out as if it had never been added: the head stays where it is.
  void withdraw(SlotIndex slot);
  void release(SlotIndex slot);
  // The slots that wait, in order of position: any change makes the indices invalid.
  size_t waiting() const { return waiting_.size(); }
  SlotIndex waiting_at(size_t i) const { return waiting_[i].slot; }
  // The waiting slot that has the byte at `position`; kNoSlot: none has.
  SlotIndex waiting_with(FileIndex file, uint64_t position) const;

  uint64_t head() const { return head_; }
  // Rises whenever slots change: what was refused is refused again until then.
  uint64_t changes() const { return changes_; }
  const Slot& slot(SlotIndex index) const { return *slots_[index]; }

 private:
  struct Waiting {
    uint64_t position;
    SlotIndex slot;
  };

  void erase(SlotIndex slot, size_t guess);
  size_t after(uint64_t position) const;  // the index of the first slot behind the position
  SlotIndex make_slot(FileIndex file, uint64_t position, const Piece& piece);

  uint32_t slots_max_;
  uint64_t merge_bytes_max_;
  uint64_t head_ = 0;
  uint64_t changes_ = 0;
  size_t passing_ = 0;            // of those that wait
  std::vector<Waiting> waiting_;  // by position
  // What the last searches found: the same place is asked for several times, and the head moves to the next
  // slot.
  mutable size_t after_ = 0;
  mutable size_t next_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;  // references stay valid
  std::vector<SlotIndex> free_;
};

}  // namespace swale::tier
