#include "tier/engine/elevator.h"

#include <algorithm>

#include "base/bits.h"

namespace swale::tier {

size_t Elevator::after(uint64_t position) const {
  const size_t last = after_;
  const bool same = last <= waiting_.size() && (last == 0 || waiting_[last - 1].position <= position) &&
                    (last == waiting_.size() || waiting_[last].position > position);
  if (same) return last;
  const Waiting* const waiting = waiting_.data();
  size_t found = 0;
  for (size_t left = waiting_.size(); left > 0;) {
    const size_t half = (left + 1) / 2;
    found = choose(waiting[found + half - 1].position <= position, found + half, found);
    left -= half;
  }
  return after_ = found;
}

bool Elevator::merge(FileIndex file, uint64_t position, const Piece& piece) {
  const size_t next = after(position);
  if (next > 0) {
    Slot& before = *slots_[waiting_[next - 1].slot];
    if (before.file == file && before.offset + before.length == piece.offset &&
        before.length + piece.length <= merge_bytes_max_ && before.pieces.size() < kSlotPiecesMax) {
      ++changes_;
      before.pieces.push_back(piece);
      before.length += piece.length;
      before.direct_count += piece.source == Piece::Source::kRequest;
      return true;
    }
  }
  if (next == waiting_.size()) return false;
  Slot& behind = *slots_[waiting_[next].slot];
  if (behind.file != file || behind.offset != piece.offset + piece.length ||
      behind.length + piece.length > merge_bytes_max_ || behind.pieces.size() >= kSlotPiecesMax)
    return false;
  ++changes_;
  behind.pieces.insert(behind.pieces.begin(), piece);
  behind.offset = piece.offset;
  behind.length += piece.length;
  behind.position = position;
  behind.direct_count += piece.source == Piece::Source::kRequest;
  waiting_[next].position = position;
  return true;
}

bool Elevator::would_merge(FileIndex file, uint64_t position, uint64_t offset, uint32_t length) const {
  const size_t next = after(position);
  const auto fits = [&](const Slot& slot) {
    return slot.file == file && slot.length + length <= merge_bytes_max_ &&
           slot.pieces.size() < kSlotPiecesMax;
  };
  if (next > 0) {
    const Slot& before = *slots_[waiting_[next - 1].slot];
    if (fits(before) && before.offset + before.length == offset) return true;
  }
  if (next == waiting_.size()) return false;
  const Slot& behind = *slots_[waiting_[next].slot];
  return fits(behind) && behind.offset == offset + length;
}

SlotIndex Elevator::make_slot(FileIndex file, uint64_t position, const Piece& piece) {
  if (free_.empty()) {
    free_.push_back(static_cast<SlotIndex>(slots_.size()));
    slots_.push_back(std::make_unique<Slot>());
  }
  const SlotIndex index = free_.back();
  free_.pop_back();
  Slot& slot = *slots_[index];
  slot.file = file;
  slot.position = position;
  slot.offset = piece.offset;
  slot.length = piece.length;
  slot.direct_count = piece.source == Piece::Source::kRequest;
  slot.pieces.push_back(piece);  // release() has left none
  return index;
}

void Elevator::add(FileIndex file, uint64_t position, const Piece& piece, bool passing) {
  const SlotIndex index = make_slot(file, position, piece);
  slots_[index]->passing = passing;
  passing_ += passing;
  ++changes_;
  waiting_.insert(waiting_.begin() + static_cast<ptrdiff_t>(after(position)), {position, index});
}

SlotIndex Elevator::next() const {
  if (waiting_.empty()) return kNoSlot;
  const size_t last = next_;
  const bool same = last < waiting_.size() && waiting_[last].position >= head_ &&
                    (last == 0 || waiting_[last - 1].position < head_);
  if (!same) {
    const auto at =
        std::lower_bound(waiting_.begin(), waiting_.end(), head_,
                         [](const Waiting& waiting, uint64_t value) { return waiting.position < value; });
    next_ = at == waiting_.end() ? 0 : static_cast<size_t>(at - waiting_.begin());
  }
  return waiting_[next_].slot;
}

void Elevator::erase(SlotIndex index, size_t at) {
  if (at >= waiting_.size() || waiting_[at].slot != index)
    for (at = 0; waiting_[at].slot != index;) ++at;
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(at));
  passing_ -= slots_[index]->passing;
  ++changes_;
}

void Elevator::take(SlotIndex index) {
  erase(index, next_);
  head_ = slots_[index]->position + slots_[index]->length;
}

void Elevator::withdraw(SlotIndex index) {
  const size_t behind = after(slots_[index]->position);
  erase(index, behind == 0 ? 0 : behind - 1);
}

SlotIndex Elevator::waiting_with(FileIndex file, uint64_t position) const {
  const size_t behind = after(position);
  if (behind == 0) return kNoSlot;
  const SlotIndex index = waiting_[behind - 1].slot;
  const Slot& slot = *slots_[index];
  return slot.file == file && position < slot.position + slot.length ? index : kNoSlot;
}

bool Elevator::replace(FileIndex file, uint64_t position, const Piece& piece) {
  const SlotIndex index = waiting_with(file, position);
  if (index == kNoSlot) return false;
  for (Piece& old : slots_[index]->pieces) {
    if (old.offset != piece.offset || old.length != piece.length || old.source != piece.source) continue;
    old = piece;
    return true;
  }
  return false;
}

void Elevator::release(SlotIndex index) {
  slots_[index]->pieces.clear();
  free_.push_back(index);
}

}  // namespace swale::tier
