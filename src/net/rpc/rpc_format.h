// The wire format of requests and responses between ranks: the pieces that stand in a data frame.
//
// A frame's payload is pieces end to end, at least one. A piece is a header of 24 bytes and `piece_bytes`
// bytes of a message. A message that does not fit into one frame travels in several pieces, one a frame, in
// order; pieces of other messages may come between them.
//
// Rules:
//   - A message is cut only if no frame holds the rest of it, and has at most one piece in a frame. There
//     is no order between messages. `id` is never used again by its caller. A failure is one piece, with
//     at most 1 KiB of text (net/fabric/status_codec.h).
//   - The server answers each request once, with kResponse and kMoreResponse or with kFailure, after it
//     has got all of it or kCancel. A caller that has sent kCancel sends no more of the request, and
//     still waits for the answer. The server ignores kCancel for a request that it has answered.
//   - A request costs message_bytes + extra + 256. All ranks have one window_bytes, compared when the
//     conversation opens. The requests of a caller at a server that were not offered cost at most the
//     window, from the first piece of the request to the last piece of the answer. A request that costs
//     more than the window is sent after kGrant; message_bytes of the offer is that of the request. At
//     most four requests of a caller are offered and not granted.
//   - A piece that breaks a rule is an error of its sender (kCorruption, scope peer), and so are bytes
//     that are no piece. The receiver stops talking to the sender, and calls to it fail.
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
