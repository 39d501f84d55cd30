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
//                                        nodes varint, (node u32, changed u64, reserved u64, offset u64)*,
//                                        parts varint, (skip varint, length varint, node u32)*
//
// Threads: one at a time; never waits.
// Invariants: (1) A change that was obeyed is not obeyed again, nor one of the same node that is older: late
// and doubled copies get an answer and change nothing. (2) Reserved places overlap neither each other nor
// what was committed when they were given.
// Errors: a Result is an answer that the sender may ask for again; an errno in the answer is final.
// Memory: a RangeMap a file, and 40 bytes for each node that has written it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "fs/share/share_messages.h"

namespace swale::fs {

// Decisions that tests replace, to show that they would notice.
struct ShareRules {
  bool obey_once = true;       // a root
  bool own_from_begin = true;  // a node: its own bytes count from when a read began
  bool learn_orders = true;    // a node: its next server asks which bytes were committed
};

class FileRoots {
 public:
  explicit FileRoots(const ShareRules& rules = {}) : rules_(rules) {}

  // `record`: what must be written before the answer is sent; empty: nothing.
  Result<ShareAnswer> handle(const ShareRequest& request, std::string* record) noexcept;
  Status replay(Bytes record) noexcept;
  // visit(record) of each file that has changed.
  Status states(const std::function<Status(Bytes)>& visit) const noexcept;
  size_t files() const { return files_.size(); }
  // The file is gone. Late requests find one that has nobody's bytes.
  void forget(const meta::FileId& file) noexcept { files_.erase(file); }

 private:
  struct Node {
    uint64_t changed = 0;   // the order of its last commit or truncate
    uint64_t reserved = 0;  // of its last reservation, which
    uint64_t offset = 0;    // was here
  };
  struct File {
    RangeMap<NodeId> parts;
    uint64_t size = 0;
    uint64_t backing_end = 0;
    uint64_t reserved_end = 0;
    std::unordered_map<NodeId, Node> nodes;
    bool begun = false;  // a record says so

    explicit File(uint64_t first_size)
        : size(first_size), backing_end(first_size), reserved_end(first_size) {}
  };

  void look(const ShareRequest& request, ShareAnswer* answer) const;
  void change(const ShareRequest& request, ShareAnswer* answer, std::string* record);
  static void append_state(const meta::FileId& id, const File& file, std::string* record);
  Status take_state(Bytes bytes);
  ShareAnswer obey(File& file, const ShareRequest& request, bool* changed);
  static void commit(File& file, const ShareRequest& request);
  static int reserve(File& file, Node& node, const ShareRequest& request);

  const ShareRules rules_;
  std::unordered_map<meta::FileId, std::unique_ptr<File>, meta::FileIdHash> files_;
};

}  // namespace swale::fs
