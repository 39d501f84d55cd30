// ShareWorld: nodes, a root and a network on one thread, driven by one seed: FileRoots, NodeShare and the
// messages between them are those of production. Each step delivers some message that is under way, or
// repeats a call that waits, or begins one: so messages come in all orders, late, doubled, or never; nodes
// and the root are killed and start anew. Each answer is held against a VisibilityModel.
//
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "fs/share/node_share.h"
#include "fs/share/testing/visibility_model.h"

namespace swale::fs {

struct ShareWorldParams {
  uint64_t seed = 1;
  uint32_t nodes = 3;
  uint64_t operations = 150;
  uint32_t lose_per_mille = 60, double_per_mille = 60;
  uint32_t kill_per_mille = 3;  // of steps; nodes and root
  // The root is killed when it handles its n-th request: before the record, after it, before the answer.
  uint64_t kill_at = 0;
  enum class Canary {
    kNone,
    kNoWait,      // a commit that does not wait for the root
    kNoAsk,       // a read that takes the last answer of the root
    kTwice,       // a root that obeys late copies
    kOwnLate,     // a node that looks for its own bytes only when the root has answered
    kNoLearn,     // a server that does not ask what the one before has committed
    kNoRecord,    // a root that answers before its record is written
    kNoTakeBack,  // a change that takes no map back
    kLateMap,     // a node that publishes a map that was taken back before it was there
  } canary = Canary::kNone;
};

struct ShareWorldOutcome {
  std::string problem;
  uint64_t steps = 0, requests = 0, delivered = 0, lost = 0, doubled = 0, kills = 0, given_up = 0,
           asked_again = 0;
  std::map<std::string, uint64_t> calls;  // that ended well
};

class ShareWorld {
 public:
  explicit ShareWorld(const ShareWorldParams& params);
  ShareWorldOutcome run();

 private:
  static constexpr uint64_t kBackingBytes = 12, kSpace = 40;
  static constexpr NodeId kRoot = ~NodeId{0};
  static constexpr meta::FileId kShared{1, 1};

  struct Byte {
    Value value = 0;
    uint64_t order = 0;
  };
  struct Call {
    enum class Kind { kCommit, kTruncate, kAppend, kRead, kMap } kind = Kind::kCommit;
    enum class Stage { kLearn, kBegin, kRoot, kFetch, kTakeBack, kDone } stage = Stage::kBegin;
    uint64_t id = 0;  // of what it has asked last
    uint64_t began = 0;
    uint64_t order = 0;
    uint64_t size = 0;  // kTruncate, kAppend
    Span span;          // kRead
    uint32_t repeats = 0;
    std::string request;  // what the root is asked
    std::optional<NodeShare::Reading> reading;
    std::vector<ReadPart> parts;
    std::map<NodeId, std::vector<Span>> wanted;  // of nodes that have not answered
    std::map<uint64_t, Value> got;
    uint64_t withdrawn = 0;        // kMap: when it began
    std::vector<ShareHold> holds;  // of nodes that have not let go
    std::vector<ShareHold> over;   // of those that have
  };
  // What programs of a node read by.
  struct Map {
    Span span;
    RangeMap<char> own;
    uint64_t size = 0;
  };
  struct Node {
    NodeId id = 0;
    uint32_t life = 1;
    uint64_t order = 1;
    std::unique_ptr<NodeShare> share;
    std::map<uint64_t, Byte> bytes;                  // the newest that this node has
    std::vector<std::pair<uint64_t, Span>> written;  // what its logs say
    std::vector<Call> calls;
    std::optional<ShareAnswer> last_answer;  // kNoAsk
    std::optional<Map> map;
    uint64_t withdrawn = 0;
  };
  struct Message {
    NodeId from = 0, to = 0;
    uint32_t life = 0;  // of the node that asks
    uint64_t call = 0;
    bool answer = false;
    bool takes_back = false;
    bool moved = false;     // of a fetch: the node does not have all of it
    std::string text = {};  // to and from the root
    std::vector<Span> spans = {};
    std::map<uint64_t, Value> bytes = {};
  };
  ShareRules rules() const;
  bool chance(uint32_t per_mille) { return rng_.below(1000) < per_mille; }
  void problem(const std::string& what);
  void start_root();
  void start_node(Node& node);
  void kill_node(Node& node);
  void send(Message message) { bag_.push_back(std::move(message)); }
  void deliver(size_t index);
  void handle_at_root(const Message& message);
  void handle_fetch(const Message& message);
  void handle_take_back(const Message& message);
  void answered(const Message& message);
  void write(Node& node, const Span& span);
  void begin_call(Node& node);
  void advance(Node& node, Call& call);
  void ask_root(Node& node, Call& call, const ShareRequest& request);
  void repeat(Node& node, Call& call);
  void give_up(Node& node, Call& call);
  void root_answered(Node& node, Call& call, const ShareAnswer& answer);
  void start_change(Node& node, Call& call);
  void start_read(Node& node, Call& call);
  void start_map(Node& node, Call& call);
  static void withdraw_map(Node& node);
  void publish(Node& node, Call& call, const ShareAnswer& answer);
  void read_by_map(Node& node);
  void take_back(Node& node, Call& call);
  void end_change(Node& node, Call& call);
  void looked(Node& node, Call& call, const ShareAnswer& answer);
  void fetch(Node& node, Call& call);
  void end_read(Node& node, Call& call);
  void finish(Call& call, const char* what);
  void step();
  bool idle() const;
  void run_until_idle();
  void expect_equal_at_end();

  const ShareWorldParams params_;
  Rng rng_;
  VisibilityModel model_{kBackingBytes};
  std::unique_ptr<FileRoots> root_;
  std::vector<std::string> records_;
  std::vector<Node> nodes_;
  std::vector<Message> bag_;
  uint64_t now_ = 1;
  uint64_t next_call_ = 1;
  uint64_t left_ = 0;                      // calls and writes to begin
  bool quiet_ = false;                     // nothing is lost or killed any more
  std::vector<std::vector<Value>> whole_;  // what each node read last
  ShareWorldOutcome outcome_;
};

}  // namespace swale::fs
