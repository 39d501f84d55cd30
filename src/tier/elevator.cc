#include "tier/elevator.h"

#include <algorithm>
#include <cassert>

namespace swale::tier {

std::vector<Elevator::Waiting>::const_iterator Elevator::after(uint64_t position) const {
  return std::upper_bound(waiting_.begin(), waiting_.end(), position,
                          [](uint64_t value, const Waiting& waiting) { return value < waiting.position; });
}

bool Elevator::merge(FileIndex file, uint64_t position, const Piece& piece) {
  const auto next = after(position);
  if (next != waiting_.begin()) {
    Slot& before = slots_[(next - 1)->slot];
    if (before.file == file && before.offset + before.length == piece.offset &&
        before.length + piece.length <= merge_bytes_max_ && before.pieces.size() < kSlotPiecesMax) {
      before.pieces.push_back(piece);
      before.length += piece.length;
      before.direct_count += piece.source == Piece::Source::kRequest;
      return true;
    }
  }
  if (next == waiting_.end()) return false;
  Slot& behind = slots_[next->slot];
  if (behind.file != file || behind.offset != piece.offset + piece.length ||
      behind.length + piece.length > merge_bytes_max_ || behind.pieces.size() >= kSlotPiecesMax)
    return false;
  behind.pieces.insert(behind.pieces.begin(), piece);
  behind.offset = piece.offset;
  behind.length += piece.length;
  behind.position = position;
  behind.direct_count += piece.source == Piece::Source::kRequest;
  waiting_[static_cast<size_t>(next - waiting_.begin())].position = position;
  return true;
}

bool Elevator::would_merge(FileIndex file, uint64_t position, uint64_t offset, uint32_t length) const {
  const auto next = after(position);
  const auto fits = [&](const Slot& slot) {
    return slot.file == file && slot.length + length <= merge_bytes_max_ &&
           slot.pieces.size() < kSlotPiecesMax;
  };
  if (next != waiting_.begin()) {
    const Slot& before = slots_[(next - 1)->slot];
    if (fits(before) && before.offset + before.length == offset) return true;
  }
  return next != waiting_.end() && fits(slots_[next->slot]) && slots_[next->slot].offset == offset + length;
}

SlotIndex Elevator::make_slot(FileIndex file, uint64_t position, const Piece& piece) {
  if (free_.empty()) {
    free_.push_back(static_cast<SlotIndex>(slots_.size()));
    slots_.emplace_back();
  }
  const SlotIndex index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.file = file;
  slot.position = position;
  slot.offset = piece.offset;
  slot.length = piece.length;
  slot.direct_count = piece.source == Piece::Source::kRequest;
  slot.pieces.assign(1, piece);
  return index;
}

void Elevator::add(FileIndex file, uint64_t position, const Piece& piece, bool passing) {
  const SlotIndex index = make_slot(file, position, piece);
  slots_[index].passing = passing;
  passing_ += passing;
  waiting_.insert(after(position), {position, index});
}

SlotIndex Elevator::next() const {
  if (waiting_.empty()) return kNoSlot;
  const auto at =
      std::lower_bound(waiting_.begin(), waiting_.end(), head_,
                       [](const Waiting& waiting, uint64_t value) { return waiting.position < value; });
  return at == waiting_.end() ? waiting_.front().slot : at->slot;
}

void Elevator::take(SlotIndex index) {
  auto at = std::lower_bound(waiting_.begin(), waiting_.end(), slots_[index].position,
                             [](const Waiting& waiting, uint64_t value) { return waiting.position < value; });
  while (at != waiting_.end() && at->slot != index) ++at;
  assert(at != waiting_.end());
  waiting_.erase(at);
  passing_ -= slots_[index].passing;
  head_ = slots_[index].position + slots_[index].length;
}

void Elevator::release(SlotIndex index) {
  slots_[index].pieces.clear();
  free_.push_back(index);
}

}  // namespace swale::tier
