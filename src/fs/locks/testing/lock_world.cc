#include "fs/locks/testing/lock_world.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace swale::fs {
namespace {

constexpr uint64_t kStepsMax = 200'000;

size_t index_of(LockKind kind) { return kind == LockKind::kWhole ? 1 : 0; }
LockType weaker(LockType one, LockType other) { return std::min(one, other); }
bool exclude(LockType one, LockType other) {
  return one != LockType::kNone && other != LockType::kNone &&
         (one == LockType::kWrite || other == LockType::kWrite);
}

}  // namespace

LockWorld::LockWorld(const LockWorldParams& params)
    : params_(params),
      rng_(params.seed),
      root_({.obey_once = params.canary != LockWorldParams::Canary::kTwice,
             .end_with_node = params.canary != LockWorldParams::Canary::kDeadStays,
             .void_given_up = params.canary != LockWorldParams::Canary::kNoVoid,
             .find_deadlocks = params.canary != LockWorldParams::Canary::kNoDeadlock}),
      nodes_(params.nodes),
      left_(params.operations) {
  for (NodeId i = 0; i < params.nodes; ++i) {
    nodes_[i].id = i + 1;  // the root's node has no programs
    nodes_[i].locks = std::make_unique<LockNode>(i + 1);
    nodes_[i].programs.resize(params.programs);
    for (size_t p = 0; p < params.programs; ++p) {
      nodes_[i].programs[p].owner = 100 + p;  // the same numbers on each node
      nodes_[i].programs[p].handle = 200 + p;
    }
  }
}

void LockWorld::problem(const std::string& what) {
  if (outcome_.problem.empty()) outcome_.problem = what;
}

// ---- messages

void LockWorld::call(Node& node, const LockMessage& message) {
  const uint64_t number = next_call_++;
  node.calls[number] = message;
  send({.kind = Message::Kind::kAsk, .node = node.id, .call = number, .text = encode(message)});
}

void LockWorld::deliver(size_t index) {
  const Message message = bag_[index];
  if (message.kind == Message::Kind::kCommit && rng_.chance(4, 5)) return;  // storage is slow
  if (chance(params_.double_per_mille)) {
    ++outcome_.doubled;
  } else {
    bag_[index] = std::move(bag_.back());
    bag_.pop_back();
    const bool is_commit =
        message.kind == Message::Kind::kCommit || message.kind == Message::Kind::kCommitted;
    if (!is_commit && chance(params_.lose_per_mille)) {  // commits are fs/share's: they are repeated there
      ++outcome_.lost;
      return;
    }
  }
  ++outcome_.messages;
  handle(message);
}

void LockWorld::handle(const Message& message) {
  Node& node = nodes_[message.node - 1];
  switch (message.kind) {
    case Message::Kind::kAsk: {
      const auto asked = decode_lock_message(message.text);
      if (!asked.ok()) return problem(asked.status().to_string());
      const auto answer = root_.handle(*asked);
      send_grants();
      if (answer.ok())
        send(
            {.kind = Message::Kind::kAnswer, .node = node.id, .call = message.call, .text = encode(*answer)});
      return;
    }
    case Message::Kind::kAnswer:
      if (node.alive) answered(node, message);
      return;
    case Message::Kind::kGrant:
      if (node.alive) node.locks->granted(kRoot, message.call);
      return take_told(node);
    case Message::Kind::kCommit:
      return commit_comes(message);
    case Message::Kind::kCommitted: {
      Program& program = node.programs[message.program];
      if (!node.alive || !program.counted.contains(message.file) ||
          program.counted[message.file] != message.value)
        return;
      program.counted.erase(message.file);
      return go_on(node, program);
    }
  }
}

void LockWorld::answered(Node& node, const Message& message) {
  const auto at = node.calls.find(message.call);
  if (at == node.calls.end()) return;
  const LockMessage asked = at->second;
  node.calls.erase(at);
  const auto answer = decode_lock_answer(message.text);
  if (!answer.ok()) return problem(answer.status().to_string());
  node.locks->answered(kRoot, asked, *answer);
  take_told(node);
}

void LockWorld::send_grants() {
  for (const LockRoot::Grant& each : root_.take_grants())
    send({.kind = Message::Kind::kGrant, .node = each.node, .call = each.number});
}

// What a node commits that the root has given up is refused (fs/peers: it is down).
void LockWorld::commit_comes(const Message& message) {
  if (gone_.contains(message.node)) return;
  if (committed_.insert(message.call).second) {
    if (message.value != registers_[message.file] + 1)
      problem(fmt::format("node {} counts {} where {} is there: a count is lost", message.node, message.value,
                          registers_[message.file]));
    registers_[message.file] = message.value;
    ++outcome_.counted;
  }
  Message answer = message;
  answer.kind = Message::Kind::kCommitted;
  send(answer);
}

