// FileRoots: which node has which bytes of the files whose names this server keeps, and how long they are.
// Changes of one file come one after the other here: this order is that of the commits of its nodes.
//
// What the backing had when the job first asked, the nodes say themselves (ShareRequest::backing): the root
// need not know where the file is.
//
// Durability: each change gives a record (a request, as it came). The caller writes it before it sends the
// answer, and replays all records, in their order, into a new FileRoots after a kill (RootsLog, fs/node).
// states() are records, too: what begins a log in place of all that were before it.
//
//   record := (kind u8, bytes sized)*
//   kRequest  a request          kState  file u64 u64, size u64, backing_end u64, reserved_end u64,
//                                        2 * (inode u64, size u64, modified_ns u64): backing, ours,
//                                        nodes varint, (node u32, changed u64, reserved u64, offset u64)*,
//                                        parts varint, (skip varint, length varint, node u32)*
//
// A drain of a file (docs/design/node-files.md):
//   begin_drain() ─► each node: kFix ─► plan_drain() ─► the bytes are written ─► announce() ─► the file has
//   its name ─► drained() ─► end_drain()
// What is committed after a node's kFix is not part of it, and stays with its node.
//
// Holds are in no record: the servers of a job start together, and what their nodes went on by before is
// void.
//
// Threads: one at a time; never waits.
// Invariants: (1) A change that was obeyed is not obeyed again, nor one of the same node that is older: late
// and doubled copies get an answer and change nothing. (2) Reserved places overlap neither each other nor
// what was committed when they were given. (3) A range leaves its node only for bytes that a drain has
// brought to the backing, and that nobody has committed anew since that node's kFix.
// Errors: a Result is an answer that the sender may ask for again; an errno in the answer is final.
// Memory: a RangeMap a file, and 40 bytes for each node that has written it, or holds it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/entropy.h"
#include "fs/share/share_messages.h"

namespace swale::fs {

// Decisions that tests replace, to show that they would notice.
struct ShareRules {
  bool obey_once = true;       // a root
  bool own_from_begin = true;  // a node: its own bytes count from when a read began
  bool learn_orders = true;    // a node: its next server asks which bytes were committed
  bool keep_changed = true;    // a root: what is committed while a drain is under way stays with its node
  bool owner_leads = true;     // a node: it writes what the root says, not all that it has
  bool takes_back = true;      // a node: its changes wait until others have let go
};

class FileRoots {
 public:
  explicit FileRoots(const ShareRules& rules = {}) : rules_(rules) {}

  // `record`: what must be written before the answer is sent; empty: nothing.
  Result<ShareAnswer> handle(const ShareRequest& request, std::string* record) noexcept;
  Status replay(Bytes record) noexcept;
  // visit(record) of each file that has changed.
  Status states(const std::function<Status(Bytes)>& visit) const noexcept;

  struct Drain {
    uint64_t number = 0;
    std::vector<NodeId> nodes;  // that have changed the file
  };
  // kBusy: one is under way.
  Result<Drain> begin_drain(const meta::FileId& file, const SeenBacking& seen) noexcept;
  struct Plan {
    std::vector<SharePart> parts;  // what is to be written, and by whom
    uint64_t size = 0;
    uint64_t backing_end = 0;
    SeenBacking backing;   // what must be there, or
    SeenBacking ours;      // what a drain that was killed has made of it
    bool nothing = false;  // all of it is there
  };
  Result<Plan> plan_drain(const meta::FileId& file) noexcept;
  // `record`: what must be durable when the next step begins.
  Status announce(const meta::FileId& file, const SeenBacking& ours, std::string* record) noexcept;
  // `aside`: the backing keeps its own file, which `now` is.
  Status drained(const meta::FileId& file, const SeenBacking& now, bool aside, std::string* record) noexcept;
  void end_drain(const meta::FileId& file) noexcept;
  std::vector<Span> parts_of(const meta::FileId& file, NodeId node) const;
  // A file as its root knows it, for a recovery without all nodes (fs/losses).
  struct Known {
    meta::FileId file;
    uint64_t size = 0;
    uint64_t backing_end = 0;
    SeenBacking backing, ours;
    RangeMap<NodeId> parts;
    std::map<NodeId, uint64_t> changed;  // the last order of each node that was obeyed
  };
  std::vector<Known> known() const;
  // The file is gone. Late requests find one that has nobody's bytes.
  void forget(const meta::FileId& file) noexcept {
    files_.erase(file);
    holds_.erase(file);
  }

 private:
  struct Node {
    uint64_t changed = 0;   // the order of its last commit or truncate
    uint64_t reserved = 0;  // of its last reservation, which
    uint64_t offset = 0;    // was here
  };
  struct Draining {
    uint64_t number = 0;
    RangeMap<NodeId> parts;    // of the nodes that have fixed theirs
    RangeMap<char> unchanged;  // of these, since then
    bool planned = false;
    uint64_t size = 0;                   // when it was planned
    uint64_t cut_to = meta::kOffsetEnd;  // by truncates since
  };
  struct File {
    RangeMap<NodeId> parts;
    uint64_t size = 0;
    uint64_t backing_end = 0;
    uint64_t reserved_end = 0;
    SeenBacking backing;  // what it must still be when it is drained, or else
    SeenBacking ours;     // what a drain was about to name
    std::unordered_map<NodeId, Node> nodes;
    bool begun = false;  // a record says so
    std::unique_ptr<Draining> draining;

    explicit File(const SeenBacking& seen)
        : size(seen.size), backing_end(seen.size), reserved_end(seen.size), backing(seen) {}
  };

  void look(const ShareRequest& request, ShareAnswer* answer) const;
  void change(const ShareRequest& request, ShareAnswer* answer, std::string* record);
  void hold(const ShareRequest& request);
  void let_go(const ShareRequest& request);
  std::vector<ShareHold> holds_of_others(const ShareRequest& request) const;
  static void append_state(const meta::FileId& id, const File& file, std::string* record);
  Status take_state(Bytes bytes);
  ShareAnswer obey(File& file, const ShareRequest& request, bool* changed);
  void commit(File& file, const ShareRequest& request) const;
  static void fix(File& file, NodeId node);
  File& file_of(const meta::FileId& id, const SeenBacking& seen);
  Result<File*> draining(const meta::FileId& id);
  static int reserve(File& file, Node& node, const ShareRequest& request);

  const ShareRules rules_;
  uint64_t drains_ = 0;
  uint64_t last_hold_ = random_number();  // no number of a root before this one comes again
  std::unordered_map<meta::FileId, std::unique_ptr<File>, meta::FileIdHash> files_;
  // The number of the last hold of each node.
  std::unordered_map<meta::FileId, std::map<NodeId, uint64_t>, meta::FileIdHash> holds_;
};

}  // namespace swale::fs
