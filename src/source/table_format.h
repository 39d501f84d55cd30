// An auxiliary table as bytes: which sources may have a key's records. Full description:
// docs/formats/source-table.md.
//
//   table   := shard* | index | trailer
//   index   := shard_count * end u32          of each shard, relative to the table's begin
//   trailer := kTrailerBytes, see TableTrailer
//   shard   := header (kShardHeaderBytes) | body | 8 zero bytes
//
// A shard has the keys whose kept hashes begin with the same `shard_bits` bits, so that a query computes
// which one it needs. A checksum covers the table's id, the shard's number and all its bytes: a shard of
// another table, or at another place, is damage.
//
// Threads: pure functions. Errors: decoders answer kCorruption, or kUnsupported for newer tables; they never
// trust a length.
// Limits: 4 GiB a table; 2^20 shards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/numbers.h"
#include "base/status.h"
#include "source/pair.h"

namespace swale::source {

inline constexpr size_t kTrailerBytes = 80;
inline constexpr size_t kShardHeaderBytes = 32;
inline constexpr uint32_t kShardBitsMax = 20;
inline constexpr uint32_t kFingerprintBitsMax = 8;
inline constexpr uint32_t kExtraRemainderBits = 16;
inline constexpr uint64_t kTableBytesMax = UINT32_MAX;

// DO NOT CHANGE THESE VALUES: they stand in tables.
enum class Scheme : uint8_t {
  kRibbon = 1,  // bumped ribbon retrieval; extras for further sources of a key
  kMaplet = 2,  // sorted maplets, for comparison
  // the 2020 paper's, for comparison: shard 0 is the main table, then side tables, perhaps a maplet
  kCuckoo = 3,
};
enum class ShardKind : uint8_t { kEmpty = 0, kRibbon = 1, kMaplet = 2, kCuckoo = 3 };

struct TableParams {
  Scheme scheme = Scheme::kRibbon;
  uint32_t sources = 1;        // ranks * runs_per_rank
  uint32_t runs_per_rank = 1;  // 1: the table names ranks only
  uint32_t fingerprint_bits = 4;
  EpochNumber epoch = {};
  uint64_t table_id = 0;  // tells this table from all others: salt of its checksums
  uint64_t base_id = 0;   // a delta's base table; 0: this is not a delta

  uint32_t source_bits() const;  // enough for every source
  uint32_t value_bits() const { return source_bits() + fingerprint_bits; }
};

// kInvalidArgument says which field is out of range.
Status check_params(const TableParams& params);

struct TableTrailer {
  TableParams params;
  uint32_t shard_bits = 0;
  uint32_t shard_count = 0;  // 2^shard_bits, but for cuckoo tables
  uint64_t keys = 0;         // different kept hashes
  uint64_t pairs = 0;        // different pairs
  uint32_t index_crc = 0;    // of the table's id and the index

  uint64_t index_bytes() const { return uint64_t{shard_count} * 4; }
};

std::string encode_trailer(const TableTrailer& trailer);
// `bytes`: the last kTrailerBytes of a table; `where` names file and offset.
Result<TableTrailer> decode_trailer(Bytes bytes, std::string_view where);

uint32_t index_crc(uint64_t table_id, Bytes index);

struct ShardHeader {
  ShardKind kind = ShardKind::kEmpty;
  uint8_t seed = 0;              // of the third ribbon layer
  uint8_t remainder_bits = 0;    // of a maplet shard
  uint32_t entries = 0;          // keys of a ribbon, entries of a maplet, used slots of a cuckoo table
  uint32_t extras = 0;           // entries of the maplet after a ribbon
  uint32_t rows[3] = {0, 0, 0};  // of the ribbon's layers; rows[0] is the buckets of a cuckoo table
};

// Fills in the header of the shard that `shard` is, and its checksum.
void seal_shard(const ShardHeader& header, uint64_t table_id, uint32_t number, MutableBytes shard);
// Verifies the checksum. Says nothing about whether lengths fit: Shard::open does.
Result<ShardHeader> decode_shard_header(Bytes shard, uint64_t table_id, uint32_t number,
                                        std::string_view where);

}  // namespace swale::source
