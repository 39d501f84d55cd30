#include "source/batch.h"

#include <algorithm>
#include <cassert>

#include "base/crc32c.h"

namespace swale::source {

void encode_batch(EpochNumber epoch, uint32_t source, std::span<Pair> pairs, std::span<Pair> scratch,
                  std::string* out) {
  assert(!pairs.empty() && pairs.size() <= kBatchKeysMax && source < kSourcesMax);
  sort_pairs(pairs, scratch, 0);
  const auto end = std::unique(pairs.begin(), pairs.end());
  const auto count = static_cast<uint64_t>(end - pairs.begin());
  const uint32_t rice = rice_parameter(kHashEnd / count);
  const size_t begin = out->size();
  out->append(kBatchHeaderBytes, '\0');
  BitWriter writer(out);
  uint64_t least = 0;
  for (auto pair = pairs.begin(); pair != end; ++pair) {
    assert(pair_source(*pair) == 0);
    writer.put_rice(pair_hash(*pair) - least, rice);
    least = pair_hash(*pair) + 1;
  }
  writer.finish();
  char* header = out->data() + begin;
  const size_t bytes = out->size() - begin;
  put_u32(header + 4, static_cast<uint32_t>(bytes));
  put_u32(header + 8, epoch);
  put_u32(header + 12, source);
  put_u16(header + 16, static_cast<uint16_t>(count));
  header[18] = static_cast<char>(kBatchVersion);
  header[19] = static_cast<char>(rice);
  put_u32(header, crc32c(Bytes(header + 4, bytes - 4)));
}

BatchHeader encode_mixed_batch(uint32_t source_bits, std::span<Pair> pairs, std::span<Pair> scratch,
                               std::string* out) {
  assert(!pairs.empty() && pairs.size() <= kMixedBatchKeysMax && source_bits >= 1);
  sort_pairs(pairs, scratch, 0);
  const auto end = std::unique(pairs.begin(), pairs.end());
  BatchHeader header;
  header.count = static_cast<uint16_t>(end - pairs.begin());
  header.rice = static_cast<uint8_t>(rice_parameter(kHashEnd / header.count));
  header.source_bits = static_cast<uint8_t>(source_bits);
  const size_t begin = out->size();
  out->append(kBatchHeaderBytes, '\0');
  BitWriter writer(out);
  uint64_t before = 0;
  for (auto pair = pairs.begin(); pair != end; ++pair) {
    assert(pair_source(*pair) <= low_bits(source_bits));
    writer.put_rice(pair_hash(*pair) - before, header.rice);
    writer.put(pair_source(*pair), source_bits);
    before = pair_hash(*pair);
  }
  writer.finish();
  header.bytes = static_cast<uint32_t>(out->size() - begin);
  char* const at = out->data() + begin;
  put_u32(at + 4, header.bytes);
  put_u32(at + 12, source_bits);
  put_u16(at + 16, header.count);
  at[18] = static_cast<char>(kMixedBatchVersion);
  at[19] = static_cast<char>(header.rice);
  return header;
}

BatchHeader read_batch_header(const char* batch) {
  BatchHeader header;
  header.bytes = get_u32(batch + 4);
  header.epoch = EpochNumber(get_u32(batch + 8));
  header.count = get_u16(batch + 16);
  header.rice = static_cast<uint8_t>(batch[19]);
  const uint32_t source = get_u32(batch + 12);
  const bool mixed = static_cast<uint8_t>(batch[18]) == kMixedBatchVersion;
  mixed ? header.source_bits = static_cast<uint8_t>(source) : header.source = source;
  return header;
}

Result<BatchHeader> decode_batch_header(Bytes bytes) {
  if (bytes.size() < kBatchHeaderBytes) {
    return error(Code::kCorruption, Scope::kPeer, "batch of keys: expected at least {} bytes, found {}",
                 kBatchHeaderBytes, bytes.size());
  }
  Decoder in(bytes);
  const uint32_t crc = in.u32();
  BatchHeader header;
  header.bytes = in.u32();
  header.epoch = EpochNumber(in.u32());
  header.source = in.u32();
  header.count = in.u16();
  const uint8_t version = in.u8();
  header.rice = in.u8();
  if (header.bytes <= kBatchHeaderBytes || header.bytes > bytes.size()) {
    return error(Code::kCorruption, Scope::kPeer, "batch of keys: says {} bytes, {} are there", header.bytes,
                 bytes.size());
  }
  if (const uint32_t found = crc32c(bytes.substr(4, header.bytes - 4)); found != crc) {
    return error(Code::kCorruption, Scope::kPeer,
                 "batch of keys of source {}: checksum {:08x}, expected {:08x}", header.source, found, crc);
  }
  if (version != kBatchVersion) {
    return error(
        Code::kUnsupported, Scope::kPeer,
        "batch of keys: version {}, this build knows {}: do all ranks run the same version of Swale?",
        version, kBatchVersion);
  }
  if (header.count == 0 || header.rice > kHashBits || header.source >= kSourcesMax) {
    return error(Code::kCorruption, Scope::kPeer,
                 "batch of keys: {} keys of source {}, Rice parameter {}: out of range", header.count,
                 header.source, header.rice);
  }
  return header;
}

}  // namespace swale::source
