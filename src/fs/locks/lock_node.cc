#include "fs/locks/lock_node.h"

#include <algorithm>

namespace swale::fs {

uint64_t LockNode::begin() {
  Request request;
  request.told.push_back({last_ + 1});
  requests_.emplace(last_ + 1, std::move(request));
  return ++last_;
}

LockMessage LockNode::stamped(const Root& root, LockMessage message) const {
  message.floor = root.open.begin()->first;
  return message;
}

LockMessage LockNode::numbered(NodeId root, LockMessage message) {
  Root& to = roots_[root];
  message.number = last_ + 1;
  message.wanted.node = own_;
  to.open.emplace(message.number, Sent{message});
  ++last_;
  return stamped(to, message);
}

LockMessage LockNode::set(uint64_t request, NodeId root, const meta::FileId& file, uint64_t handle,
                          const FileLock& wanted, bool waits) {
  if (wanted.type != LockType::kNone) {
    Owner& owner = owners_[file][wanted.owner];
    owner.handles.insert(handle);
    (wanted.kind == LockKind::kWhole ? owner.whole : owner.ranges) = true;
  }
  Request& asked = requests_.at(request);
  const LockMessage message =
      numbered(root, {.op = LockOp::kSet, .file = file, .wanted = {own_, wanted}, .waits = waits});
  try {
    by_number_.emplace(message.number, request);
  } catch (...) {
    roots_.at(root).open.erase(message.number);
    throw;
  }
  asked.state = Request::State::kAsking;
  asked.root = root;
  asked.file = file;
  asked.number = message.number;
  return message;
}

LockMessage LockNode::get(const meta::FileId& file, const FileLock& wanted) const {
  return {.op = LockOp::kGet, .file = file, .wanted = {own_, wanted}};
}

void LockNode::owe_end(NodeId root, const meta::FileId& file, uint64_t owner, bool whole) {
  const LockMessage message =
      numbered(root, {.op = LockOp::kEnd, .file = file, .wanted = {own_, {.owner = owner}}, .waits = whole});
  roots_.at(root).open.at(message.number).owed = true;
}

bool LockNode::end_owner(NodeId root, const meta::FileId& file, uint64_t owner) {
  const auto owners = owners_.find(file);
  if (owners == owners_.end()) return false;
  const auto at = owners->second.find(owner);
  if (at == owners->second.end() || !at->second.ranges) return false;
  owe_end(root, file, owner, false);
  at->second.ranges = false;
  if (!at->second.whole) owners->second.erase(at);
  if (owners->second.empty()) owners_.erase(owners);
  return true;
}

bool LockNode::end_handle(NodeId root, const meta::FileId& file, uint64_t handle) {
  const auto owners = owners_.find(file);
  if (owners == owners_.end()) return false;
  bool had_some = false;
  for (auto at = owners->second.begin(); at != owners->second.end();) {
    if (!at->second.handles.contains(handle)) {
      ++at;
      continue;
    }
    owe_end(root, file, at->first, true);
    at = owners->second.erase(at);
    had_some = true;
  }
  if (owners->second.empty()) owners_.erase(owners);
  return had_some;
}

std::optional<uint64_t> LockNode::request_of(uint64_t number) const {
  const auto at = by_number_.find(number);
  if (at == by_number_.end()) return {};
  return at->second;
}

void LockNode::tell(uint64_t request, int error) noexcept {
  const auto at = requests_.find(request);
  if (at == requests_.end()) return;
  at->second.told.front().error = error;
  told_.splice(told_.end(), at->second.told);
  by_number_.erase(at->second.number);
  requests_.erase(at);
}

void LockNode::answered(NodeId root, const LockMessage& message, const LockAnswer& answer) noexcept {
  const bool cancels = message.op == LockOp::kCancel;
  const auto request = request_of(cancels ? message.target : message.number);
  if (message.op == LockOp::kLook) {
    const bool waits = request && requests_.at(*request).state == Request::State::kWaiting;
    if (waits && answer.outcome == LockOutcome::kDone) tell(*request, 0);
    return;
  }
  const auto from = roots_.find(root);
  if (from == roots_.end() || from->second.open.erase(message.number) == 0) return;  // a second copy
  if (!request) return;
  Request& asked = requests_.at(*request);
  if (cancels) return tell(*request, answer.outcome == LockOutcome::kCancelled ? asked.interrupted : 0);
  if (message.op != LockOp::kSet) return;
  switch (answer.outcome) {
    case LockOutcome::kDone:
      return tell(*request, 0);
    case LockOutcome::kWaits:
      asked.state = Request::State::kWaiting;
      if (asked.granted) tell(*request, 0);
      return;
    case LockOutcome::kTaken:
      return tell(*request, EAGAIN);
    case LockOutcome::kDeadlock:
      return tell(*request, EDEADLK);
    case LockOutcome::kTooMany:
      return tell(*request, ENOLCK);
    default:
      return tell(*request, EIO);
  }
}

void LockNode::failed(NodeId root, const LockMessage& message, bool down) noexcept {
  if (down) return lose(root);
  const auto to = roots_.find(root);
  if (to == roots_.end()) return;
  const auto sent = to->second.open.find(message.number);
  if (sent == to->second.open.end() || message.op == LockOp::kLook) return;
  sent->second.owed = true;
  LockMessage& again = sent->second.message;
  if (again.op != LockOp::kSet) return;  // a cancellation: its request goes on waiting for that
  if (again.wanted.lock.type != LockType::kNone) again.op = LockOp::kVoid;
  if (const auto request = request_of(message.number)) tell(*request, EIO);
}

// All that was there has ended.
void LockNode::lose(NodeId root) noexcept {
  const auto lost = roots_.find(root);
  if (lost == roots_.end()) return;
  lost->second.open.clear();
  for (auto at = requests_.begin(); at != requests_.end();) {
    const auto& [number, request] = *at++;
    if (request.state != Request::State::kBegun && request.root == root) tell(number, EIO);
  }
}

void LockNode::granted(NodeId root, uint64_t number) noexcept {
  const auto request = request_of(number);
  if (!request || requests_.at(*request).root != root) return;  // it was told, or is void
  Request& asked = requests_.at(*request);
  if (asked.state == Request::State::kWaiting) return tell(*request, 0);
  asked.granted = true;
}

void LockNode::refuse(uint64_t request, int error) noexcept { tell(request, error); }

void LockNode::interrupt(uint64_t request, int error) noexcept {
  const auto at = requests_.find(request);
  if (at != requests_.end() && at->second.interrupted == 0) at->second.interrupted = error;
}

void LockNode::interrupt_all(int error) noexcept {
  for (const auto& [number, request] : requests_) interrupt(number, error);
}

void LockNode::abandon_all(int error) noexcept {
  while (!requests_.empty()) tell(requests_.begin()->first, error);
}

std::optional<LockMessage> LockNode::owed(NodeId root) const {
  const auto to = roots_.find(root);
  if (to == roots_.end()) return {};
  for (const auto& [number, sent] : to->second.open)
    if (sent.owed) return stamped(to->second, sent.message);
  return {};
}

std::vector<LockNode::Due> LockNode::due(bool looks, size_t count) {
  std::vector<Due> due;
  due.reserve(requests_.size() + roots_.size() + count);
  for (auto& [number, request] : requests_) {
    if (request.interrupted == 0) continue;
    if (request.state == Request::State::kWaiting) {
      due.push_back(
          {request.root,
           numbered(request.root, {.op = LockOp::kCancel, .target = request.number, .file = request.file})});
      request.cancel = due.back().message.number;
      request.state = Request::State::kCancelling;
    } else if (looks && request.state == Request::State::kCancelling) {
      const Root& to = roots_.at(request.root);
      due.push_back({request.root, stamped(to, to.open.at(request.cancel).message)});
    }
  }
  if (!looks) return due;
  for (const auto& [root, to] : roots_)
    if (const auto message = owed(root)) due.push_back({root, *message});
  auto at = by_number_.upper_bound(looked_);
  for (size_t left = std::min(count, by_number_.size()); left > 0; --left, ++at) {
    if (at == by_number_.end()) at = by_number_.begin();
    looked_ = at->first;
    const Request& each = requests_.at(at->second);
    if (each.state != Request::State::kWaiting) continue;
    due.push_back(
        {each.root, {.op = LockOp::kLook, .number = each.number, .file = each.file, .wanted = {own_, {}}}});
  }
  return due;
}

bool LockNode::cancels() const {
  return std::any_of(requests_.begin(), requests_.end(), [](const auto& each) {
    return each.second.interrupted != 0 && each.second.state == Request::State::kWaiting;
  });
}

bool LockNode::idle() const {
  return requests_.empty() &&
         std::all_of(roots_.begin(), roots_.end(), [](const auto& each) { return each.second.open.empty(); });
}

}  // namespace swale::fs
