#include "run/block.h"

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {
namespace {

uint64_t offset_of(uint64_t block_number) { return block_number * kBlockBytes; }

Status disagree(const Candidate& candidate, std::string_view path, std::string_view problem) {
  return corruption(
      "{}: offset {}: the index names a record in {} blocks there (slot {}), but {}; run `swale verify`",
      path, offset_of(candidate.block), candidate.block_count, candidate.slot, problem);
}

Result<std::optional<RecordView>> match_row(const Candidate& candidate, const char* block, Bytes key,
                                            std::string_view path) {
  const BlockTrailer trailer = block_trailer(block);
  const size_t row_bytes = candidate.key_bytes + size_t{candidate.value_bytes};
  const size_t at = candidate.slot * row_bytes;
  const size_t rows_end = trailer.first_start + trailer.count * row_bytes;
  if (at < trailer.first_start || at >= rows_end || rows_end > kPayloadBytes) {
    return disagree(candidate, path,
                    fmt::format("rows of {} bytes lie at {}..{}", row_bytes, trailer.first_start, rows_end));
  }
  const char* const row = block + at;
  if (!key.empty() && Bytes(row, candidate.key_bytes) != key) return std::optional<RecordView>();
  return std::optional(RecordView{.key = {row, candidate.key_bytes},
                                  .value = {row + candidate.key_bytes, candidate.value_bytes},
                                  .encoded = {}});
}

// The payloads from byte `at` of the first block on, side by side.
void join_payloads(Bytes blocks, size_t at, std::vector<char>* out) {
  out->clear();
  for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes), at = 0) {
    const Bytes part = blocks.substr(at, kPayloadBytes - at);
    out->insert(out->end(), part.begin(), part.end());
  }
}

Result<std::optional<RecordView>> match_variable(const Candidate& candidate, Bytes blocks, Bytes key,
                                                 std::vector<char>* scratch, std::string_view path) {
  for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes)) {
    const BlockTrailer trailer = block_trailer(blocks.data());
    const uint32_t skip = candidate.slot - trailer.first_ordinal;
    if (candidate.slot < trailer.first_ordinal || skip >= trailer.count) continue;
    if (trailer.first_start >= kPayloadBytes) break;
    Bytes payload = blocks.substr(trailer.first_start, kPayloadBytes - trailer.first_start);
    RecordView record;
    for (uint32_t i = 0; i < skip; ++i) {
      if (parse_record(payload, &record) != RecordParse::kOk) {
        return disagree(candidate, path, "a record before it is malformed");
      }
      payload.remove_prefix(record.encoded.size());
    }
    RecordParse parse = parse_record(payload, &record);
    if (parse == RecordParse::kCutOff && blocks.size() > kBlockBytes) {
      join_payloads(blocks, kPayloadBytes - payload.size(), scratch);
      parse = parse_record({scratch->data(), scratch->size()}, &record);
    }
    if (parse != RecordParse::kOk) return disagree(candidate, path, "it is cut off or malformed");
    if (!key.empty() && record.key != key) return std::optional<RecordView>();
    return std::optional(record);
  }
  return disagree(candidate, path, "no such record starts in them");
}

}  // namespace

void seal_block(char* block, uint32_t seed, uint64_t block_number, uint32_t first_ordinal, uint32_t count,
                uint32_t first_start) {
  BlockTrailer trailer{.first_ordinal = first_ordinal,
                       .count = static_cast<uint16_t>(count),
                       .first_start = static_cast<uint16_t>(first_start),
                       .block_number = static_cast<uint32_t>(block_number),
                       .crc32c = 0};
  put_fixed(block + kPayloadBytes, trailer);
  put_u32(block + kBlockBytes - 4, crc32c_extend(seed, {block, kBlockBytes - 4}));
}

