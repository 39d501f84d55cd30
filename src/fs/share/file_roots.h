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
//   kLoose    file u64 u64, kept_size u64, ranges varint, (skip varint, length varint, before u32)*
//             follows the state of its file, or takes the place of what the last one has said
//
// *Loose* are committed bytes that the disk of their node may lack: a node that loses power shows what was
// there before, in memory of `before` (kNobody: the backing, or a hole). A sync of a file:
//   begin_sync() ─► each node of `ask` makes durable what it has of the file ─► end_sync()
// What was committed when it began is loose no more; what has come over it since has it before itself.
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
// what was committed when they were given; after a truncate none that was given before to another node, whose
// bytes may still be committed. (3) A range leaves its node only for bytes that a drain has
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
  bool syncs_commits = true;   // a root: what a sync has told it is durable before the answer
  bool asks_owners = true;     // a root: a sync asks the other nodes for their bytes
  bool keeps_first = true;     // a node: its own bytes are durable before it tells the root of its sync
  bool keeps_places = true;    // a root: a truncate gives no place anew whose bytes may still be committed
  bool asks_appenders = true;  // a node: it has others commit what they have appended before it truncates
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
  // Nodes drop what a drain has fixed. Whether something is before loose bytes that the drain has not
  // brought to the backing: such bytes take a sync before drained().
  Result<bool> needs_sync(const meta::FileId& file) noexcept;

  // Whether that request makes the file shorter.
  bool cuts(const ShareRequest& request) const;

  // `ask`: whose bytes `asks`, whose own are durable, needs. False: another sync or a drain is under way.
  Result<bool> begin_sync(const meta::FileId& file, NodeId asks, std::vector<NodeId>* ask) noexcept;
  bool is_syncing(const meta::FileId& file) const;
  bool is_draining(const meta::FileId& file) const;
  // `kept`: all have.
  Status end_sync(const meta::FileId& file, bool kept, std::string* record) noexcept;
  // A node begins; the last order of it that was obeyed. `has_lost_power`: its loose bytes are gone.
  Result<uint64_t> begin_node(NodeId node, bool has_lost_power, std::string* record) noexcept;
  std::vector<Span> parts_of(const meta::FileId& file, NodeId node) const;
  // A file as its root knows it, for a recovery without all nodes (fs/losses).
  struct Known {
    meta::FileId file;
    uint64_t size = 0;
    uint64_t backing_end = 0;
    SeenBacking backing, ours;
    RangeMap<NodeId> parts;
    uint64_t kept_size = 0;              // without what is loose
    RangeMap<NodeId> loose;              // what is before them
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
    RangeMap<char> safe;       // what a sync since the plan has found, and stays with its node
    bool planned = false;
    uint64_t size = 0;                   // when it was planned
    uint64_t cut_to = meta::kOffsetEnd;  // by truncates since
  };
  struct Loose {
    NodeId before = kNobody;
    uint64_t syncs = 0;  // of the file, that had begun when it was committed
    friend bool operator==(const Loose&, const Loose&) = default;
  };
  struct File {
    RangeMap<NodeId> parts;
    RangeMap<Loose> loose;  // of parts
    uint64_t size = 0;
    uint64_t kept_size = 0;  // without what is loose
    uint64_t syncs = 0;
    std::unique_ptr<RangeMap<NodeId>> syncing;  // what was loose when the sync began that is under way
    uint64_t backing_end = 0;
    uint64_t reserved_end = 0;
    SeenBacking backing;  // what it must still be when it is drained, or else
    SeenBacking ours;     // what a drain was about to name
    std::unordered_map<NodeId, Node> nodes;
    bool begun = false;  // a record says so
    std::unique_ptr<Draining> draining;

    explicit File(const SeenBacking& seen)
        : size(seen.size),
          kept_size(seen.size),
          backing_end(seen.size),
          reserved_end(seen.size),
          backing(seen) {}
  };

  void look(const ShareRequest& request, ShareAnswer* answer) const;
  void change(const ShareRequest& request, ShareAnswer* answer, std::string* record);
  void hold(const ShareRequest& request);
  void let_go(const ShareRequest& request);
  std::vector<ShareHold> holds_of_others(const ShareRequest& request) const;
  static void append_state(const meta::FileId& id, const File& file, std::string* record);
  static void append_loose(const meta::FileId& id, const RangeMap<Loose>& loose, uint64_t kept_size,
                           std::string* record);
  Status take_state(Bytes bytes);
  Status take_loose(Bytes bytes);
  ShareAnswer obey(File& file, const ShareRequest& request, bool* changed);
  void commit(File& file, const ShareRequest& request) const;
  static void loosen(File& file, const Span& span);
  static bool lose(File& file, NodeId node);
  static void fix(File& file, NodeId node);
  File& file_of(const meta::FileId& id, const SeenBacking& seen);
  Result<File*> draining(const meta::FileId& id);
  static int reserve(File& file, Node& node, const ShareRequest& request);
  static std::vector<ShareHold> appenders(const File& file, NodeId but);

  const ShareRules rules_;
  uint64_t drains_ = 0;
  uint64_t last_hold_ = random_number();  // no number of a root before this one comes again
  std::unordered_map<meta::FileId, std::unique_ptr<File>, meta::FileIdHash> files_;
  // The number of the last hold of each node.
  std::unordered_map<meta::FileId, std::map<NodeId, uint64_t>, meta::FileIdHash> holds_;
};

}  // namespace swale::fs
