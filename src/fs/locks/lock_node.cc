#include "fs/locks/lock_node.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace swale::fs {

uint64_t LockNode::begin() {
  requests_[++last_] = {};
  return last_;
}

LockMessage LockNode::stamped(const Root& root, LockMessage message) const {
  message.floor = *root.open.begin();
  return message;
}

LockMessage LockNode::numbered(NodeId root, LockMessage message) {
  Root& to = roots_[root];
  message.number = ++last_;
  message.wanted.node = own_;
  to.open.insert(message.number);
  return stamped(to, std::move(message));
}

LockMessage LockNode::set(uint64_t request, NodeId root, const meta::FileId& file, uint64_t handle,
                          const FileLock& wanted, bool waits) {
  if (wanted.type != LockType::kNone) {
    Owner& owner = owners_[file][wanted.owner];
    (wanted.kind == LockKind::kWhole ? owner.whole : owner.ranges) = true;
    owner.handles.insert(handle);
  }
  const LockMessage message =
      numbered(root, {.op = LockOp::kSet, .file = file, .wanted = {own_, wanted}, .waits = waits});
  Request& asked = requests_.at(request);
  asked = {Request::State::kAsking, asked.interrupted, root, file, message.number};
  by_number_[message.number] = request;
  return message;
}

LockMessage LockNode::get(const meta::FileId& file, const FileLock& wanted) const {
  return {.op = LockOp::kGet, .file = file, .wanted = {own_, wanted}};
}

LockMessage LockNode::end_of(NodeId root, const meta::FileId& file, uint64_t owner, bool whole) {
  return numbered(root,
                  {.op = LockOp::kEnd, .file = file, .wanted = {own_, {.owner = owner}}, .waits = whole});
}

std::optional<LockMessage> LockNode::end_owner(NodeId root, const meta::FileId& file, uint64_t owner) {
  const auto owners = owners_.find(file);
  if (owners == owners_.end()) return {};
  const auto at = owners->second.find(owner);
  if (at == owners->second.end() || !at->second.ranges) return {};
  at->second.ranges = false;
  if (!at->second.whole) owners->second.erase(at);
  if (owners->second.empty()) owners_.erase(owners);
  return end_of(root, file, owner, false);
}

std::vector<LockMessage> LockNode::end_handle(NodeId root, const meta::FileId& file, uint64_t handle) {
  std::vector<LockMessage> ends;
  const auto owners = owners_.find(file);
  if (owners == owners_.end()) return ends;
  for (auto at = owners->second.begin(); at != owners->second.end();) {
    if (!at->second.handles.contains(handle)) {
      ++at;
      continue;
    }
    ends.push_back(end_of(root, file, at->first, true));
    at = owners->second.erase(at);
  }
  if (owners->second.empty()) owners_.erase(owners);
  return ends;
}

std::optional<uint64_t> LockNode::request_of(uint64_t number) const {
  const auto at = by_number_.find(number);
  if (at == by_number_.end()) return {};
  return at->second;
}

void LockNode::tell(uint64_t request, int error) {
  const auto at = requests_.find(request);
  if (at == requests_.end()) return;
  told_.push_back({request, error});
  by_number_.erase(at->second.number);
  granted_early_.erase(at->second.number);
  requests_.erase(at);
}

// Its message has an answer, or needs none.
void LockNode::close(Root& root, uint64_t number) {
  root.open.erase(number);
  std::erase_if(root.owed, [number](const LockMessage& each) { return each.number == number; });
}

