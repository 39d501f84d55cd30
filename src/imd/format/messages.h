// The epoch protocol's messages: payloads of control frames. Encoded little-endian; decoded to a Result.
//
//   END       rank → every rank   "in this epoch I have sent you `records` records"
//   DURABLE   child → parent    tallies merged over the child's subtree, once its part of the epoch is on storage
//   COMMITTED parent → child    from rank 0 down the tree: the epoch exists
//   CLOSE     rank → every rank "I shall send nothing more"
// A rank that has failed tells the others as any conversation does (net/conversation.h).
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
#include "net/call_order.h"
#include "net/transport.h"

namespace swale::imd {

struct EndMessage {
  uint32_t epoch = 0;
  uint64_t records = 0;
  net::CallStamp call = {};
};

struct DurableMessage {
  uint32_t epoch = 0;
  net::Rank step_rank = 0;  // a rank that gave step and time, for the message when two differ
  int64_t step = 0;
  double time = 0;
  RecordTally appended;
  RecordTally indexed;
  ExtremaSummary extrema = {};
  LargeTally large = {};  // of `appended`
  EpochStats stats = {};
};

struct CommittedMessage {
  uint32_t epoch = 0;
};

struct CloseMessage {
  net::CallStamp call = {};
};

using Message = std::variant<EndMessage, DurableMessage, CommittedMessage, CloseMessage>;

std::string encode(const Message& message);
Result<Message> decode_message(Bytes bytes, net::Rank from);

}  // namespace swale::imd
