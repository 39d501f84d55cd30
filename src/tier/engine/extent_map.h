// ExtentMap: which ranges of one file stand where in the log, in file order (the paper's AVL tree, section
// 2.5).
//
// Two levels: leaves of up to 128 packed extents, and a directory of leaves. A full leaf first gives extents
// to a neighbour that has space, as in a B*-tree, and leaves that removals have made small are joined: so
// that they stay about four fifths full, and 16 bytes an extent become about 20, where the paper counts 24
// without pointers (docs/design/tier.md).
//
// A search in a leaf takes as many steps as its capacity has bits, whatever it holds: what is behind the last
// extent compares as larger than any. So its steps are known when it is compiled, and each is a comparison
// and a conditional move. So for the directory.
//
// Invariants: (1) extents do not overlap and none is empty; (2) no leaf is empty; (3) firsts_ are the offsets
// of the leaves' first extents, and kNoOffset behind them, at least once; (4) kPadding is behind a leaf's
// extents; (5) capacities and the size of firsts_ are powers of two.
// Limits: offsets below 2^48, addresses below 2^46, lengths below 2^32.
// Threads: one at a time. An insertion that throws std::bad_alloc leaves the map valid.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace swale::tier {

enum class ExtentState : uint8_t {
  kDirty = 0,     // only the log has it
  kFlushing = 1,  // on its way to the backing device
  kClean = 2,     // the backing device has it too; the record is still in the log
  kLost = 3,      // was acknowledged, and nobody has it; the address is the number of the loss
};

struct Extent {
  uint64_t offset = 0;   // in the file
  uint64_t address = 0;  // of its first byte in the log
  uint32_t length = 0;
  ExtentState state = ExtentState::kDirty;

  uint64_t end() const { return offset + length; }
};

inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 48;
inline constexpr uint64_t kAddressMax = uint64_t{1} << 46;

class ExtentMap {
 public:
  ExtentMap() = default;
  ExtentMap(ExtentMap&&) noexcept = default;
  ExtentMap& operator=(ExtentMap&&) noexcept = default;

  // Where an extent stands. Any change of the map invalidates it; it may still serve as a hint.
  struct Position {
    uint32_t leaf = 0;
    uint32_t slot = 0;
  };

  // The first extent that ends after `offset`.
  Position locate(uint64_t offset) const;
  // The same. `hint`: where it stood, or the one before it, some changes ago; a wrong hint costs a few
  // comparisons.
  Position locate(uint64_t offset, Position hint) const;
  bool valid(Position at) const { return at.leaf < leaves_.size(); }
  Extent get(Position at) const { return leaves_[at.leaf].data[at.slot].unpack(); }
  Position next(Position at) const;
  void set_state(Position at, ExtentState state) { leaves_[at.leaf].data[at.slot].set_state(state); }

  bool overlaps(uint64_t offset, uint64_t end) const {
    const Position at = locate(offset);
    return valid(at) && get(at).offset < end;
  }

  // Adds an extent where there is none.
  void insert(const Extent& extent);

  // Removes what overlaps the extent, as carve does, and adds it.
  template <class Removed>
  void replace(const Extent& extent, Position hint, const Removed& removed) {
    const Position at = locate(extent.offset, hint);
    if (!valid(at) || get(at).offset >= extent.end()) return insert_before(at, extent);
    carve(extent.offset, extent.end(), removed);
    insert(extent);
  }

  // Removes [offset, end), and calls removed(Extent) for each piece in it.
  template <class Removed>
  void carve(uint64_t offset, uint64_t end, const Removed& removed);

  // Calls visit(Extent) for each piece in [offset, end), in order.
  template <class Visit>
  void visit(uint64_t offset, uint64_t end, const Visit& visit) const;

  // Sets the state of all extents in [offset, end) that are of the log bytes beginning at `address`, and
  // returns how many bytes they have. Extents that reach beyond the range must not exist: flushes take whole
  // extents. `hint`: of the first one.
  uint64_t mark(uint64_t offset, uint64_t end, uint64_t address, ExtentState state, Position hint);
  uint64_t mark(uint64_t offset, uint64_t end, uint64_t address, ExtentState state) {
    return mark(offset, end, address, state, {0, 0});
  }

  // Removes all extents whose address is in [begin, end): 1 ns an extent of the map.
  void remove_addresses(uint64_t begin, uint64_t end);

  // The first extent at or after `at` that is dirty and for which wanted(address) is true.
  template <class Wanted>
  Position find_dirty(Position at, const Wanted& wanted) const {
    return find(at, [&wanted](uint64_t content) {
      return content < kAddressMax << 16 && wanted(content >> 16);  // dirty is 0
    });
  }
  // The same for addresses in [begin, begin + bytes).
  Position find_dirty(Position at, uint64_t begin, uint64_t bytes) const {
    return find(at, [=](uint64_t content) { return content - (begin << 16) < bytes << 16; });
  }

  // Removes each extent for which drop(Extent) is true.
  template <class Drop>
  void remove_if(const Drop& drop);

  size_t size() const { return size_; }
  uint64_t end() const;  // of the last extent; 0 if there is none
  size_t memory_bytes() const;

 private:
  static constexpr uint32_t kLeafExtents = 128;
  static constexpr uint64_t kNoOffset = ~uint64_t{0};
  static constexpr size_t kFirstsLeast = 8;

  // From the lowest bit: length low 16 | offset 48;  length high 16 | address 46 | state 2. So both are
  //                                                  compared as they are.
  struct Packed {
    uint64_t place;
    uint64_t content;

