// What the metadata store maps: bytes of a shared file to bytes of a log.
//
// A Run is a regular pattern of equal blocks, at most kRunLevels levels deep; a contiguous extent is a Run of
// no levels.
// Block (i0, i1, ...) of a run stands at file offset  offset + i0 * level[0].stride + i1 * level[1].stride +
//                                                     ...
// and at log address  address + i0 * level[0].address_stride + i1 * level[1].address_stride + ...
// Level 0 is the innermost. Blocks of one run do not overlap each other in the file (valid() says so).
//
// Units: bytes. Offsets and ends of files are below 2^63. Threads: plain values.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace swale::meta {

inline constexpr uint64_t kOffsetEnd = uint64_t{1} << 63;  // no byte of a file stands here or later
inline constexpr unsigned kRunLevels = 3;                  // BTIO's cells: lines, planes, cells

// Drawn when the file is created, by the server that keeps its name: `high` is that server, `low` counts its
// files from 1. No id is drawn twice in a store, so an id whose file was removed names nothing for ever. All
// zero: none.
struct FileId {
  uint64_t high = 0;
  uint64_t low = 0;
  bool none() const { return high == 0 && low == 0; }
  friend auto operator<=>(const FileId&, const FileId&) = default;
};
struct FileIdHash {
  size_t operator()(const FileId& id) const { return id.low ^ (id.high * 0x9e3779b97f4a7c15); }
};

using LogId = uint32_t;     // which log of the job holds the bytes
using Sequence = uint64_t;  // given by the server that owns the range, on arrival; later writes win
// No shard gets so far. A file that says more is damaged, and counting on from there would begin at 0 again.
constexpr uint64_t kSequenceMax = uint64_t{1} << 62;  // of sequences and of numbers of groups

// Written {log, address}, and compared in that order. In memory the address comes first, as in the C
// interface, so that a result is given out without a copy (src/capi/meta.cc).
struct Place {
  uint64_t address = 0;
  LogId log = 0;
  uint32_t reserved = 0;  // 0, so that no byte is undefined

  constexpr Place() = default;
  constexpr Place(LogId in_log, uint64_t at_address) : address(at_address), log(in_log) {}
  friend constexpr bool operator==(const Place& a, const Place& b) {
    return a.address == b.address && a.log == b.log;
  }
  friend constexpr auto operator<=>(const Place& a, const Place& b) {
    const auto by_log = a.log <=> b.log;
    return by_log != 0 ? by_log : a.address <=> b.address;
  }
};

struct Level {
  uint64_t count = 1;  // at least 2 in a valid run
  uint64_t stride = 0;
  uint64_t address_stride = 0;
  friend auto operator<=>(const Level&, const Level&) = default;
};

struct Run {
  uint64_t offset = 0;  // of the first block, in the file
  uint64_t length = 0;  // of each block; above 0
  Place place;          // of the first block
  uint32_t levels = 0;  // how many of level[] count
  std::array<Level, kRunLevels> level{};
  friend bool operator==(const Run&, const Run&) = default;
};

// Bytes [offset, offset + length) of a file.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;
  friend auto operator<=>(const ByteRange&, const ByteRange&) = default;
};

// One piece of an answer: bytes [offset, offset + length) of the file stand at `place`.
struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;
  Place place;
  friend auto operator<=>(const Extent&, const Extent&) = default;
};

}  // namespace swale::meta
