#include "tier/engine/extent_map.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"

namespace swale::tier {

ExtentMap::Position ExtentMap::locate(uint64_t offset) const {
  if (leaves_.empty()) return {0, 0};
  if (offset >=
      kFileBytesMax -
          1) {  // beyond what kPadding compares as larger than: only the last extent can end after it
    const auto last = static_cast<uint32_t>(leaves_.size() - 1);
    return end() > offset ? Position{last, leaves_[last].count - 1} : Position{last + 1, 0};
  }
  const uint64_t* const firsts = firsts_.data();
  size_t leaf = 0;
  for (size_t step = firsts_.size() / 2; step > 0; step /= 2)
    leaf = choose(firsts[leaf + step] <= offset, leaf + step, leaf);
  return locate_in(leaf, offset);
}

// In the last leaf that begins at or before the offset, or in the first of all.
ExtentMap::Position ExtentMap::locate_in(size_t index, uint64_t offset) const {
  const Leaf& leaf = leaves_[index];
  // The last extent that begins at or before the offset; extents do not overlap, so the one after it is the
  // answer if this one ends too early.
  const Packed* const extents = leaf.data.get();
  const uint64_t last_place = offset << 16 | 0xffff;
  size_t found = 0;
  const auto narrow = [&](size_t step) {
    found = choose(extents[found + step].place <= last_place, found + step, found);
  };
  if (leaf.capacity == kLeafExtents) {
    for (size_t step = kLeafExtents / 2; step > 0; step /= 2) narrow(step);
  } else {
    for (size_t step = leaf.capacity / 2; step > 0; step /= 2) narrow(step);
  }
  const auto slot = static_cast<uint32_t>(found) + (extents[found].end() <= offset);
  const auto at = static_cast<uint32_t>(index);
  return slot < leaf.count ? Position{at, slot} : Position{at + 1, 0};
}

// A request asks for the same place several times: before and after its append, and before and after its
// flush. Few insertions happen meanwhile, and most of them in other leaves.
ExtentMap::Position ExtentMap::locate(uint64_t offset, Position hint) const {
  if (hint.leaf >= leaves_.size() || firsts_[hint.leaf] > offset || firsts_[hint.leaf + 1] <= offset ||
      offset >= kFileBytesMax - 1)
    return locate(offset);
  const Leaf& leaf = leaves_[hint.leaf];
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
  // Before the first extent of a leaf is the same as after the last one of the leaf before: files grow at the
  // end.
  if (at.slot == 0 && at.leaf > 0) at = {at.leaf - 1, leaves_[at.leaf - 1].count};
  insert_at(at, extent);
}

void ExtentMap::insert_at(Position at, const Extent& extent) {
  if (leaves_.empty() || leaves_[at.leaf].count == leaves_[at.leaf].capacity) at = make_space(at);
  Leaf& leaf = leaves_[at.leaf];
  Packed* const place = leaf.data.get() + at.slot;
  std::memmove(place + 1, place, (leaf.count - at.slot) * sizeof(Packed));
  *place = Packed::pack(extent);
  ++leaf.count;
  ++size_;
  if (at.slot == 0) firsts_[at.leaf] = extent.offset;
}

// The position of an extent that belongs to `at`, whose leaf is full, in a leaf that has space.
ExtentMap::Position ExtentMap::make_space(Position at) {
  if (leaves_.empty()) {
    insert_leaf(0, make_leaf(4));
    return {0, 0};
  }
  Leaf& leaf = leaves_[at.leaf];
  if (leaf.capacity < kLeafExtents) {
    grow(&leaf);
    return at;
  }
  const bool at_end = at.leaf + 1 == leaves_.size() && at.slot == leaf.count;
  if (at_end) {  // a file that grows leaves full leaves behind
    insert_leaf(leaves_.size(), make_leaf(kLeafExtents));
    return {at.leaf + 1, 0};
  }
  const uint64_t before = at.slot > 0 ? leaf.data[at.slot - 1].offset() : 0;
  const bool first = at.slot == 0;
  if (!shift_to_neighbour(at.leaf)) split(at.leaf, kLeafExtents / 2);
  if (first) return {at.leaf, 0};
  const Position left = locate(before);
  return {left.leaf, left.slot + 1};
}

ExtentMap::Leaf ExtentMap::make_leaf(uint32_t capacity) {
  Leaf leaf{std::make_unique_for_overwrite<Packed[]>(capacity), 0, capacity};
  std::fill_n(leaf.data.get(), capacity, kPadding);
  return leaf;
}

// Shortens a leaf.
void ExtentMap::set_count(Leaf* leaf, uint32_t count) {
  std::fill(leaf->data.get() + count, leaf->data.get() + leaf->count, kPadding);
  leaf->count = count;
}

// A leaf that is empty yet begins where the one after it does.
void ExtentMap::insert_leaf(size_t index, Leaf leaf) {
  if (leaves_.size() + 2 > firsts_.size())
    firsts_.resize(std::max(kFirstsLeast, 2 * firsts_.size()), kNoOffset);
  const auto first = firsts_.begin() + static_cast<ptrdiff_t>(index);
  const uint64_t offset = leaf.count > 0 ? leaf.data[0].offset() : *first;
  leaves_.insert(leaves_.begin() + static_cast<ptrdiff_t>(index), std::move(leaf));
  std::move_backward(first, firsts_.end() - 1, firsts_.end());
  *first = offset;
}

void ExtentMap::erase_leaf(size_t index) {
  leaves_.erase(leaves_.begin() + static_cast<ptrdiff_t>(index));
  const auto first = firsts_.begin() + static_cast<ptrdiff_t>(index);
  std::move(first + 1, firsts_.end(), first);
}

void ExtentMap::grow(Leaf* leaf) {
  const uint32_t capacity = std::min(kLeafExtents, leaf->capacity * 2);
  Leaf larger = make_leaf(capacity);
  std::memcpy(larger.data.get(), leaf->data.get(), leaf->count * sizeof(Packed));
  larger.count = leaf->count;
  *leaf = std::move(larger);
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
    set_count(&leaf, leaf.count - moved);
    update_first(index + 1);
    return true;
  }
  if (index > 0 && has_space(leaves_[index - 1])) {
    Leaf& left = leaves_[index - 1];
    const uint32_t moved = (leaf.count - left.count) / 2;
    std::memcpy(left.data.get() + left.count, leaf.data.get(), moved * sizeof(Packed));
    std::memmove(leaf.data.get(), leaf.data.get() + moved, (leaf.count - moved) * sizeof(Packed));
    left.count += moved;
    set_count(&leaf, leaf.count - moved);
    update_first(index);
    return true;
  }
  return false;
}

