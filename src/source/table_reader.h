// TableReader: answers which sources may have a key, from a table in a file. A cold query reads the table's
// end (trailer and index, one read up to kTailBytes) and one shard.
//
// TableIndex is the same without a file, for callers that schedule reads themselves: decode it from the
// table's last bytes, ask it which bytes a key needs, and open those as a Shard.
//
// Threads: a TableIndex is a value. A TableReader may be used by several threads if its File may.
// Errors: kCorruption names file and offset. A table that cannot be read never means that a key is not there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/device.h"
#include "source/shard.h"

namespace swale::source {

inline constexpr size_t kTailBytes = 4 * kKiB;  // trailer and index of a table of up to 1,004 shards

struct ShardPlace {
  uint32_t number = 0;
  uint64_t offset = 0;  // from the table's begin
  uint32_t bytes = 0;
};

class TableIndex {
 public:
  // `tail`: the last bytes of a table of `table_bytes`, with all of its index. `where` names the file and the
  // table's offset.
  static Result<TableIndex> decode(Bytes tail, uint64_t table_bytes, std::string_view where);
  // How many bytes at the table's end decode needs, from its last kTrailerBytes.
  static Result<uint64_t> tail_bytes(Bytes trailer, uint64_t table_bytes, std::string_view where);

  const TableTrailer& trailer() const { return trailer_; }
  // The shard that may have the key. For a cuckoo table, ask for all shards: shard_count of them.
  ShardPlace place_of(uint64_t kept) const;
  ShardPlace place(uint32_t number) const;
  size_t memory_bytes() const { return ends_.size() * sizeof(uint32_t); }

 private:
  TableTrailer trailer_;
  std::vector<uint32_t> ends_;
};

class TableReader {
 public:
  // The table of `bytes` at `offset` of the file, which must outlive the reader.
  static Result<TableReader> open(io::File& file, uint64_t offset, uint64_t bytes);

  const TableTrailer& trailer() const { return index_.trailer(); }
  const TableIndex& index() const { return index_; }

  struct Cost {
    uint64_t reads = 0;
    uint64_t bytes = 0;
  };
  // Appends the sources that may have the key, ascending, each once; nothing on failure. `cost` (may be null)
  // is added to.
  Status candidates(uint64_t kept, std::vector<uint32_t>* out, Cost* cost = nullptr) const;

  // The bytes of one shard, verified.
  Status read_shard(uint32_t number, std::string* out) const;
  Result<Shard> open_shard(Bytes bytes, uint32_t number) const;
  // Reads and verifies everything. The first failure.
  Status verify() const;
  Cost open_cost() const { return open_cost_; }
  std::string where() const;  // "FILE: offset N"

 private:
  TableReader(io::File& file, uint64_t offset, TableIndex index, Cost cost)
      : file_(&file), offset_(offset), index_(std::move(index)), open_cost_(cost) {}

  Status append_candidates(uint64_t kept, std::vector<uint32_t>* out, Cost* cost) const;

  io::File* file_;
  uint64_t offset_;
  TableIndex index_;
  Cost open_cost_;
};

// Sorts and removes doubles.
void sort_candidates(std::vector<uint32_t>* candidates, size_t from);

}  // namespace swale::source
