#include "run/block.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/packed_block.h"

namespace swale::run {
namespace {

uint64_t offset_of(BlockNumber block_number) { return block_number * kBlockBytes; }

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
  // The whole row: rows of another length than the block's may begin before the end and reach beyond the
  // block.
  if (at < trailer.first_start || at + row_bytes > rows_end || rows_end > kPayloadBytes) {
    return disagree(candidate, path,
                    fmt::format("rows of {} bytes lie at {}..{}", row_bytes, trailer.first_start, rows_end));
  }
  const char* const row = block + at;
  if (!key.empty() && Bytes(row, candidate.key_bytes) != key) return std::optional<RecordView>();
  return std::optional(RecordView{.key = {row, candidate.key_bytes},
                                  .value = {row + candidate.key_bytes, candidate.value_bytes},
                                  .encoded = {}});
}

}  // namespace

class StreamWalker {
 public:
  StreamWalker(const Candidate& candidate, BlockWalk* walk, std::string_view path)
      : candidate_(candidate), walk_(*walk), path_(path) {}

  // Walks the records that start in the first of `blocks`, from number `from` or an earlier one on, until
  // fn(number in the block, record) returns false; the last one may continue in the other blocks. Not kOk:
  // why the next record could not be parsed.
  template <class Fn>
  Result<RecordParse> walk(Bytes blocks, uint32_t from, Fn&& fn) {
    const BlockTrailer trailer = block_trailer(blocks.data());
    if (trailer.count == 0) return RecordParse::kOk;
    SWALE_ASSIGN_OR_RETURN(const Bytes stream, begin(blocks, trailer, from));
    if (trailer.first_start >= stream.size()) return RecordParse::kMalformed;
    RecordView record;
    for (; walk_.next_ < trailer.count; ++walk_.next_) {
      const Bytes rest = stream.substr(walk_.at_);
      RecordParse parse = parse_record(rest, &record);
      if (parse == RecordParse::kCutOff && walk_.next_ + 1 == trailer.count && blocks.size() > kBlockBytes) {
        SWALE_RETURN_IF_ERROR(assemble(rest, blocks.substr(kBlockBytes)));
        parse = parse_record({walk_.spanning_.data(), walk_.spanning_.size()}, &record);
      }
      if (parse != RecordParse::kOk) return parse;
      if (!fn(walk_.next_, record)) return RecordParse::kOk;
      walk_.at_ += std::min(record.encoded.size(), rest.size());
    }
    return RecordParse::kOk;
  }

 private:
  BlockNumber number_of(Bytes blocks) const {
    return candidate_.block + candidate_.block_count - blocks.size() / kBlockBytes;
  }

  // The stream of the first block, and in walk_ where to begin in it.
  Result<Bytes> begin(Bytes blocks, const BlockTrailer& trailer, uint32_t from) {
    const Bytes block = blocks.substr(0, kBlockBytes);
    const bool known = walk_.block_ == block.data() && walk_.packed_ == candidate_.packed;
    if (!known) {
      walk_.forget();
      if (candidate_.packed) {
        ++walk_.decompressed_;
        walk_.piece_.clear();
        SWALE_RETURN_IF_ERROR(append_piece(block, number_of(blocks), path_, &walk_.piece_));
        walk_.stream_ = {walk_.piece_.data(), walk_.piece_.size()};
      }
      walk_.block_ = block.data();
      walk_.packed_ = candidate_.packed;
    }
    if (!known || walk_.next_ > from) {
      walk_.next_ = 0;
      walk_.at_ = trailer.first_start;
    }
    return candidate_.packed ? walk_.stream_ : block.substr(0, kPayloadBytes);
  }

  Status assemble(Bytes front, Bytes blocks) {
    walk_.spanning_.assign(front.begin(), front.end());
    for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes)) {
      if (candidate_.packed) {
        ++walk_.decompressed_;
        SWALE_RETURN_IF_ERROR(
            append_piece(blocks.substr(0, kBlockBytes), number_of(blocks), path_, &walk_.spanning_));
      } else {
        walk_.spanning_.insert(walk_.spanning_.end(), blocks.begin(), blocks.begin() + kPayloadBytes);
      }
    }
    return {};
  }

  const Candidate& candidate_;
  BlockWalk& walk_;
  const std::string_view path_;
};

namespace {

// Not inlined, so that matching a row stays a few instructions.
[[gnu::noinline]] Result<std::optional<RecordView>> match_stream(const Candidate& candidate, Bytes blocks,
                                                                 Bytes key, BlockWalk* walk,
                                                                 std::string_view path) {
  for (; !blocks.empty(); blocks.remove_prefix(kBlockBytes)) {
    const BlockTrailer trailer = block_trailer(blocks.data());
    const uint32_t skip = candidate.slot - trailer.first_ordinal;
    if (candidate.slot < trailer.first_ordinal || skip >= trailer.count) continue;
    std::optional<RecordView> found;
    SWALE_ASSIGN_OR_RETURN(
        const RecordParse parse,
        StreamWalker(candidate, walk, path).walk(blocks, skip, [&](uint32_t i, const RecordView& record) {
          if (i == skip) found = record;
          return i < skip;
        }));
    if (!found) {
      return disagree(
          candidate, path,
          parse == RecordParse::kCutOff ? "it is cut off" : "it, or a record before it, is malformed");
    }
    if (!key.empty() && found->key != key) return std::optional<RecordView>();
    return found;
  }
  return disagree(candidate, path, "no such record starts in them");
}

}  // namespace