Status verify_block(Bytes block, uint32_t seed, uint64_t block_number, std::string_view path) {
  if (block.size() != kBlockBytes) {
    return corruption("{}: offset {}: expected a block of {} bytes, found {}; the file is cut off", path,
                      offset_of(block_number), kBlockBytes, block.size());
  }
  const BlockTrailer trailer = block_trailer(block.data());
  const uint32_t found = crc32c_extend(seed, block.substr(0, kBlockBytes - 4));
  if (found != trailer.crc32c) {
    return corruption("{}: offset {}: block {} has checksum {:08x}, expected {:08x}; run `swale verify`",
                      path, offset_of(block_number), block_number, found, trailer.crc32c);
  }
  if (trailer.block_number != static_cast<uint32_t>(block_number)) {
    return corruption("{}: offset {}: expected block {}, found block {} (a misdirected read or write)", path,
                      offset_of(block_number), static_cast<uint32_t>(block_number), trailer.block_number);
  }
  return {};
}

Status verify_blocks(Bytes blocks, uint32_t seed, uint64_t first_block_number, std::string_view path) {
  do {  // so that no bytes at all are refused, too
    SWALE_RETURN_IF_ERROR(verify_block(blocks.substr(0, kBlockBytes), seed, first_block_number++, path));
    blocks.remove_prefix(kBlockBytes);
  } while (!blocks.empty());
  return {};
}

Result<RunHeader> decode_run_header(Bytes block, uint32_t partition, uint64_t block_number,
                                    std::string_view path) {
  const auto problem = [&](std::string_view what) {
    return corruption("{}: offset {}: {}", path, offset_of(block_number), what);
  };
  if (block.size() < sizeof(RunHeader)) return problem("the file is cut off where a run should start");
  const auto header = get_fixed<RunHeader>(block.data());
  if (header.magic != kRunMagic) return problem("no run starts here");
  const uint32_t found =
      crc32c_extend(partition_seed(partition), block.substr(0, offsetof(RunHeader, crc32c)));
  if (found != header.crc32c) {
    return problem(fmt::format("the run header has checksum {:08x}, expected {:08x}", found, header.crc32c));
  }
  if (header.kind > RunKind::kVariable) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset {}: a run of kind {}; this build knows 0 and 1; read it with a newer swale",
                 path, offset_of(block_number), static_cast<int>(header.kind));
  }
  const uint64_t row_bytes = header.key_bytes + uint64_t{header.value_bytes};
  const bool row_possible =
      header.kind == RunKind::kUniform ? header.key_bytes > 0 && row_bytes <= kRowBytesMax : row_bytes == 0;
  if (!row_possible || header.partition != partition || header.records == 0 ||
      header.records > kRunRecordsMax || header.blocks == 0 || header.blocks > kRunBlocksMax) {
    return problem("the run header has impossible numbers");
  }
  return header;
}

Result<std::optional<RecordView>> RecordMatch::in_verified(const Candidate& candidate, Bytes blocks,
                                                           Bytes key, std::vector<char>* scratch,
                                                           std::string_view path) {
  if (blocks.empty() || blocks.size() != candidate.block_count * kBlockBytes) {
    return disagree(candidate, path, fmt::format("{} bytes were read", blocks.size()));
  }
  if (!candidate.variable()) return match_row(candidate, blocks.data(), key, path);
  return match_variable(candidate, blocks, key, scratch, path);
}

Result<std::optional<RecordView>> RecordMatch::in(const Candidate& candidate, Bytes blocks, uint32_t seed,
                                                  Bytes key, std::vector<char>* scratch,
                                                  std::string_view path) {
  if (blocks.size() != candidate.block_count * kBlockBytes) {
    return disagree(candidate, path, fmt::format("{} bytes were read; the file is cut off", blocks.size()));
  }
  SWALE_RETURN_IF_ERROR(verify_blocks(blocks, seed, candidate.block, path));
  return in_verified(candidate, blocks, key, scratch, path);
}

}  // namespace swale::run