void ExtentMap::split(size_t index, uint32_t keep) {
  Leaf right = make_leaf(kLeafExtents);
  Leaf& leaf = leaves_[index];
  right.count = leaf.count - keep;
  std::memcpy(right.data.get(), leaf.data.get() + keep, right.count * sizeof(Packed));
  insert_leaf(index + 1, std::move(right));
  set_count(&leaves_[index], keep);
}

ExtentMap::Position ExtentMap::erase_at(Position at) {
  Leaf& leaf = leaves_[at.leaf];
  Packed* const place = leaf.data.get() + at.slot;
  std::memmove(place, place + 1, (leaf.count - at.slot - 1) * sizeof(Packed));
  --size_;
  if (leaf.count == 1) {
    erase_leaf(at.leaf);
    return {at.leaf, 0};
  }
  set_count(&leaf, leaf.count - 1);
  if (at.slot == 0) update_first(at.leaf);
  return at.slot < leaf.count ? at : Position{at.leaf + 1, 0};
}

void ExtentMap::set(Position at, const Extent& extent) {
  leaves_[at.leaf].data[at.slot] = Packed::pack(extent);
  if (at.slot == 0) update_first(at.leaf);
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
  keep_some([=](Packed* data, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < count; ++slot) {
      data[kept] = data[slot];  // no branch: which ones go is hard to guess
      kept += data[slot].address() - begin >= end - begin;
    }
    return kept;
  });
}

uint64_t ExtentMap::end() const {
  return leaves_.empty() ? 0 : leaves_.back().data[leaves_.back().count - 1].end();
}

size_t ExtentMap::memory_bytes() const {
  size_t bytes = leaves_.capacity() * sizeof(Leaf) + firsts_.capacity() * sizeof(uint64_t);
  for (const Leaf& leaf : leaves_) bytes += leaf.capacity * sizeof(Packed);
  return bytes;
}

}  // namespace swale::tier
