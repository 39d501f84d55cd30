// FileExtents: where the bytes of one file stand in the logs of this node: tier::ExtentMap for offsets up to
// 2^63, and for places, which it packs into addresses (PlaceTable).
//
// Threads: one at a time. A call that throws std::bad_alloc may have cut what it was to replace, and has told
// `removed` so; it may be repeated.
// Memory: about 20 bytes a piece, 8 a region of 16 MiB of a log.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "fs/share/range_map.h"
#include "meta/index/types.h"
#include "tier/engine/extent_map.h"

namespace swale::fs {

// Logs' addresses in regions of 16 MiB; those that a live byte stands in have a number, and
// number << 24 | byte is an address of an ExtentMap.
class PlaceTable {
 public:
  static constexpr unsigned kRegionBits = 24;

  // How many of `length` bytes at a place one address covers.
  static uint64_t covered(const meta::Place& place, uint64_t length) {
    const uint64_t left = kRegionBytes - place.address % kRegionBytes;
    return std::min(left, length);
  }
  // Counts `length` covered bytes as live. kResourceExhausted: 2^22 regions are.
  Result<uint64_t> add(const meta::Place& place, uint64_t length);
  meta::Place place_of(uint64_t address) const {
    const Region& region = regions_[address >> kRegionBits];
    return {region.log, region.number << kRegionBits | address % kRegionBytes};
  }
  void remove(uint64_t address, uint64_t length) noexcept;

 private:
  static constexpr uint64_t kRegionBytes = uint64_t{1} << kRegionBits;
  static constexpr size_t kRegionsMax = tier::kAddressMax >> kRegionBits;
  struct Region {
    uint32_t log = 0;
    uint64_t number = 0;
    uint64_t live = 0;
  };
  std::vector<Region> regions_;
  std::vector<uint32_t> free_;  // has capacity for all regions
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> numbers_;
};

class FileExtents {
 public:
  // A piece is new until mark(): the pieces that are there then are what a drain writes.
  enum class Age : uint8_t { kNew, kMarked };
  struct Piece {
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t address = 0;
    Age age = Age::kNew;
  };

  // How many of `length` bytes at an offset one piece can have.
  static uint64_t covered(uint64_t offset, uint64_t length) {
    const uint64_t left = kWindow - offset % kWindow;
    return std::min(left, length);
  }
  // The piece, which is covered, takes the place of what was there. removed(Piece) gets each part of that.
  template <class Removed>
  void put(const Piece& piece, const Removed& removed) {
    const uint64_t begin = piece.offset % kWindow, base = piece.offset - begin;
    const tier::Extent extent{begin, piece.address, static_cast<uint32_t>(piece.length)};
    windows_[base].replace(extent, {0, 0}, [&](const tier::Extent& gone) {
      bytes_ -= gone.length;
      removed(piece_of(base, gone));
    });
    bytes_ += piece.length;
  }
  template <class Removed>
  void cut(uint64_t offset, uint64_t end, const Removed& removed) {
    for (auto at = windows_.lower_bound(offset - offset % kWindow);
         at != windows_.end() && at->first < end;) {
      const uint64_t base = at->first;
      at->second.carve(offset > base ? offset - base : 0, std::min(end - base, kWindow),
                       [&](const tier::Extent& gone) {
                         bytes_ -= gone.length;
                         removed(piece_of(base, gone));
                       });
      at = at->second.size() == 0 ? windows_.erase(at) : std::next(at);
    }
  }
  // In order.
  template <class Visit>
  void visit(uint64_t offset, uint64_t end, const Visit& visit) const {
    for (auto at = windows_.lower_bound(offset - offset % kWindow); at != windows_.end() && at->first < end;
         ++at) {
      const uint64_t base = at->first;
      at->second.visit(offset > base ? offset - base : 0, std::min(end - base, kWindow),
                       [&](const tier::Extent& extent) { visit(piece_of(base, extent)); });
    }
  }
  size_t count(uint64_t offset, uint64_t end) const {
    size_t pieces = 0;
    visit(offset, end, [&pieces](const Piece&) { ++pieces; });
    return pieces;
  }
  void mark() noexcept { set_all(tier::ExtentState::kFlushing); }
  void unmark() noexcept { set_all(tier::ExtentState::kDirty); }
  template <class Removed>
  void remove_marked(const Removed& removed) {
    for (auto at = windows_.begin(); at != windows_.end();) {
      const uint64_t base = at->first;
      at->second.remove_if([&](const tier::Extent& extent) {
        if (extent.state != tier::ExtentState::kFlushing) return false;
        bytes_ -= extent.length;
        removed(piece_of(base, extent));
        return true;
      });
      at = at->second.size() == 0 ? windows_.erase(at) : std::next(at);
    }
  }
  bool empty() const { return windows_.empty(); }
  uint64_t bytes() const { return bytes_; }
  // The first bytes at `offset` or behind it up to where there are none; none at all: the span is empty.
  Span stretch(uint64_t offset) const {
    Span found;
    for (auto at = windows_.lower_bound(offset - offset % kWindow); at != windows_.end(); ++at) {
      const uint64_t base = at->first, from = offset > base ? offset - base : 0;
      const tier::ExtentMap& map = at->second;
      for (auto here = map.locate(from); map.valid(here); here = map.next(here)) {
        const tier::Extent extent = map.get(here);
        const uint64_t begin = base + std::max(extent.offset, from);
        if (found.end != 0 && begin != found.end) return found;
        if (found.end == 0) found.begin = begin;
        found.end = base + extent.end();
      }
    }
    return found;
  }

 private:
  static constexpr uint64_t kWindow = tier::kFileBytesMax / 2;

  static Piece piece_of(uint64_t base, const tier::Extent& extent) {
    return {base + extent.offset, extent.length, extent.address,
            extent.state == tier::ExtentState::kDirty ? Age::kNew : Age::kMarked};
  }
  void set_all(tier::ExtentState state) noexcept {
    for (auto& [base, map] : windows_)
      for (auto at = map.locate(0); map.valid(at); at = map.next(at)) map.set_state(at, state);
  }

  std::map<uint64_t, tier::ExtentMap> windows_;  // by the offset at which they begin
  uint64_t bytes_ = 0;                           // of all pieces
};

}  // namespace swale::fs
