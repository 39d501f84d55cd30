// The runs of a sealed file, small enough to travel with its attributes, and the lookup that needs no server.
//
// A table is exact or it does not exist: runs that overlap each other (something was overwritten) and files
// that need more than kTableBytesMax bytes have none, and are read by asking servers.
//
// Lookup. Runs whose strides are all multiples of the innermost one repeat in the file modulo that stride, so
// they are found by a binary search for the phase of the offset, the one that begins last before the offset
// first. Extents are found by a binary search too. All other runs are tried one by one. The run that answered
// last is tried first: a program that walks through its part of a file hits it each time.
//
// Threads: a SealedTable is immutable but for the hint, which the caller owns. Errors: kCorruption.
// Format: docs/formats/metadata.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "meta/index/lattice.h"
#include "meta/server/messages.h"

namespace swale::meta {

std::string encode_table(std::vector<Run> runs);
Result<std::vector<Run>> decode_table(Bytes bytes);  // runs that do not overlap are the writer's promise

// The table of a file, of the parts of all servers. Empty: there is none.
std::string joined_table(const std::vector<Collected>& parts);

// The table after bytes of a log have moved; empty: a run has moved in part, and there is none any more.
// Nothing: it has no run there.
Result<std::optional<std::string>> relocated_table(Bytes table, const Relocation& relocation);

class SealedTable {
 public:
  // Requires valid runs that do not overlap.
  explicit SealedTable(std::vector<Run> runs);

  // The block that holds a byte, from that byte on; none in a hole. `hint`: of the caller, 0 at first.
  std::optional<Extent> find(uint64_t offset, uint32_t* hint) const {
    if (*hint < runs_.size()) {
      if (const auto hit = within(runs_[*hint], offset)) return hit;
    }
    return search(offset, hint);
  }
  // The pieces of [offset, offset + length), ascending; holes are left out. At most pieces_max; *next: where
  // to go on.
  void lookup(uint64_t offset, uint64_t length, size_t pieces_max, std::vector<Extent>* out,
              uint64_t* next) const;

  const std::vector<Run>& runs() const { return runs_; }

 private:
  struct Phase {
    uint64_t begin = 0;  // of the blocks, modulo the stride
    uint64_t offset = 0;
    uint32_t run = 0;
  };
  struct Family {
    uint64_t stride = 0;
    uint64_t length_max = 0;
    std::vector<Phase> phases;  // by begin, then by offset
  };

  static std::optional<Extent> within(const Run& run, uint64_t offset) {
    if (offset < run.offset) return std::nullopt;
    uint64_t left = offset - run.offset;
    uint64_t address = run.place.address;
    for (uint32_t i = run.levels; i-- > 0;) {
      const Level& level = run.level[i];
      uint64_t at = left / level.stride;
      if (at >= level.count) at = level.count - 1;
      left -= at * level.stride;
      address += at * level.address_stride;
    }
    if (left >= run.length) return std::nullopt;
    return Extent{offset, run.length - left, {run.place.log, address + left}};
  }
  std::optional<Extent> search(uint64_t offset, uint32_t* hint) const;
  std::optional<Extent> try_phase(const Family& family, uint64_t phase, uint64_t offset,
                                  uint32_t* hint) const;

  std::vector<Run> runs_;
  std::vector<Family> families_;
  std::vector<uint32_t> extents_;  // runs without levels, by offset
  std::vector<uint32_t> others_;
};

}  // namespace swale::meta