void LockNode::answered(NodeId root, const LockMessage& message, const LockAnswer& answer) {
  const bool cancels = message.op == LockOp::kCancel;
  const auto request = request_of(cancels ? message.target : message.number);
  if (message.op == LockOp::kLook) {
    const bool waits = request && requests_.at(*request).state == Request::State::kWaiting;
    if (waits && answer.outcome == LockOutcome::kDone) tell(*request, 0);
    return;
  }
  Root& from = roots_[root];
  if (!from.open.contains(message.number)) return;  // a second copy
  close(from, message.number);
  if (!request) return;
  if (cancels) return tell(*request, answer.outcome == LockOutcome::kCancelled ? EINTR : 0);
  if (message.op != LockOp::kSet) return;
  switch (answer.outcome) {
    case LockOutcome::kDone:
      return tell(*request, 0);
    case LockOutcome::kWaits:
      requests_.at(*request).state = Request::State::kWaiting;
      if (granted_early_.contains(message.number)) tell(*request, 0);
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

void LockNode::failed(NodeId root, const LockMessage& message, bool down) {
  if (down) return lose(root);
  Root& to = roots_[root];
  const bool is_numbered = message.op != LockOp::kGet && message.op != LockOp::kLook;
  if (!is_numbered || !to.open.contains(message.number)) return;
  const auto same = [&](const LockMessage& each) { return each.number == message.number; };
  if (std::any_of(to.owed.begin(), to.owed.end(), same)) return;
  to.owed.push_back(message);
  if (message.op == LockOp::kSet && message.wanted.lock.type != LockType::kNone)
    to.owed.back().op = LockOp::kVoid;
  // One that is being cancelled goes on waiting for that.
  if (message.op == LockOp::kSet)
    if (const auto request = request_of(message.number)) tell(*request, EIO);
}

// All that was there has ended.
void LockNode::lose(NodeId root) {
  Root& lost = roots_[root];
  lost.gone = true;
  lost.open.clear();
  lost.owed.clear();
  std::vector<uint64_t> of_it;
  for (const auto& [number, request] : requests_)
    if (request.state != Request::State::kBegun && request.root == root) of_it.push_back(number);
  for (const uint64_t request : of_it) tell(request, EIO);
}

void LockNode::granted(NodeId root, uint64_t number) {
  const auto request = request_of(number);
  if (!request || requests_.at(*request).root != root) return;  // it was told, or is void
  const Request::State state = requests_.at(*request).state;
  if (state == Request::State::kWaiting) tell(*request, 0);
  if (state == Request::State::kAsking) granted_early_.insert(number);
}

void LockNode::interrupt(uint64_t request) {
  const auto at = requests_.find(request);
  if (at != requests_.end()) at->second.interrupted = true;
}

void LockNode::refuse(uint64_t request, int error) { tell(request, error); }

void LockNode::interrupt_all() {
  for (auto& [number, request] : requests_) request.interrupted = true;
}

void LockNode::abandon_all() {
  std::vector<uint64_t> all;
  for (const auto& [number, request] : requests_) all.push_back(number);
  for (const uint64_t request : all) tell(request, EINTR);
}

std::optional<LockMessage> LockNode::owed(NodeId root) const {
  const auto to = roots_.find(root);
  if (to == roots_.end() || to->second.owed.empty()) return {};
  return stamped(to->second, to->second.owed.front());
}

bool LockNode::is_gone(NodeId root) const {
  const auto to = roots_.find(root);
  return to != roots_.end() && to->second.gone;
}

std::vector<LockNode::Due> LockNode::due(bool looks, size_t count) {
  std::vector<Due> due;
  for (auto& [number, request] : requests_) {
    if (!request.interrupted || request.state != Request::State::kWaiting) continue;
    due.push_back(
        {request.root,
         numbered(request.root, {.op = LockOp::kCancel, .target = request.number, .file = request.file})});
    request.state = Request::State::kCancelling;
  }
  if (!looks) return due;
  for (const auto& [root, to] : roots_)
    if (!to.owed.empty()) due.push_back({root, stamped(to, to.owed.front())});
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
    return each.second.interrupted && each.second.state == Request::State::kWaiting;
  });
}

std::vector<LockNode::Told> LockNode::take_told() { return std::exchange(told_, {}); }

bool LockNode::idle() const {
  return requests_.empty() &&
         std::all_of(roots_.begin(), roots_.end(), [](const auto& each) { return each.second.open.empty(); });
}

}  // namespace swale::fs
