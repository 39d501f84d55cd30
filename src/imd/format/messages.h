// The epoch protocol's messages: payloads of control frames. Encoded little-endian; decoded to a Result.
//
//   END       rank → every rank   "in this epoch I have sent you `records` records"; where records go by
//                                 three hops, to the neighbours in the tree alone: "I have come to the end of
//                                 this epoch"
//   DURABLE   child → parent    tallies merged over the child's subtree, once its part of the epoch is on
//                               storage
//   COMMITTED parent → child    from rank 0 down the tree: the epoch exists
//   CLOSE     rank → every rank "I shall send nothing more"; with three hops, as END, and then child → parent
//             "nor will
//                               any rank below me", parent → child "nobody will"
// A rank that has failed tells the others as any conversation does (net/talk/conversation.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/epoch_stats.h"
#include "imd/format/extrema_summary.h"
#include "imd/format/manifest.h"
#include "imd/format/record_tally.h"
#include "net/fabric/transport.h"
#include "net/meeting/call_order.h"

namespace swale::imd {

struct EndMessage {
  EpochNumber epoch = {};
  uint64_t records = 0;
  net::CallStamp call = {};
};

struct DurableMessage {
  EpochNumber epoch = {};
  net::Rank step_rank = 0;  // a rank that gave step and time, for the message when two differ
  int64_t step = 0;
  double time = 0;
  RecordTally appended;
  RecordTally indexed;
  ExtremaSummary extrema = {};
  LargeTally large = {};  // of `appended`
  EpochStats stats = {};
  uint64_t keys = 0;  // digests of keys sent less those of keys got: 0 over all ranks
};

struct CommittedMessage {
  EpochNumber epoch = {};
};

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class CloseWord : uint8_t { kComes = 0, kAllBelow = 1, kEverybody = 2 };

struct CloseMessage {
  net::CallStamp call = {};  // of kComes
  CloseWord word = CloseWord::kComes;
};

using Message = std::variant<EndMessage, DurableMessage, CommittedMessage, CloseMessage>;

std::string encode(const Message& message);
Result<Message> decode_message(Bytes bytes, net::Rank from);

}  // namespace swale::imd
