#include "fs/locks/lock_root.h"

#include <algorithm>
#include <utility>

namespace swale::fs {

Result<LockAnswer> LockRoot::handle(const LockMessage& message) {
  if (gone_.contains(message.wanted.node))
    return error(Code::kUnavailable, Scope::kPeer, "node {} was gone for a time: its locks have ended",
                 message.wanted.node);
  switch (message.op) {
    case LockOp::kGet: {
      const auto file = files_.find(message.file);
      if (file == files_.end()) return LockAnswer{};
      const auto found = file->second.table.in_the_way(message.wanted);
      return found ? LockAnswer{LockOutcome::kTaken, *found} : LockAnswer{};
    }
    case LockOp::kLook:
      return LockAnswer{waits(message.file, {message.wanted.node, message.number}) ? LockOutcome::kWaits
                                                                                   : LockOutcome::kDone};
    default:
      return rules_.obey_once ? obey_once(message) : obey(message);
  }
}

LockAnswer LockRoot::obey_once(const LockMessage& message) {
  Node& node = nodes_[message.wanted.node];
  node.floor = std::max(node.floor, message.floor);
  node.answers.erase(node.answers.begin(), node.answers.lower_bound(node.floor));
  if (message.number < node.floor) return {LockOutcome::kLate};
  std::optional<LockAnswer>& known = node.answers[message.number];
  const bool is_late = known && known->outcome == LockOutcome::kLate;
  if (message.op == LockOp::kVoid) {  // whatever comes of this number later is late
    if (!is_late) undo(message);      // else it is a second copy
    known = {LockOutcome::kLate};
    return {};
  }
  if (!known) known = obey(message);
  return *known;
}

LockAnswer LockRoot::obey(const LockMessage& message) {
  switch (message.op) {
    case LockOp::kSet:
      return set(message);
    case LockOp::kEnd:
      change(message.file, [&](File& file) {
        file.table.end(message.wanted.owner(), LockKind::kRange);
        if (message.waits) file.table.end(message.wanted.owner(), LockKind::kWhole);
      });
      return {};
    case LockOp::kCancel: {
      const bool stopped = stop_waiting(message.file, {message.wanted.node, message.target});
      return {stopped ? LockOutcome::kCancelled : LockOutcome::kDone};
    }
    default:
      undo(message);
      return {};
  }
}

LockAnswer LockRoot::set(const LockMessage& message) {
  const OwnedLock& wanted = message.wanted;
  if (wanted.lock.type == LockType::kNone) {
    change(message.file, [&](File& file) { file.table.set(wanted); });
    return {};
  }
  File& file = files_[message.file];
  LockAnswer answer;
  if (file.table.count() >= kFileLocksMax || file.waiters.size() >= kFileLocksMax) {
    answer.outcome = LockOutcome::kTooMany;
  } else if (const auto found = file.table.in_the_way(wanted); !found) {
    file.table.set(wanted);
  } else if (!message.waits) {
    refused_for_.insert(found->node);
    answer = {LockOutcome::kTaken, *found};
  } else if (would_deadlock(file, wanted)) {
    answer.outcome = LockOutcome::kDeadlock;
  } else {
    file.waiters.push_back({message.number, wanted});
    answer.outcome = LockOutcome::kWaits;
  }
  // flock's are converted in two steps: the lock that was there is gone, also when the other one is refused.
  const bool converts = wanted.lock.kind == LockKind::kWhole && answer.outcome != LockOutcome::kDone;
  change(message.file, [&](File& changed) {
    if (converts) changed.table.end(wanted.owner(), LockKind::kWhole);
  });
  return answer;
}

// Of a request that its node has given up: its program has been told that the range is not locked.
void LockRoot::undo(const LockMessage& message) {
  if (!rules_.void_given_up) return;
  stop_waiting(message.file, {message.wanted.node, message.number});
  change(message.file, [&](File& file) {
    OwnedLock unlocked = message.wanted;
    unlocked.lock.type = LockType::kNone;
    file.table.set(unlocked);
  });
}

bool LockRoot::waits(const meta::FileId& id, const Grant& request) const {
  const auto file = files_.find(id);
  return file != files_.end() && std::any_of(file->second.waiters.begin(), file->second.waiters.end(),
                                             [&](const Waiter& each) { return each.is(request); });
}

bool LockRoot::stop_waiting(const meta::FileId& id, const Grant& request) {
  size_t stopped = 0;
  change(id, [&](File& file) {
    stopped = std::erase_if(file.waiters, [&](const Waiter& each) { return each.is(request); });
  });
  return stopped > 0;
}

// Whether an owner that is in the way waits for this one, or for one that does.
bool LockRoot::would_deadlock(const File& file, const OwnedLock& wanted) const {
  if (!rules_.find_deadlocks || wanted.lock.kind == LockKind::kWhole) return false;
  std::set<LockOwner> seen;
  std::vector<LockOwner> next;
  const auto add = [&](const OwnedLock& lock) {
    for (const LockOwner& each : file.table.owners_in_the_way(lock))
      if (seen.insert(each).second) next.push_back(each);
  };
  add(wanted);
  while (!next.empty()) {
    const LockOwner owner = next.back();
    next.pop_back();
    if (owner == wanted.owner()) return true;
    for (const Waiter& each : file.waiters)
      if (each.wanted.lock.kind == LockKind::kRange && each.wanted.owner() == owner) add(each.wanted);
  }
  return false;
}

void LockRoot::grant_waiters(File& file) {
  for (bool granted = true; granted;) {  // what is granted may be weaker than what its owner had
    granted = false;
    for (auto at = file.waiters.begin(); at != file.waiters.end();) {
      if (file.table.in_the_way(at->wanted)) {
        ++at;
        continue;
      }
      file.table.set(at->wanted);
      grants_.push_back({at->wanted.node, at->number});
      at = file.waiters.erase(at);
      granted = true;
    }
  }
}

// What may end or weaken a lock.
void LockRoot::change(const meta::FileId& id, const std::function<void(File&)>& change) {
  const auto file = files_.find(id);
  if (file == files_.end()) return;
  change(file->second);
  grant_waiters(file->second);
  if (file->second.table.empty() && file->second.waiters.empty()) files_.erase(file);
}

std::vector<LockRoot::Grant> LockRoot::take_grants() { return std::exchange(grants_, {}); }

std::set<NodeId> LockRoot::take_suspects() {
  std::set<NodeId> suspects = std::exchange(refused_for_, {});
  for (const auto& [id, file] : files_)
    if (!file.waiters.empty()) suspects.merge(file.table.nodes());
  return suspects;
}

void LockRoot::forget_node(NodeId node) {
  gone_.insert(node);
  nodes_.erase(node);
  std::vector<meta::FileId> ids;
  for (const auto& [id, file] : files_) ids.push_back(id);
  for (const meta::FileId& id : ids)
    change(id, [&](File& file) {
      std::erase_if(file.waiters, [node](const Waiter& each) { return each.wanted.node == node; });
      if (rules_.end_with_node) file.table.end_node(node);
    });
}

}  // namespace swale::fs
