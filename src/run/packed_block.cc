#include "run/packed_block.h"

#include "base/coding.h"
#include "run/block.h"

namespace swale::run {

Status append_piece(Bytes block, BlockNumber block_number, std::string_view path, std::vector<char>* out) {
  const PackedTrailer trailer = packed_trailer(block.data());
  const size_t begin = block_trailer(block.data()).first_ordinal == 0 ? sizeof(RunHeader) : 0;
  const auto damaged = [&](std::string_view problem) {
    return corruption("{}: offset {}: {}; run `swale verify`", path, block_number * kBlockBytes, problem);
  };
  if (begin + trailer.stored_bytes > kPackedBytesMax || trailer.piece_bytes == 0 ||
      trailer.piece_bytes > kPieceBytesMax || trailer.row_bytes > trailer.piece_bytes) {
    return damaged(fmt::format("a compressed piece of {} bytes that takes {} is impossible",
                               trailer.piece_bytes, trailer.stored_bytes));
  }
  if (trailer.codec > Codec::kZstd) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset {}: compressed by codec {}, which this build lacks; read it with a newer swale",
                 path, block_number * kBlockBytes, static_cast<int>(trailer.codec));
  }
  const Bytes stored = block.substr(begin, trailer.stored_bytes);
  const size_t at = out->size();
  out->resize(at + trailer.piece_bytes);
  const MutableBytes piece(out->data() + at, trailer.piece_bytes);
  bool whole;
  if (trailer.row_bytes > 1) {
    char columns[kPieceBytesMax];
    const MutableBytes part(columns, trailer.piece_bytes);
    whole = decompress(trailer.codec, stored, part);
    if (whole) restore_rows(view(part), trailer.row_bytes, piece);
  } else {
    whole = decompress(trailer.codec, stored, piece);
  }
  if (whole) return {};
  out->resize(at);
  return damaged(fmt::format("{} bytes do not decompress ({}) to the {} expected", trailer.stored_bytes,
                             codec_name(trailer.codec), trailer.piece_bytes));
}

Result<Bytes> stream_of_block(Bytes block, bool packed, BlockNumber block_number, std::string_view path,
                              std::vector<char>* scratch) {
  if (!packed) return block.substr(0, kPayloadBytes);
  scratch->clear();
  SWALE_RETURN_IF_ERROR(append_piece(block, block_number, path, scratch));
  return Bytes(scratch->data(), scratch->size());
}

}  // namespace swale::run
