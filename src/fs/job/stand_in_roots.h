// StandInRoots: what the root of a file (the server of its name) knows of the file's stand-ins on all nodes
// of a tree that is mounted nowhere: which nodes have one, for what, and how often the tree has taken
// something in. And where a node is asked to take in what it has (kTakeIn).
//
//   kWho    which other nodes have one that is written: whoever opens the file asks them first
//   kOpen   this node has one for these uses. Not granted while another node takes in alone
//   kBegin  this node takes in what it has. Granted: it does so alone: no other node writes the file, and
//           nothing was taken in since `number`; nobody else begins to write it until kTook
//   kTook   it has, or has failed; `alone`: as kBegin has granted; `uses` are over
//   kTurn   this node changes some of the file now, beside others. `alone`: no other node does meanwhile.
//           Not granted while another node's turn is in the way, which `taking` names
//   kTurnOver
//
//   step    := file u64 u64, op u8, uses u8, changed u8, alone u8, number u64
//   answer  := granted u8, number u64, before u64, taking u32, nodes varint, node u32*
//   wish    := file u64 u64, takes u8     of kTakeIn: to take in what programs have written; file 0 0: of all
//   own     := size u64, modified_ns u64  the answer: as the node has it; zeros: it has nothing of it
//
// Kept in memory: the servers of a job begin together, and say anew what they have.
//
// Threads: thread-safe; it never waits, but for take_in(). Errors: decoding foreign bytes gives kCorruption.
// Memory: 100 bytes for each file of which a node has a stand-in.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fs/peers/node_peers.h"

namespace swale::fs {

enum class StandInOp : uint8_t { kWho = 0, kOpen = 1, kBegin = 2, kTook = 3, kTurn = 4, kTurnOver = 5 };

enum StandInUse : uint8_t {
  kCopyIsRead = 1,
  kCopyIsWritten = 2,
  kTailIsWritten = 4,
  kIsCut = 8,  // a truncate, without a stand-in
};
inline constexpr uint8_t kUsesThatWrite = kCopyIsWritten | kTailIsWritten | kIsCut;

struct StandInStep {
  meta::FileId file = {};
  StandInOp op = StandInOp::kWho;
  uint8_t uses = 0;
  bool changed = false;
  bool alone = false;
  uint64_t number = 0;
};

struct StandInAnswer {
  bool granted = true;
  uint64_t number = 0;      // changes with each kTook that has changed the file
  uint64_t before = 0;      // kTook: what it was
  NodeId taking = kNobody;  // alone, or whose turn is in the way
  std::vector<NodeId> nodes = {};
};

struct TakeInWish {
  meta::FileId file = {};
  bool takes = true;  // false: only what it has is asked
};

struct TakeInAnswer {
  uint64_t size = 0;
  int64_t modified_ns = 0;
};

std::string encode(const StandInStep& step);
Result<StandInStep> decode_stand_in_step(Bytes bytes);
std::string encode(const StandInAnswer& answer);
Result<StandInAnswer> decode_stand_in_answer(Bytes bytes);
std::string encode(const TakeInWish& wish);
Result<TakeInWish> decode_take_in_wish(Bytes bytes);
std::string encode(const TakeInAnswer& answer);
Result<TakeInAnswer> decode_take_in_answer(Bytes bytes);

class StandInRoots {
 public:
  StandInAnswer obey(NodeId from, const StandInStep& step);
  size_t files();

  // Who takes in what this node has; null: nobody, and it has nothing. Waits for calls that are under way.
  using TakeIn = std::function<Result<TakeInAnswer>(const TakeInWish&)>;
  void take_in_by(TakeIn take_in);
  Result<TakeInAnswer> take_in(const TakeInWish& wish);

 private:
  struct File {
    uint64_t number = 0;
    NodeId taking = kNobody;
    std::map<NodeId, uint8_t> uses;
    NodeId alone = kNobody;  // whose turn is its alone
    std::set<NodeId> turns;  // of others
  };
  bool may_take_alone(const File& file, NodeId node, const StandInStep& step) const;
  static NodeId in_the_way(const File& file, NodeId node, bool alone);

  Mutex mutex_;
  std::unordered_map<meta::FileId, File, meta::FileIdHash> files_ GUARDED_BY(mutex_);
  uint64_t last_ GUARDED_BY(mutex_) = 0;
  TakeIn take_in_ GUARDED_BY(mutex_);
  size_t under_way_ GUARDED_BY(mutex_) = 0;
  CondVar ended_;
};

}  // namespace swale::fs