void BlockWalk::know(const char* block, Bytes piece) {
  if (block_ == block && packed_) return;
  block_ = block;
  packed_ = true;
  stream_ = piece;
  next_ = UINT32_MAX;  // the next walk begins at the block's first record
}

void seal_block(char* block, uint32_t seed, BlockNumber block_number, uint32_t first_ordinal, uint32_t count,
                uint32_t first_start) {
  BlockTrailer trailer{.first_ordinal = first_ordinal,
                       .count = static_cast<uint16_t>(count),
                       .first_start = static_cast<uint16_t>(first_start),
                       .block_number = static_cast<uint32_t>(block_number),
                       .crc32c = 0};
  put_fixed(block + kPayloadBytes, trailer);
  put_u32(block + kBlockBytes - 4, crc32c_extend(seed, {block, kBlockBytes - 4}));
}

Status verify_block(Bytes block, uint32_t seed, BlockNumber block_number, std::string_view path) {
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

Status verify_blocks(Bytes blocks, uint32_t seed, BlockNumber first_block_number, std::string_view path) {
  BlockNumber number = first_block_number;
  do {  // also refuses an empty piece
    SWALE_RETURN_IF_ERROR(verify_block(blocks.substr(0, kBlockBytes), seed, number, path));
    blocks.remove_prefix(kBlockBytes);
    ++number;
  } while (!blocks.empty());
  return {};
}

Result<RunHeader> decode_run_header(Bytes block, PartitionNumber partition, BlockNumber block_number,
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
  if (header.kind > RunKind::kPacked || header.home > HomeRule::kWriter ||
      header.values > ValueRule::kPaged) {
    return error(
        Code::kUnsupported, Scope::kFile,
        "{}: offset {}: a run of kind {}, home {} and values {}; this build knows kinds 0 to 2, homes 0 to "
        "2, values 0 and 1; read it with a newer swale",
        path, offset_of(block_number), static_cast<int>(header.kind), static_cast<int>(header.home),
        static_cast<int>(header.values));
  }
  const uint64_t row_bytes = header.key_bytes + uint64_t{header.value_bytes};
  const bool row_possible =
      header.kind == RunKind::kUniform ? header.key_bytes > 0 && row_bytes <= kRowBytesMax : row_bytes == 0;
  const bool codec_possible =
      header.codec <= static_cast<uint32_t>(Codec::kZstd) || header.kind != RunKind::kPacked;
  if (!codec_possible) {
    return error(
        Code::kUnsupported, Scope::kFile,
        "{}: offset {}: a run compressed by codec {}, which this build lacks; read it with a newer swale",
        path, offset_of(block_number), header.codec);
  }
  const bool job_possible = partition < header.ranks && header.ranks <= kRanksMax && header.way < header.ways;
  if (!row_possible || !job_possible || header.partition != partition || header.records == 0 ||
      header.records > kRunRecordsMax || header.blocks == 0 || header.blocks > kRunBlocksMax) {
    return problem("the run header has impossible numbers");
  }
  return header;
}

Result<std::optional<RecordView>> RecordMatch::in_verified(const Candidate& candidate, Bytes blocks,
                                                           Bytes key, BlockWalk* walk,
                                                           std::string_view path) {
  if (blocks.empty() || blocks.size() != candidate.block_count * kBlockBytes) {
    return disagree(candidate, path, fmt::format("{} bytes were read", blocks.size()));
  }
  assert(!candidate.any_slot());
  if (!candidate.variable()) return match_row(candidate, blocks.data(), key, path);
  return match_stream(candidate, blocks, key, walk, path);
}

Status RecordMatch::each_in_verified(const Candidate& candidate, Bytes blocks, Bytes key, BlockWalk* walk,
                                     std::string_view path, const MatchFn& fn) {
  assert(candidate.any_slot());
  if (blocks.empty() || blocks.size() != candidate.block_count * kBlockBytes) {
    return disagree(candidate, path, fmt::format("{} bytes were read", blocks.size()));
  }
  const BlockTrailer trailer = block_trailer(blocks.data());
  if (!candidate.variable()) {
    const size_t row_bytes = candidate.key_bytes + size_t{candidate.value_bytes};
    Candidate row = candidate;
    for (row.slot = static_cast<uint32_t>(trailer.first_start / row_bytes); trailer.count > 0; ++row.slot) {
      if (row.slot * row_bytes >= trailer.first_start + trailer.count * row_bytes) break;
      SWALE_ASSIGN_OR_RETURN(const auto record, match_row(row, blocks.data(), key, path));
      if (record && !fn(*record)) break;
    }
    return {};
  }
  SWALE_ASSIGN_OR_RETURN(
      const RecordParse parse,
      StreamWalker(candidate, walk, path).walk(blocks, 0, [&](uint32_t, const RecordView& record) {
        return record.key != key || fn(record);
      }));
  // A record that continues after the candidate's blocks has another hash: otherwise the fences would name
  // more blocks.
  if (parse == RecordParse::kMalformed) return disagree(candidate, path, "one of its records is malformed");
  return {};
}

}  // namespace swale::run
