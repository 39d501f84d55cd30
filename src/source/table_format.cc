#include "source/table_format.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::source {
namespace {

constexpr uint32_t kTrailerMagic = 0x54575353;  // "SSWT"
constexpr uint16_t kTableVersion = 1;

uint32_t salted_crc(uint64_t table_id, uint32_t number, Bytes bytes) {
  char salt[12];
  put_u64(salt, table_id);
  put_u32(salt + 8, number);
  return crc32c_extend(crc32c(Bytes(salt, sizeof(salt))), bytes);
}

}  // namespace

uint32_t TableParams::source_bits() const {
  return sources <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(sources - 1));
}

Status check_params(const TableParams& params) {
  if (params.sources < 1 || params.sources > kSourcesMax) {
    return invalid_argument("auxiliary table: {} sources, possible are 1 to {}", params.sources, kSourcesMax);
  }
  if (params.runs_per_rank < 1 || params.sources % params.runs_per_rank != 0) {
    return invalid_argument("auxiliary table: {} sources are not a multiple of {} runs per rank",
                            params.sources, params.runs_per_rank);
  }
  if (params.fingerprint_bits > kFingerprintBitsMax || params.value_bits() == 0) {
    return invalid_argument("auxiliary table: {} fingerprint bits with {} sources; possible are {} to {}",
                            params.fingerprint_bits, params.sources, params.sources > 1 ? 0 : 1,
                            kFingerprintBitsMax);
  }
  return ok_status();
}

std::string encode_trailer(const TableTrailer& trailer) {
  const TableParams& params = trailer.params;
  std::string out;
  append_u32(&out, kTrailerMagic);
  append_u32(&out, 0);
  append_u16(&out, kTableVersion);
  append_u16(&out, 0);  // features that a reader must know
  append_u8(&out, static_cast<uint8_t>(params.scheme));
  append_u8(&out, kHashBits);
  append_u8(&out, static_cast<uint8_t>(params.fingerprint_bits));
  append_u8(&out, static_cast<uint8_t>(trailer.shard_bits));
  append_u32(&out, params.sources);
  append_u32(&out, params.runs_per_rank);
  append_u32(&out, params.epoch);
  append_u32(&out, trailer.shard_count);
  append_u64(&out, params.table_id);
  append_u64(&out, params.base_id);
  append_u64(&out, trailer.keys);
  append_u64(&out, trailer.pairs);
  append_u32(&out, trailer.index_crc);
  out.resize(kTrailerBytes);
  put_u32(out.data() + 4, crc32c(Bytes(out).substr(8)));
  return out;
}

Result<TableTrailer> decode_trailer(Bytes bytes, std::string_view where) {
  Decoder in(bytes);
  const uint32_t magic = in.u32();
  const uint32_t crc = in.u32();
  if (bytes.size() != kTrailerBytes || magic != kTrailerMagic || crc32c(bytes.substr(8)) != crc) {
    return corruption("{}: no trailer of an auxiliary table; the table cannot be used, queries need a scan",
                      where);
  }
  const uint16_t version = in.u16();
  const uint16_t features = in.u16();
  if (version != kTableVersion || features != 0) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: auxiliary table of version {} with features {:#x}, this build knows version {}: use a "
                 "newer Swale",
                 where, version, features, kTableVersion);
  }
  TableTrailer trailer;
  const uint8_t scheme = in.u8();
  const uint8_t hash_bits = in.u8();
  trailer.params.scheme = static_cast<Scheme>(scheme);
  trailer.params.fingerprint_bits = in.u8();
  trailer.shard_bits = in.u8();
  trailer.params.sources = in.u32();
  trailer.params.runs_per_rank = in.u32();
  trailer.params.epoch = EpochNumber(in.u32());
  trailer.shard_count = in.u32();
  trailer.params.table_id = in.u64();
  trailer.params.base_id = in.u64();
  trailer.keys = in.u64();
  trailer.pairs = in.u64();
  trailer.index_crc = in.u32();
  const bool cuckoo = trailer.params.scheme == Scheme::kCuckoo;
  const bool counts = trailer.shard_bits <= kShardBitsMax &&
                      (cuckoo ? trailer.shard_bits == 0 && trailer.shard_count >= 1 &&
                                    trailer.shard_count <= (1u << kShardBitsMax)
                              : trailer.shard_count == uint32_t{1} << trailer.shard_bits);
  if (scheme < 1 || scheme > 3 || hash_bits != kHashBits || !counts || trailer.keys > trailer.pairs ||
      !check_params(trailer.params).ok()) {
    return corruption(
        "{}: trailer of an auxiliary table with impossible fields (scheme {}, {} hash bits, {} "
        "shards, {} sources)",
        where, scheme, hash_bits, trailer.shard_count, trailer.params.sources);
  }
  return trailer;
}

uint32_t index_crc(uint64_t table_id, Bytes index) { return salted_crc(table_id, UINT32_MAX, index); }

void seal_shard(const ShardHeader& header, uint64_t table_id, uint32_t number, MutableBytes shard) {
  assert(shard.size() >= kShardHeaderBytes && shard.size() <= kTableBytesMax);
  char* const at = shard.data();
  at[4] = static_cast<char>(header.kind);
  at[5] = static_cast<char>(header.seed);
  at[6] = static_cast<char>(header.remainder_bits);
  at[7] = 0;
  put_u32(at + 8, header.entries);
  put_u32(at + 12, header.extras);
  for (size_t i = 0; i < 3; ++i) put_u32(at + 16 + 4 * i, header.rows[i]);
  put_u32(at + 28, static_cast<uint32_t>(shard.size()));
  put_u32(at, salted_crc(table_id, number, view(shard).substr(4)));
}

Result<ShardHeader> decode_shard_header(Bytes shard, uint64_t table_id, uint32_t number,
                                        std::string_view where) {
  if (shard.size() < kShardHeaderBytes || get_u32(shard.data() + 28) != shard.size()) {
    return corruption("{}: shard {} of an auxiliary table: its header does not say {} bytes", where, number,
                      shard.size());
  }
  const uint32_t expected = get_u32(shard.data());
  if (const uint32_t found = salted_crc(table_id, number, shard.substr(4)); found != expected) {
    return corruption("{}: shard {} of an auxiliary table: checksum {:08x}, expected {:08x}", where, number,
                      found, expected);
  }
  ShardHeader header;
  header.kind = static_cast<ShardKind>(shard[4]);
  header.seed = static_cast<uint8_t>(shard[5]);
  header.remainder_bits = static_cast<uint8_t>(shard[6]);
  header.entries = get_u32(shard.data() + 8);
  header.extras = get_u32(shard.data() + 12);
  for (size_t i = 0; i < 3; ++i) header.rows[i] = get_u32(shard.data() + 16 + 4 * i);
  return header;
}

}  // namespace swale::source
