// The wire format of requests and responses between ranks: the pieces that stand in a data frame.
// docs/formats/rpc.md has the rules.
//
// A frame's payload is pieces end to end, at least one. A piece is a header of 24 bytes and `piece_bytes`
// bytes of a message. A message that does not fit into one frame travels in several pieces, one a frame, in
// order; pieces of other messages may come between them.
//
// Threads: free functions.
// Format: u8 kind | u8 0 | u16 method | u32 piece_bytes | u64 id | u32 message_bytes | u32 extra,
// little-endian.
// Limits: a message has at most kRpcMessageBytesMax bytes. A frame has at least kRpcFrameBytesMin bytes, so
// that a failure fits into one.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::net {

inline constexpr size_t kRpcMessageBytesMax = 16 * kMiB;
inline constexpr size_t kRpcFrameBytesMin = 2 * kKiB;

// DO NOT CHANGE THESE VALUES: they travel.
enum class PieceKind : uint8_t {
  kRequest = 1,  // the first piece of a request; extra: the most bytes that the caller takes as a response
  kMoreRequest = 2,   // extra: where in the request the piece begins
  kResponse = 3,      // the first piece of a response; extra: 0
  kMoreResponse = 4,  // extra: where in the response the piece begins
  kFailure = 5,       // in place of a response, or of the rest of one: encode_status of what failed; extra: 0
  kCancel = 6,        // the caller no longer wants the response; no bytes
  kOffer = 7,  // a request that is too large for the window waits for kGrant; extra as in kRequest; no bytes
  kGrant = 8,  // the offered request may come; no bytes
};

struct PieceHeader {
  static constexpr size_t kBytes = 24;

  PieceKind kind = PieceKind::kRequest;
  uint16_t method = 0;         // of kRequest and kOffer, else 0
  uint32_t piece_bytes = 0;    // of the message, after this header
  uint64_t id = 0;             // the caller's number of the call
  uint32_t message_bytes = 0;  // the whole message's; 0 for kCancel and kGrant
  uint32_t extra = 0;

  void encode(char* out) const;  // kBytes
};

// One piece of a frame.
struct Piece {
  PieceHeader header;
  Bytes body;  // memory of the frame
};

// Takes the first piece off `*frame`. kCorruption (scope peer) if the bytes are none; `*frame` is then as it
// was.
Result<Piece> take_piece(Bytes* frame);

}  // namespace swale::net
