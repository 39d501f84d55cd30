// NodeShare: what a node knows of files that other nodes write, too: which of its own bytes no commit has
// told the roots of yet. It makes the requests to the roots, and plans reads from their answers.
//
//   wrote() ... begin_change() ─► root ─► end_change()         from now on every node sees it
//   begin_read() ─► root ─► plan() ─► each node once ─► bytes   in which own_at_end() are this node's
//
// Bytes of this node that are not committed are on top of all others here. A commit under way may or may not
// have reached the root, so its bytes are on top, too, until the answer is there.
//
// Threads: one at a time; never waits.
// Invariants: (1) What wrote() was told before begin_read() shows in that read, unless a commit of another
// node that has not ended before the read began is over it. (2) One change of a file is under way at a time.
// Errors: kBusy: a change of this file is under way: wait for its end, then begin again. kUnavailable:
// question() comes first.
// Memory: a RangeMap a file of what is not committed; after a restart each piece until its file was looked
// at.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fs/share/file_roots.h"

namespace swale::fs {

// Where the bytes of a span come from.
struct ReadPart {
  enum class From { kOwn, kNode, kBacking, kZeros };
  Span span;
  From from = From::kZeros;
  NodeId node = 0;  // kNode
  friend bool operator==(const ReadPart&, const ReadPart&) = default;
};

class NodeShare {
 public:
  explicit NodeShare(NodeId node, const ShareRules& rules = {}) : node_(node), rules_(rules) {}

  // A process of this node has written these bytes.
  Status wrote(const meta::FileId& file, const Span& span) noexcept;
  // The same, of a server before this one: maybe a commit of that told the root.
  Status found(const meta::FileId& file, uint64_t order, const Span& span) noexcept;
  // What must be asked before anything else of this file, and the answer.
  std::optional<ShareRequest> question(const meta::FileId& file) const;
  // Of which files that is.
  std::vector<meta::FileId> found() const;
  Status learn(const meta::FileId& file, const ShareAnswer& answer) noexcept;

  // The commit of all that was written up to `order`; none: there is nothing to commit.
  Result<std::optional<ShareRequest>> begin_commit(const meta::FileId& file, uint64_t order) noexcept;
  // The same, and the file ends at `size` then. No write has had this order.
  Result<ShareRequest> begin_truncate(const meta::FileId& file, uint64_t order, uint64_t size) noexcept;
  // The same without a size, for a drain: all that this node has written up to `order` is its part of it.
  Result<ShareRequest> begin_fix(const meta::FileId& file, uint64_t order, uint64_t drain) noexcept;
  // The same, also if there is nothing to commit: no other change of this node comes until it has ended.
  Result<ShareRequest> begin_sync(const meta::FileId& file, uint64_t order) noexcept;
  enum class Ended {
    kObeyed,
    kUnknown  // no answer came: it may still be obeyed, until the next change is
  };
  void end_change(const meta::FileId& file, Ended ended) noexcept;
  ShareRequest reservation(const meta::FileId& file, uint64_t order, uint64_t bytes) const;

  // A read: what is kept from its begin to its end.
  struct Reading {
    meta::FileId file;
    Span span;
    RangeMap<char> own;    // not committed when it began
    uint64_t own_end = 0;  // of all such bytes of the file
  };
  Result<Reading> begin_read(const meta::FileId& file, const Span& span) const noexcept;
  ShareRequest look(const Reading& reading) const;
  // In order, up to the end of the file. kOwn: the newest bytes that this node has.
  Result<std::vector<ReadPart>> plan(const Reading& reading, const ShareAnswer& answer) const noexcept;
  // What this node has written since the read began must show, too: its bytes, read last, go over the others.
  Result<std::vector<Span>> own_at_end(const Reading& reading) const noexcept;
  // For those that go on by the answer: which bytes of the span are this node's own on top of all others now.
  // No change of this node has ended since the root was asked, and with the next one they are to ask anew:
  // who has committed last is what the root says.
  Result<RangeMap<char>> own_on_top(const Reading& reading, const ShareAnswer& answer) const noexcept;
  // Where the file ends on this node.
  uint64_t size(const meta::FileId& file, const ShareAnswer& answer) const;

 private:
  struct Found {
    uint64_t order;
    Span span;
  };
  struct File {
    RangeMap<char> fresh;      // written since the last change began
    RangeMap<char> underway;   // the root is being told, or was and has not answered
    bool busy = false;         // it is being told
    bool unknown = false;      // it has not answered
    std::vector<Found> found;  // not yet known to be committed

    uint64_t end() const { return std::max(fresh.end(), underway.end()); }
  };

  File& file_of(const meta::FileId& id);
  const File* find(const meta::FileId& id) const;
  Result<ShareRequest> begin(const meta::FileId& id, File& file, ShareOp op, uint64_t order);
  Result<ShareRequest> begin_sized(const meta::FileId& id, ShareOp op, uint64_t order,
                                   uint64_t size) noexcept;

  const NodeId node_;
  const ShareRules rules_;
  std::unordered_map<meta::FileId, std::unique_ptr<File>, meta::FileIdHash> files_;
};

}  // namespace swale::fs
