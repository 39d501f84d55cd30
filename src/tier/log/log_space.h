// LogSpace: the segments of the SSD log: where the next record goes, and which segment may be erased when.
//
//   free ─► active ─► sealed ─► backing sync ─► log sync ─► erasing ─► sync of the erasure ─► free
//
// A sealed segment leaves that state once none of its bytes is dirty, no append and no read of it is under
// way, and no live segment is shielded by it: a record may make older ones void, so its segment is erased
// after theirs.
//
// Invariants: (1) at most one segment is active; (2) dirty_bytes of a segment counts its bytes in the maps
// that are not clean; (3) a segment's ordinal is higher than that of all segments that were activated before
// it.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tier/policy/options.h"

namespace swale::tier {

struct Segment {
  enum class State : uint8_t { kFree, kActive, kSealed, kBackingSync, kLogSync, kErasing, kErasureSync };
  State state = State::kFree;
  uint32_t generation = 0;
  uint64_t used_bytes = 0;  // from its begin, header included
  uint64_t dirty_bytes = 0;
  uint32_t appending = 0;         // space that is reserved and not written yet
  uint32_t pins = 0;              // reads of it
  uint64_t ordinal = 0;           // order of activation
  uint64_t shields_from = ~0ull;  // the lowest ordinal of a segment that its records make records of void
  uint64_t sync_number = 0;       // the sync that it waits for
  bool durable = false;           // sealed, and the backing device has all of it, synced
  Nanos first_write = 0;
  Nanos last_write = 0;

  // Where its records begin, in units of kRecordUnit from the begin of the segment: rising. 4 bytes a record,
  // so that a part of one finds its checksums.
  std::vector<uint32_t> records;
  // Of `records`: marks, which hold nothing, and places where nothing was found.
  std::vector<uint32_t> unsealed;

  bool live() const { return state != State::kFree; }
};

inline constexpr uint64_t kRecordUnit = 64;  // the least alignment

// Where a record stands.
struct RecordPlace {
  uint64_t address = 0;
  uint64_t bytes = 0;  // up to the next one
};

class LogSpace {
 public:
  explicit LogSpace(const Options& options);

  // Space for `bytes` (a multiple of the alignment) in the active segment, or in the next free one; counts as
  // an append. A segment that has no space for it is sealed. None: all segments are in use.
  std::optional<uint64_t> reserve(uint64_t bytes, Nanos now);
  // Seals the active segment, if it holds anything. Also when less than `bytes` are left in it.
  void seal_active();
  void seal_if_full(uint64_t bytes);
  // Whether no segment is active or free: no reservation succeeds.
  bool exhausted() const { return active_ == kNone && free_count_ == 0; }
  // Whether the active segment has space for so many bytes.
  bool fits(uint64_t bytes) const {
    return active_ != kNone && segments_[active_].used_bytes + bytes <= usable_bytes_;
  }

  // The recovered queue may be longer than a segment; it is the last one.
  uint32_t segment_of(uint64_t address) const {
    // A division costs more than a multiplication and a look at the remainder; addresses are exact as
    // doubles.
    const auto at = static_cast<int64_t>(address);  // conversions of signed numbers cost a fifth
    auto segment = static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(at) * per_segment_));
    if (segment * segment_bytes_ > address) --segment;
    if (address - segment * segment_bytes_ >= segment_bytes_) ++segment;
    return segment < count_ ? static_cast<uint32_t>(segment) : count_ - 1;
  }
  // The record that has the byte at `address`.
  RecordPlace record_of(uint64_t address) const { return record_of(segment_of(address), address); }
  RecordPlace record_of(uint32_t segment, uint64_t address) const;
  size_t index_bytes() const;  // memory
  // Whether a segment was sealed since forget_sealed().
  bool sealed() const { return sealed_; }
  void forget_sealed() { sealed_ = false; }
  uint64_t begin_of(uint32_t segment) const { return segment * segment_bytes_; }
  Segment& at(uint32_t segment) { return segments_[segment]; }
  const Segment& at(uint32_t segment) const { return segments_[segment]; }
  uint32_t count() const { return count_; }
  uint32_t active() const { return active_; }  // kNone: none
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint64_t ordinal() const { return ordinal_; }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t dirty_bytes() const { return dirty_bytes_; }

  void add_dirty(uint32_t segment, uint64_t bytes) {
    segments_[segment].dirty_bytes += bytes;
    dirty_bytes_ += bytes;
  }
  void remove_dirty(uint32_t segment, uint64_t bytes) {
    segments_[segment].dirty_bytes -= bytes;
    dirty_bytes_ -= bytes;
  }
  void shield(uint32_t segment, uint32_t older);
  // Whether no live segment is shielded by this one.
  bool may_go_before_others(uint32_t segment) const;
  void freed(uint32_t segment);

  // Recovery: a segment that holds records, and the one that stands for the recovered queue. Then their
  // records, in the order of their addresses.
  void restore(uint32_t segment, uint32_t generation, uint64_t used_bytes, bool live);
  uint32_t add_recovered_queue();
  void restore_record(uint32_t segment, uint64_t address);
  // The record that was reserved or restored last in the segment is no loss if it is gone.
  void leave_unsealed(uint32_t segment) {
    segments_[segment].unsealed.push_back(segments_[segment].records.back());
  }
  // Where the other records of a segment begin, in units of kRecordUnit from its begin: rising.
  std::vector<uint32_t> sealed_records(uint32_t segment) const;
  void order(uint32_t segment) { segments_[segment].ordinal = ++ordinal_; }

 private:
  void index_record(uint32_t segment, uint64_t address);

  const uint64_t segment_bytes_;
  const double per_segment_;
  const uint64_t usable_bytes_;  // without the second copy of the header
  const uint32_t alignment_;
  const uint64_t capacity_bytes_;
  std::vector<Segment> segments_;
  uint32_t active_ = kNone;
  uint32_t count_;
  uint32_t real_count_;  // without the one of the recovered queue
  uint32_t free_count_;
  bool sealed_ = false;
  uint64_t ordinal_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t dirty_bytes_ = 0;
};

}  // namespace swale::tier
