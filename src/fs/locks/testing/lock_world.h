// LockWorld: nodes with programs that lock, a root and a network on one thread, driven by one seed: LockNode,
// LockRoot and the messages are those of production. Messages come in all orders, late, doubled, or never;
// calls are given up; nodes are killed. Programs count in a register under the lock of its first byte, and
// commit what they have counted before they unlock it.
//
// Wrong are: two programs that both believe to have what excludes the other; a count that is lost; a wait
// that never ends; a lock that is left when all have ended.
//
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "fs/locks/lock_node.h"
#include "fs/locks/lock_root.h"

namespace swale::fs {

struct LockWorldParams {
  uint64_t seed = 1;
  uint32_t nodes = 3;
  uint32_t programs = 2;  // a node
  uint64_t operations = 200;
  uint32_t lose_per_mille = 60, double_per_mille = 100, give_up_per_mille = 30;
  uint32_t kill_per_mille = 2;  // of steps; at most all nodes but one
  bool interrupts = true;
  // One file, and locks of ranges alone: then no wait needs to be interrupted.
  bool ranges_alone = false;
  enum class Canary {
    kNone,
    kNoCommit,    // a program unlocks before its commit is answered
    kTwice,       // a root that obeys late copies
    kDeadStays,   // a root that keeps locks of dead nodes
    kNoVoid,      // a root that does not undo what was given up
    kNoDeadlock,  // a root that lets a cycle wait
  } canary = Canary::kNone;
};

struct LockWorldOutcome {
  std::string problem;
  uint64_t steps = 0, messages = 0, lost = 0, doubled = 0, given_up = 0, kills = 0, counted = 0;
  std::map<std::string, uint64_t> answers;  // of programs' calls
};

class LockWorld {
 public:
  explicit LockWorld(const LockWorldParams& params);
  LockWorldOutcome run();

 private:
  static constexpr size_t kBytes = 7, kFiles = 2;  // the last byte is all behind it, too
  static constexpr NodeId kRoot = 0;

  struct Program {
    uint64_t owner = 0, handle = 0;
    uint64_t request = 0;  // 0: it asks for nothing
    size_t file = 0;       // of the request, or of the ending that waits for a commit
    FileLock wanted = {};
    enum class After { kNothing, kSet, kEndOwner, kEndHandle } after = After::kNothing;  // of the commit
    bool waits = false;
    std::set<uint64_t> ends;             // numbers of messages that it waits for
    std::map<size_t, uint64_t> counted;  // by file: not committed
    // By file, kind and byte.
    LockType held[kFiles][2][kBytes] = {};
  };
  struct Node {
    NodeId id = 0;
    bool alive = true;
    std::unique_ptr<LockNode> locks;
    std::vector<Program> programs;
    std::map<uint64_t, LockMessage> calls;  // that wait for an answer
  };
  struct Message {
    enum class Kind { kAsk, kAnswer, kGrant, kCommit, kCommitted } kind = Kind::kAsk;
    NodeId node = 0;    // to or from
    uint64_t call = 0;  // kCommit: its number
    std::string text = {};
    size_t program = 0, file = 0;  // of a commit
    uint64_t value = 0;
  };

  bool chance(uint32_t per_mille) { return !quiet_ && rng_.below(1000) < per_mille; }
  void problem(const std::string& what);
  meta::FileId id_of(size_t file) const { return {kRoot, file + 1}; }
  size_t files() const { return params_.ranges_alone ? 1 : kFiles; }

  void send(Message message) { bag_.push_back(std::move(message)); }
  void call(Node& node, const LockMessage& message);
  void deliver(size_t index);
  void handle(const Message& message);
  void answered(Node& node, const Message& message);
  void commit_comes(const Message& message);
  void send_grants();
  void take_told(Node& node);
  void told(Program& program, int error);
  void expect_alone(const Program& program);
  void let_go(Program& program, LockKind kind, uint64_t begin, uint64_t end, LockType left);

  void act(Node& node);
  void begin_set(Node& node, Program& program);
  void begin_end(Program& program, bool handle);
  void go_on(Node& node, Program& program);
  void set(Node& node, Program& program);
  void end(Node& node, Program& program, bool handle);
  void kill(Node& node);
  void look_for_dead();
  void step();
  bool is_quiet_node(const Node& node) const;
  bool ended() const;
  void end_all();

  const LockWorldParams params_;
  Rng rng_;
  LockRoot root_;
  std::vector<Node> nodes_;
  std::vector<Message> bag_;
  std::set<NodeId> gone_;         // for the root
  std::set<uint64_t> committed_;  // numbers of commits that have come
  uint64_t registers_[kFiles] = {};
  uint64_t next_call_ = 1;
  uint64_t left_ = 0;  // operations to begin
  bool quiet_ = false;
  LockWorldOutcome outcome_;
};

}  // namespace swale::fs