// ---- programs

void LockWorld::take_told(Node& node) {
  if (!node.alive) return;
  for (const LockNode::Told& each : node.locks->take_told()) {
    const auto program = std::find_if(node.programs.begin(), node.programs.end(),
                                      [&](const Program& p) { return p.request == each.request; });
    if (program == node.programs.end())
      problem(fmt::format("node {} tells request {} twice", node.id, each.request));
    else
      told(*program, each.error);
  }
}

void LockWorld::told(Program& program, int error) {
  ++outcome_.answers[error == 0 ? "done" : std::strerror(error)];
  program.request = 0;
  const FileLock& wanted = program.wanted;
  if (error == EIO) {  // what it had there may be gone
    let_go(program, wanted.kind, wanted.begin, wanted.end, LockType::kNone);
    program.counted.erase(program.file);
  }
  if (error != 0 || wanted.type == LockType::kNone) return;
  for (uint64_t byte = wanted.begin; byte < std::min<uint64_t>(wanted.end, kBytes); ++byte)
    program.held[program.file][index_of(wanted.kind)][byte] = wanted.type;
  expect_alone(program);
}

void LockWorld::let_go(Program& program, LockKind kind, uint64_t begin, uint64_t end, LockType left) {
  for (uint64_t byte = begin; byte < std::min<uint64_t>(end, kBytes); ++byte) {
    LockType& held = program.held[program.file][index_of(kind)][byte];
    held = weaker(held, left);
  }
}

void LockWorld::expect_alone(const Program& program) {
  for (const Node& node : nodes_)
    for (const Program& other : node.programs) {
      if (!node.alive || &other == &program) continue;
      for (size_t kind = 0; kind < 2; ++kind)
        for (size_t byte = 0; byte < kBytes; ++byte)
          if (exclude(program.held[program.file][kind][byte], other.held[program.file][kind][byte]))
            problem(fmt::format("byte {} of file {} is locked twice (kind {})", byte, program.file, kind));
    }
}

// Something new, of a program that has nothing under way.
void LockWorld::act(Node& node) {
  if (const auto owed = node.locks->owed(kRoot)) {  // first
    const bool under_way = std::any_of(node.calls.begin(), node.calls.end(),
                                       [&](const auto& each) { return each.second.number == owed->number; });
    if (!under_way) call(node, *owed);
    return;
  }
  Program& program = node.programs[rng_.below(node.programs.size())];
  if (program.request != 0) {
    if (params_.interrupts && rng_.chance(1, 12) && !(quiet_ && params_.ranges_alone))
      node.locks->interrupt(program.request);
    return;
  }
  if (program.after != Program::After::kNothing) return;
  program.file = rng_.below(files());
  if (quiet_) return begin_end(program, true), go_on(node, program);
  if (left_ == 0) return;
  --left_;
  const uint64_t kind = rng_.below(12);
  if (kind < 6 && program.held[program.file][0][0] == LockType::kWrite &&
      !program.counted.contains(program.file))
    program.counted[program.file] = registers_[program.file] + 1;
  else if (kind >= 10)
    begin_end(program, kind == 10), go_on(node, program);
  else
    begin_set(node, program);
}

void LockWorld::begin_set(Node& node, Program& program) {
  FileLock& wanted = program.wanted;
  wanted = {.owner = program.owner, .pid = 7};
  wanted.kind = params_.ranges_alone || rng_.chance(2, 3) ? LockKind::kRange : LockKind::kWhole;
  wanted.type = static_cast<LockType>(rng_.below(3));
  if (wanted.kind == LockKind::kRange) {
    wanted.begin = rng_.chance(1, 2) ? 0 : rng_.below(kBytes);
    wanted.end = wanted.begin + 1 + rng_.below(kBytes - wanted.begin);
    if (wanted.end == kBytes) wanted.end = kLockEnd;
  }
  program.waits = wanted.type != LockType::kNone && rng_.chance(2, 3);
  program.after = Program::After::kSet;
  go_on(node, program);
}

void LockWorld::begin_end(Program& program, bool handle) {
  program.after = handle ? Program::After::kEndHandle : Program::After::kEndOwner;
}

