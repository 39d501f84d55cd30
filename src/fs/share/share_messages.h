// What a node and the root of a file say to each other about which node has which bytes
// (docs/design/node-files.md). The root of a file is the server that keeps its name: FileId::high.
//
//   kLook      parts of a span, the size                        changes nothing; without a span its holds are
//              other nodes that have asked for a place since their last commit, and their order
//   kCommit    what this node has written up to `order`         from now on every read sees it
//   kTruncate  the same, and then the file ends at `size`
//   kFix       a commit; and what the node has last is its part of the drain of number `size`
//   kSync      a commit, whose bytes the node's disk has: what is committed to the file is to outlive power
//   kReserve   a place for `size` bytes behind all that is committed or reserved, and behind `end`
//   kHold      a kLook; the node goes on by the answer until it is told to let go
//   kLetGo     these holds are over
//
// A node has one kCommit, kTruncate, kFix or kSync of a file under way, and one kReserve. Its orders ascend,
// also over restarts of its server; the root obeys each once, and none that is as old as one that it has
// obeyed.
//
//   request := op u8, node u32, file u64 u64, order u64, begin u64, end u64, size u64,
//              backing (inode u64, size u64, modified_ns u64), spans, holds if op is kLetGo
//   spans   := count varint, (skip varint, length varint, more varint, (stride varint if more))*
//              a begin is told from the end before it; `more` spans of the same length follow in strides
//   answer  := error u32, size u64, backing_end u64, backing_inode u64, committed u64, offset u64,
//              count varint, (skip varint, length varint, node u32)*, holds?
//   holds   := count varint, (node u32, number u64)*
//   fetch   := file u64 u64, spans    of a node: its bytes, one span after the other
//
// `backing`: what the node has seen there when it opened the file. The first change of a file tells the root.
//
// Holds end an answer to a change: other nodes that read by what was so before. Whoever changes the file has
// them let go before the change counts as made. An answer without any is as it was before there were holds.
//
// Errors: decoding foreign bytes gives kCorruption.
// Threads: plain values. Requests of changes are also the records of the root's log.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"
#include "fs/share/range_map.h"
#include "meta/index/types.h"

namespace swale::fs {

using NodeId = uint32_t;
inline constexpr NodeId kNobody = ~NodeId{0};
inline constexpr Span kWholeFile{0, meta::kOffsetEnd};

enum class ShareOp : uint8_t { kLook = 1, kCommit, kTruncate, kReserve, kFix, kSync, kHold, kLetGo };

// A file of the backing, as all nodes see it; inode 0: there was none.
struct SeenBacking {
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  friend bool operator==(const SeenBacking&, const SeenBacking&) = default;
};

// A node that goes on by an answer of the root. Each kHold has its own number.
struct ShareHold {
  NodeId node = 0;
  uint64_t number = 0;
  friend bool operator==(const ShareHold&, const ShareHold&) = default;
};

struct ShareRequest {
  ShareOp op = ShareOp::kLook;
  NodeId node = 0;
  meta::FileId file = {};
  uint64_t order = 0;
  Span span = {};     // kLook, kHold; kReserve: `end` is where the file ends on this node
  uint64_t size = 0;  // kTruncate, kReserve; kFix: the drain's number
  SeenBacking backing = {};
  std::vector<Span> spans = {};
  std::vector<ShareHold> holds = {};  // kLetGo
  friend bool operator==(const ShareRequest&, const ShareRequest&) = default;
};

// What a root keeps in its log.
inline bool may_change(const ShareRequest& request) {
  switch (request.op) {
    case ShareOp::kLook:
    case ShareOp::kHold:
    case ShareOp::kLetGo:
      return false;
    case ShareOp::kSync:
      return !request.spans.empty();
    case ShareOp::kCommit:
    case ShareOp::kTruncate:
    case ShareOp::kReserve:
    case ShareOp::kFix:
      return true;
  }
  return true;
}

struct SharePart {
  Span span;
  NodeId node = 0;
  friend bool operator==(const SharePart&, const SharePart&) = default;
};

struct ShareAnswer {
  int error = 0;               // errno
  uint64_t size = 0;           // committed
  uint64_t backing_end = 0;    // where no node has bytes, the backing has them up to here; zeros follow
  uint64_t backing_inode = 0;  // of that file
  uint64_t committed = 0;      // the last order of this node that was obeyed
  uint64_t offset = 0;         // kReserve
  std::vector<SharePart> parts = {};  // kLook, kHold, in order
  std::vector<ShareHold> holds = {};  // kCommit, kTruncate, kFix, kSync; kLook without a span
  friend bool operator==(const ShareAnswer&, const ShareAnswer&) = default;
};

// Of a node: bytes that it has.
struct FetchRequest {
  meta::FileId file = {};
  std::vector<Span> spans = {};
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Span& each : spans) sum += each.end - each.begin;
    return sum;
  }
  friend bool operator==(const FetchRequest&, const FetchRequest&) = default;
};
inline constexpr uint64_t kFetchBytesMax = 8 * kMiB;  // of one request; who wants more asks again

void append_spans(std::string* out, const std::vector<Span>& spans);
bool take_spans(Decoder* in, std::vector<Span>* spans);  // false: these bytes are none
std::string encode(const ShareRequest& request);
Result<ShareRequest> decode_share_request(Bytes bytes);
std::string encode(const ShareAnswer& answer);
Result<ShareAnswer> decode_share_answer(Bytes bytes);
std::string encode(const FetchRequest& request);
Result<FetchRequest> decode_fetch_request(Bytes bytes);

}  // namespace swale::fs