    static Packed pack(const Extent& extent) {
      assert(extent.offset < kFileBytesMax && extent.address < kAddressMax && extent.length > 0);
      return {extent.offset << 16 | (extent.length & 0xffff),
              extent.length >> 16 | extent.address << 16 | static_cast<uint64_t>(extent.state) << 62};
    }
    uint64_t offset() const { return place >> 16; }
    uint32_t length() const { return static_cast<uint32_t>((place & 0xffff) | (content & 0xffff) << 16); }
    uint64_t end() const { return offset() + length(); }
    uint64_t address() const { return content << 2 >> 18; }
    Extent unpack() const { return {offset(), address(), length(), static_cast<ExtentState>(content >> 62)}; }
    void set_state(ExtentState state) { content = content << 2 >> 2 | static_cast<uint64_t>(state) << 62; }
  };
  static_assert(sizeof(Packed) == 16);
  static constexpr Packed kPadding = {~uint64_t{0}, 0};  // no extent: one at the highest offset has a byte

  struct Leaf {
    std::unique_ptr<Packed[]> data;
    uint32_t count;
    uint32_t capacity;
  };
  static Leaf make_leaf(uint32_t capacity);

  Position locate_in(size_t leaf, uint64_t offset) const;
  // The first extent at or after `at` whose content is wanted.
  template <class Wanted>
  Position find(Position at, const Wanted& wanted) const {
    for (; at.leaf < leaves_.size(); at = {at.leaf + 1, 0}) {
      const Leaf& leaf = leaves_[at.leaf];
      for (; at.slot < leaf.count; ++at.slot)
        if (wanted(leaf.data[at.slot].content)) return at;
    }
    return at;
  }
  void insert_before(Position at, const Extent& extent);  // at: locate(extent.offset)
  void insert_at(Position at, const Extent& extent);
  Position make_space(Position at);
  bool shift_to_neighbour(size_t leaf);
  void grow(Leaf* leaf);
  void split(size_t leaf, uint32_t keep);
  Position erase_at(Position at);
  void set(Position at, const Extent& extent);
  void insert_leaf(size_t index, Leaf leaf);
  void erase_leaf(size_t index);
  void set_count(Leaf* leaf, uint32_t count);
  void update_first(size_t leaf) { firsts_[leaf] = leaves_[leaf].data[0].offset(); }
  // keep(data, count) moves the extents of a leaf that stay to its begin, and says how many there are.
  template <class Keep>
  void keep_some(const Keep& keep);

  std::vector<Leaf> leaves_;
  std::vector<uint64_t> firsts_;  // empty, or at least one longer than leaves_
  size_t size_ = 0;
};

template <class Removed>
void ExtentMap::carve(uint64_t offset, uint64_t end, const Removed& removed) {
  Position at = locate(offset);
  while (valid(at)) {
    const Extent extent = get(at);
    if (extent.offset >= end) return;
    const uint64_t from = extent.offset > offset ? extent.offset : offset;
    const uint64_t to = extent.end() < end ? extent.end() : end;
    const auto part = [&extent](uint64_t begin, uint64_t stop) {
      return Extent{begin, extent.address + (begin - extent.offset), static_cast<uint32_t>(stop - begin),
                    extent.state};
    };
    if (extent.offset < from && extent.end() > to) {  // the middle: both sides stay
      insert_at({at.leaf, at.slot + 1}, part(to, extent.end()));
      set(locate(extent.offset), part(extent.offset, from));
      removed(part(from, to));
      return;
    }
    if (extent.offset < from) {
      set(at, part(extent.offset, from));
      at = next(at);
    } else if (extent.end() > to) {
      set(at, part(to, extent.end()));
      removed(part(from, to));
      return;
    } else {
      at = erase_at(at);
    }
    removed(part(from, to));
  }
}

template <class Visit>
void ExtentMap::visit(uint64_t offset, uint64_t end, const Visit& visit) const {
  for (Position at = locate(offset); valid(at); at = next(at)) {
    Extent extent = get(at);
    if (extent.offset >= end) return;
    const uint64_t from = extent.offset > offset ? extent.offset : offset;
    const uint64_t to = extent.end() < end ? extent.end() : end;
    visit(Extent{from, extent.address + (from - extent.offset), static_cast<uint32_t>(to - from),
                 extent.state});
  }
}

template <class Drop>
void ExtentMap::remove_if(const Drop& drop) {
  keep_some([&drop](Packed* data, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < count; ++slot)
      if (!drop(data[slot].unpack())) data[kept++] = data[slot];
    return kept;
  });
}

// What is left of a leaf goes to the one before it if that one has space for more than it.
template <class Keep>
void ExtentMap::keep_some(const Keep& keep) {
  size_t leaves = 0;
  size_ = 0;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    Leaf& leaf = leaves_[i];
    const uint32_t kept = keep(leaf.data.get(), leaf.count);
    set_count(&leaf, kept);
    size_ += kept;
    if (kept == 0) continue;
    Leaf* const before = leaves == 0 ? nullptr : &leaves_[leaves - 1];
    if (before && before->capacity == kLeafExtents && before->count + kept <= kLeafExtents * 3 / 4) {
      std::copy_n(leaf.data.get(), kept, before->data.get() + before->count);
      before->count += kept;
      continue;
    }
    if (leaves != i) leaves_[leaves] = std::move(leaf);
    update_first(leaves++);
  }
  leaves_.erase(leaves_.begin() + static_cast<ptrdiff_t>(leaves), leaves_.end());
  std::fill(firsts_.begin() + static_cast<ptrdiff_t>(leaves), firsts_.end(), kNoOffset);
}

}  // namespace swale::tier
