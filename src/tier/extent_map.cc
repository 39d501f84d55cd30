#include "tier/extent_map.h"

#include <algorithm>
#include <cstring>

namespace swale::tier {

// Two searches without branches that a processor would have to guess.
ExtentMap::Position ExtentMap::locate(uint64_t offset) const {
  if (leaves_.empty()) return {0, 0};
  const Leaf* leaf = leaves_.data();
  for (size_t left = leaves_.size(); left > 1;) {
    const size_t half = left / 2;
    leaf = leaf[half].first <= offset ? leaf + half : leaf;
    left -= half;
  }
  return locate_in(static_cast<uint32_t>(leaf - leaves_.data()), offset);
}

// In the last leaf that begins at or before the offset, or in the first of all.
ExtentMap::Position ExtentMap::locate_in(uint32_t index, uint64_t offset) const {
  const Leaf& leaf = leaves_[index];
  // The last extent that begins at or before the offset; extents do not overlap, so the one after it is the answer if this
  // one ends too early.
  const Packed* const first = leaf.data.get();
  const Packed* extent = first;
  const uint64_t last_place = Packed::last_place(offset);
  for (size_t left = leaf.count; left > 1;) {
    const size_t half = left / 2;
    extent = extent[half].place <= last_place ? extent + half : extent;
    left -= half;
  }
  const auto slot = static_cast<uint32_t>(extent - first) + (extent->end() <= offset);
  return slot < leaf.count ? Position{index, slot} : Position{index + 1, 0};
}

// A request asks for the same place several times: before and after its append, and before and after its flush. Few
// insertions happen meanwhile, and most of them in other leaves.
ExtentMap::Position ExtentMap::locate(uint64_t offset, Position hint) const {
  if (hint.leaf >= leaves_.size() || leaves_[hint.leaf].first > offset) return locate(offset);
  const Leaf& leaf = leaves_[hint.leaf];
  if (hint.leaf + 1 < leaves_.size() && leaves_[hint.leaf + 1].first <= offset) return locate(offset);
  uint32_t slot = hint.slot < leaf.count ? hint.slot : leaf.count - 1;
  const Packed* const data = leaf.data.get();
  if (data[slot].end() <= offset) {  // the one before it
    ++slot;
    if (slot == leaf.count) return {hint.leaf + 1, 0};
    if (data[slot].end() > offset) return {hint.leaf, slot};
  } else if (slot == 0 || data[slot - 1].end() <= offset) {
    return {hint.leaf, slot};
  }
  return locate_in(hint.leaf, offset);
}

ExtentMap::Position ExtentMap::next(Position at) const {
  return at.slot + 1 < leaves_[at.leaf].count ? Position{at.leaf, at.slot + 1} : Position{at.leaf + 1, 0};
}

void ExtentMap::insert(const Extent& extent) { insert_before(locate(extent.offset), extent); }

void ExtentMap::insert_before(Position at, const Extent& extent) {
  assert(!valid(at) || get(at).offset >= extent.end());
  // Before the first extent of a leaf is the same as after the last one of the leaf before: files grow at the end.
  if (at.slot == 0 && at.leaf > 0) at = {at.leaf - 1, leaves_[at.leaf - 1].count};
  insert_at(at, extent);
}

void ExtentMap::insert_at(Position at, const Extent& extent) {
  at = make_space(at);
  Leaf& leaf = leaves_[at.leaf];
  Packed* const place = leaf.data.get() + at.slot;
  std::memmove(place + 1, place, (leaf.count - at.slot) * sizeof(Packed));
  *place = Packed::pack(extent);
  ++leaf.count;
  ++size_;
  leaf.first = leaf.data[0].offset();
}

// A position in a leaf that has space, for an extent that belongs to `at`.
ExtentMap::Position ExtentMap::make_space(Position at) {
  if (leaves_.empty()) {
    leaves_.push_back({0, std::make_unique<Packed[]>(4), 0, 4});
    return {0, 0};
  }
  Leaf& leaf = leaves_[at.leaf];
  if (leaf.count < leaf.capacity) return at;
  if (leaf.capacity < kLeafExtents) {
    grow(&leaf);
    return at;
  }
  const bool at_end = at.leaf + 1 == leaves_.size() && at.slot == leaf.count;
  if (at_end) {  // a file that grows leaves full leaves behind
    leaves_.push_back({0, std::make_unique<Packed[]>(kLeafExtents), 0, kLeafExtents});
    return {at.leaf + 1, 0};
  }
  const uint64_t before = at.slot > 0 ? leaf.data[at.slot - 1].offset() : 0;
  const bool first = at.slot == 0;
  if (!shift_to_neighbour(at.leaf)) split(at.leaf, kLeafExtents / 2);
  if (first) return {at.leaf, 0};
  const Position left = locate(before);
  return {left.leaf, left.slot + 1};
}

void ExtentMap::grow(Leaf* leaf) {
  const uint32_t capacity = std::min(kLeafExtents, leaf->capacity * 2);
  auto data = std::make_unique<Packed[]>(capacity);
  std::memcpy(data.get(), leaf->data.get(), leaf->count * sizeof(Packed));
  leaf->data = std::move(data);
  leaf->capacity = capacity;
}

// Gives extents of a full leaf to the next one, or to the one before, if it is at most three quarters full.
bool ExtentMap::shift_to_neighbour(size_t index) {
  Leaf& leaf = leaves_[index];
  const auto has_space = [](const Leaf& other) {
    return other.capacity == kLeafExtents && other.count <= kLeafExtents * 3 / 4;
  };
  if (index + 1 < leaves_.size() && has_space(leaves_[index + 1])) {
    Leaf& right = leaves_[index + 1];
    const uint32_t moved = (leaf.count - right.count) / 2;
    std::memmove(right.data.get() + moved, right.data.get(), right.count * sizeof(Packed));
    std::memcpy(right.data.get(), leaf.data.get() + (leaf.count - moved), moved * sizeof(Packed));
    right.count += moved;
    leaf.count -= moved;
    right.first = right.data[0].offset();
    return true;
  }
  if (index > 0 && has_space(leaves_[index - 1])) {
    Leaf& left = leaves_[index - 1];
    const uint32_t moved = (leaf.count - left.count) / 2;
    std::memcpy(left.data.get() + left.count, leaf.data.get(), moved * sizeof(Packed));
    std::memmove(leaf.data.get(), leaf.data.get() + moved, (leaf.count - moved) * sizeof(Packed));
    left.count += moved;
    leaf.count -= moved;
    leaf.first = leaf.data[0].offset();
    return true;
  }
  return false;
}

void ExtentMap::split(size_t index, uint32_t keep) {
  Leaf right{0, std::make_unique<Packed[]>(kLeafExtents), 0, kLeafExtents};
  const Leaf& left = leaves_[index];
  right.count = left.count - keep;
  std::memcpy(right.data.get(), left.data.get() + keep, right.count * sizeof(Packed));
  right.first = right.data[0].offset();
  leaves_.insert(leaves_.begin() + static_cast<ptrdiff_t>(index) + 1, std::move(right));
  leaves_[index].count = keep;
}

ExtentMap::Position ExtentMap::erase_at(Position at) {
  Leaf& leaf = leaves_[at.leaf];
  Packed* const place = leaf.data.get() + at.slot;
  std::memmove(place, place + 1, (leaf.count - at.slot - 1) * sizeof(Packed));
  --leaf.count;
  --size_;
  if (leaf.count == 0) {
    leaves_.erase(leaves_.begin() + static_cast<ptrdiff_t>(at.leaf));
    return {at.leaf, 0};
  }
  leaf.first = leaf.data[0].offset();
  return at.slot < leaf.count ? at : Position{at.leaf + 1, 0};
}

void ExtentMap::set(Position at, const Extent& extent) {
  Leaf& leaf = leaves_[at.leaf];
  leaf.data[at.slot] = Packed::pack(extent);
  leaf.first = leaf.data[0].offset();
}

uint64_t ExtentMap::mark(uint64_t offset, uint64_t end, uint64_t address, ExtentState state, Position hint) {
  uint64_t bytes = 0;
  for (Position at = locate(offset, hint); valid(at); at = next(at)) {
    const Extent extent = get(at);
    if (extent.offset >= end) break;
    if (extent.offset < offset || extent.address != address + (extent.offset - offset)) continue;
    set_state(at, state);
    bytes += extent.length;
    if (extent.end() == end) break;
  }
  return bytes;
}

void ExtentMap::remove_addresses(uint64_t begin, uint64_t end) {
  size_t kept_leaves = 0;
  size_ = 0;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    Leaf& leaf = leaves_[i];
    Packed* const data = leaf.data.get();
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < leaf.count; ++slot) {
      data[kept] = data[slot];  // no branch: which ones go is hard to guess
      kept += (data[slot].content & (kAddressMax - 1)) - begin >= end - begin;
    }
    leaf.count = kept;
    if (kept == 0) continue;
    size_ += kept;
    leaf.first = data[0].offset();
    if (kept_leaves != i) leaves_[kept_leaves] = std::move(leaf);
    ++kept_leaves;
  }
  leaves_.erase(leaves_.begin() + static_cast<ptrdiff_t>(kept_leaves), leaves_.end());
}

uint64_t ExtentMap::end() const {
  return leaves_.empty() ? 0 : leaves_.back().data[leaves_.back().count - 1].end();
}

size_t ExtentMap::memory_bytes() const {
  size_t bytes = leaves_.capacity() * sizeof(Leaf);
  for (const Leaf& leaf : leaves_) bytes += leaf.capacity * sizeof(Packed);
  return bytes;
}

}  // namespace swale::tier
