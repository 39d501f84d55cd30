#include "net/rpc/rpc_format.h"

#include "base/coding.h"

namespace swale::net {
namespace {

bool known(uint8_t kind) {
  return kind >= static_cast<uint8_t>(PieceKind::kRequest) && kind <= static_cast<uint8_t>(PieceKind::kGrant);
}

bool has_method(PieceKind kind) { return kind == PieceKind::kRequest || kind == PieceKind::kOffer; }

// Why the header can not be right, whatever was said before; nullptr: it can.
const char* problem(const PieceHeader& header) {
  if (header.message_bytes > kRpcMessageBytesMax) return "the message is too long";
  if (header.method != 0 && !has_method(header.kind)) return "a method where none belongs";
  switch (header.kind) {
    case PieceKind::kRequest:
      if (header.extra > kRpcMessageBytesMax) return "the response may be too long";
      return header.piece_bytes > header.message_bytes ? "the piece is longer than the message" : nullptr;
    case PieceKind::kResponse:
      if (header.extra != 0) return "the last field is not zero";
      return header.piece_bytes > header.message_bytes ? "the piece is longer than the message" : nullptr;
    case PieceKind::kMoreRequest:
    case PieceKind::kMoreResponse:
      if (header.piece_bytes == 0) return "an empty continuation";
      return uint64_t{header.extra} + header.piece_bytes > header.message_bytes
                 ? "the piece ends after its message"
                 : nullptr;
    case PieceKind::kFailure:
      if (header.extra != 0) return "the last field is not zero";
      return header.piece_bytes != header.message_bytes ? "a failure in several pieces" : nullptr;
    case PieceKind::kOffer:
      if (header.extra > kRpcMessageBytesMax) return "the response may be too long";
      return header.piece_bytes != 0 ? "bytes where none belong" : nullptr;
    case PieceKind::kCancel:
    case PieceKind::kGrant:
      if (header.message_bytes != 0 || header.extra != 0) return "fields that are not zero";
      return header.piece_bytes != 0 ? "bytes where none belong" : nullptr;
  }
  return "an unknown kind";
}

}  // namespace

void PieceHeader::encode(char* out) const {
  out[0] = static_cast<char>(kind);
  out[1] = 0;
  put_u16(out + 2, method);
  put_u32(out + 4, piece_bytes);
  put_u64(out + 8, id);
  put_u32(out + 16, message_bytes);
  put_u32(out + 20, extra);
}

Result<Piece> take_piece(Bytes* frame) {
  if (frame->size() < PieceHeader::kBytes) {
    return error(Code::kCorruption, Scope::kPeer, "a piece's header needs {} bytes, found {}",
                 PieceHeader::kBytes, frame->size());
  }
  const char* in = frame->data();
  const auto kind = static_cast<uint8_t>(in[0]);
  if (!known(kind) || in[1] != 0) {
    return error(Code::kCorruption, Scope::kPeer,
                 "unknown kind of piece {} (next byte {}): do all ranks run the same version of Swale?", kind,
                 static_cast<uint8_t>(in[1]));
  }
  Piece piece;
  piece.header.kind = static_cast<PieceKind>(kind);
  piece.header.method = get_u16(in + 2);
  piece.header.piece_bytes = get_u32(in + 4);
  piece.header.id = get_u64(in + 8);
  piece.header.message_bytes = get_u32(in + 16);
  piece.header.extra = get_u32(in + 20);
  if (const char* why = problem(piece.header)) {
    return error(Code::kCorruption, Scope::kPeer, "a piece of kind {} of call {:x}: {} ({} of {} bytes, {})",
                 kind, piece.header.id, why, piece.header.piece_bytes, piece.header.message_bytes,
                 piece.header.extra);
  }
  const size_t after = frame->size() - PieceHeader::kBytes;
  if (piece.header.piece_bytes > after) {
    return error(Code::kCorruption, Scope::kPeer, "a piece of call {:x} has {} bytes, found {}",
                 piece.header.id, piece.header.piece_bytes, after);
  }
  piece.body = frame->substr(PieceHeader::kBytes, piece.header.piece_bytes);
  frame->remove_prefix(PieceHeader::kBytes + piece.header.piece_bytes);
  return piece;
}

}  // namespace swale::net