// The commit first, unless nothing gets weaker.
void LockWorld::go_on(Node& node, Program& program) {
  using After = Program::After;
  if (program.after == After::kNothing) return;
  const bool weakens = program.after != After::kSet || program.wanted.type != LockType::kWrite;
  const auto counted = program.counted.find(program.file);
  if (weakens && counted != program.counted.end()) {
    const uint64_t number = next_call_++;
    send({.kind = Message::Kind::kCommit,
          .node = node.id,
          .call = number,
          .program = static_cast<size_t>(&program - node.programs.data()),
          .file = program.file,
          .value = counted->second});
    if (params_.canary != LockWorldParams::Canary::kNoCommit) return;
    program.counted.erase(counted);
  }
  const After after = std::exchange(program.after, After::kNothing);
  if (node.locks->owed(kRoot)) return;  // it has failed since: the program is told EIO
  after == After::kSet ? set(node, program) : end(node, program, after == After::kEndHandle);
}

void LockWorld::set(Node& node, Program& program) {
  const FileLock& wanted = program.wanted;
  const bool converts = wanted.kind == LockKind::kWhole;
  if (wanted.type != LockType::kWrite || converts)
    let_go(program, wanted.kind, wanted.begin, wanted.end, converts ? LockType::kNone : wanted.type);
  program.request = node.locks->begin();
  call(node,
       node.locks->set(program.request, kRoot, id_of(program.file), program.handle, wanted, program.waits));
}

void LockWorld::end(Node& node, Program& program, bool handle) {
  let_go(program, LockKind::kRange, 0, kBytes, LockType::kNone);
  if (handle) let_go(program, LockKind::kWhole, 0, kBytes, LockType::kNone);
  if (handle)
    node.locks->end_handle(kRoot, id_of(program.file), program.handle);
  else
    node.locks->end_owner(kRoot, id_of(program.file), program.owner);
}

// ---- the run

void LockWorld::kill(Node& node) {
  const auto alive = std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.alive; });
  if (!node.alive || alive < 2) return;
  ++outcome_.kills;
  node.alive = false;
  node.calls.clear();
}

void LockWorld::look_for_dead() {
  for (const NodeId suspect : root_.take_suspects()) {
    if (nodes_[suspect - 1].alive || !gone_.insert(suspect).second) continue;
    root_.forget_node(suspect);
    send_grants();
  }
}

void LockWorld::step() {
  ++outcome_.steps;
  Node& node = nodes_[rng_.below(nodes_.size())];
  if (chance(params_.kill_per_mille)) kill(node);
  const uint64_t dice = rng_.below(100);
  if (!bag_.empty() && dice < 55) return deliver(rng_.below(bag_.size()));
  if (dice < 60) return look_for_dead();
  if (!node.alive) return;
  if (dice < 70) {
    for (const LockNode::Due& each : node.locks->due(rng_.chance(1, 3), 4)) call(node, each.message);
  } else if (dice < 80 && !node.calls.empty()) {
    // A call is given up, or, in the end, one whose message was lost.
    auto at = node.calls.begin();
    std::advance(at, rng_.below(node.calls.size()));
    const uint64_t number = at->first;
    const bool is_lost =
        std::none_of(bag_.begin(), bag_.end(), [number](const Message& each) { return each.call == number; });
    if (quiet_ ? !is_lost : rng_.below(1000) >= params_.give_up_per_mille) return;
    ++outcome_.given_up;
    const LockMessage message = at->second;
    node.calls.erase(at);
    node.locks->failed(kRoot, message, false);
    take_told(node);
  } else {
    act(node);
  }
}

bool LockWorld::is_quiet_node(const Node& node) const {
  if (!node.alive) return true;
  return node.calls.empty() && node.locks->idle() &&
         std::all_of(node.programs.begin(), node.programs.end(), [](const Program& each) {
           const auto* const held = &each.held[0][0][0];
           return each.request == 0 && each.after == Program::After::kNothing &&
                  std::all_of(held, held + kFiles * 2 * kBytes,
                              [](LockType type) { return type == LockType::kNone; });
         });
}

bool LockWorld::ended() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [this](const Node& each) { return is_quiet_node(each); });
}

// Nothing is lost any more; all that live end what they have.
void LockWorld::end_all() {
  quiet_ = true;
  while (outcome_.problem.empty() && !ended()) {
    if (outcome_.steps > kStepsMax) return problem("a wait never ends");
    step();
  }
  for (const Node& each : nodes_)
    if (!each.alive && gone_.insert(each.id).second) root_.forget_node(each.id);
  while (!bag_.empty() && outcome_.problem.empty()) deliver(bag_.size() - 1);  // what comes late
  if (outcome_.problem.empty() && !root_.empty()) problem("a lock is left at the root when all have ended");
}

LockWorldOutcome LockWorld::run() {
  while (left_ > 0 && outcome_.problem.empty()) {
    if (outcome_.steps > kStepsMax) {
      problem("the programs come to no end");
      break;
    }
    step();
  }
  if (outcome_.problem.empty()) end_all();
  return outcome_;
}

}  // namespace swale::fs
