#include "fs/locks/lock_table.h"

namespace swale::fs {
namespace {

bool exclude(LockType one, LockType other) {
  return one != LockType::kNone && other != LockType::kNone &&
         (one == LockType::kWrite || other == LockType::kWrite);
}

}  // namespace

void LockTable::find(const OwnedLock& wanted, const std::function<bool(const LockOwner&)>& found) const {
  for (const auto& [owner, ranges] : of(wanted.lock.kind)) {
    if (owner == wanted.owner()) continue;
    bool in_way = false;
    ranges.visit({wanted.lock.begin, wanted.lock.end}, [&](const Span&, const Held& held) {
      in_way = in_way || exclude(held.type, wanted.lock.type);
    });
    if (in_way && !found(owner)) return;
  }
}

std::optional<OwnedLock> LockTable::in_the_way(const OwnedLock& wanted) const {
  std::optional<OwnedLock> first;
  find(wanted, [&](const LockOwner& owner) {
    const LockKind kind = wanted.lock.kind;
    of(kind).at(owner).visit({0, kLockEnd}, [&](const Span& span, const Held& held) {
      const bool over = span.begin < wanted.lock.end && wanted.lock.begin < span.end;
      if (first || !over || !exclude(held.type, wanted.lock.type)) return;
      first = {owner.node, {kind, held.type, span.begin, span.end, owner.id, held.pid}};
    });
    return false;
  });
  return first;
}

std::set<LockOwner> LockTable::owners_in_the_way(const OwnedLock& wanted) const {
  std::set<LockOwner> owners;
  find(wanted, [&](const LockOwner& owner) {
    owners.insert(owner);
    return true;
  });
  return owners;
}

void LockTable::set(const OwnedLock& wanted) {
  Owners& owners = of(wanted.lock.kind);
  const Span span{wanted.lock.begin, wanted.lock.end};
  if (wanted.lock.type != LockType::kNone) {
    owners[wanted.owner()].put(span, {wanted.lock.type, wanted.lock.pid});
    return;
  }
  const auto at = owners.find(wanted.owner());
  if (at == owners.end()) return;
  at->second.cut(span);
  if (at->second.empty()) owners.erase(at);
}

void LockTable::end(const LockOwner& owner, LockKind kind) { of(kind).erase(owner); }

void LockTable::end_node(NodeId node) {
  for (Owners* const owners : {&ranges_, &whole_})
    std::erase_if(*owners, [node](const auto& each) { return each.first.node == node; });
}

size_t LockTable::count() const {
  size_t count = 0;
  for (const Owners* const owners : {&ranges_, &whole_})
    for (const auto& [owner, ranges] : *owners) count += ranges.size();
  return count;
}

std::set<NodeId> LockTable::nodes() const {
  std::set<NodeId> nodes;
  for (const Owners* const owners : {&ranges_, &whole_})
    for (const auto& [owner, ranges] : *owners) nodes.insert(owner.node);
  return nodes;
}

void LockTable::visit(const std::function<void(const OwnedLock&)>& visit) const {
  for (const LockKind kind : {LockKind::kRange, LockKind::kWhole})
    for (const auto& [owner, ranges] : of(kind))
      ranges.visit({0, kLockEnd}, [&, &owner = owner](const Span& span, const Held& held) {
        visit({owner.node, {kind, held.type, span.begin, span.end, owner.id, held.pid}});
      });
}

}  // namespace swale::fs
