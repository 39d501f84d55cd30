#include "fs/peers/remote_locks.h"

#include <cerrno>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/peers/remote_peers.h"

namespace swale::fs {
namespace {

constexpr size_t kLockAnswerBytes = 128;
constexpr Nanos kAskEvery = seconds(1);
constexpr Nanos kShortPatience = seconds(1);  // of the keeper, which serves all
constexpr size_t kLooksAtOnce = 64;
constexpr char kItsLocks[] = "locks of its programs";

bool is_down(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kAborted;
}

}  // namespace

Status RemoteLocks::start() {
  {
    const MutexLock lock(mutex_);
    stop_ = false;
  }
  return start_thread(&keeper_, "the thread that keeps locks", [this] { keep(); });
}

void RemoteLocks::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
}

// ---- messages

Result<LockAnswer> RemoteLocks::handle(const LockMessage& message) {
  const MutexLock lock(mutex_);
  auto answer = root_.handle(message);
  sort_grants();
  return answer;
}

void RemoteLocks::sort_grants() {
  for (const LockRoot::Grant& each : root_.take_grants()) {
    if (each.node == peers_.own())
      node_.granted(each.node, each.number);
    else
      grants_.push_back(each);
  }
  if (!grants_.empty()) changed_.notify_all();
}

Result<LockAnswer> RemoteLocks::ask(NodeId root, const LockMessage& message, Nanos patience) {
  if (root == peers_.own()) return handle(message);
  const std::string what = text_of(message.file) + ": its locks";
  SWALE_ASSIGN_OR_RETURN(const std::string text, peers_.call(root, PeerMethod::kLock, encode(message),
                                                             kLockAnswerBytes, what, patience));
  auto answer = decode_lock_answer(text);
  if (answer.ok()) return answer;
  return answer.status().with_context(fmt::format("{}: node {}", what, root)).with_error_number(EIO);
}

Status RemoteLocks::send(NodeId root, const LockMessage& message, Nanos patience) {
  LockAnswer answer;
  const Status asked = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(answer, ask(root, message, patience));
    return {};
  });
  {
    const MutexLock lock(mutex_);
    if (asked.ok())
      node_.answered(root, message, answer);
    else
      node_.failed(root, message, is_down(asked));
  }
  hand_out();
  return asked;
}

// Programs are told what there is to tell; it takes no memory.
void RemoteLocks::hand_out() {
  std::map<uint64_t, Pending> answers;
  {
    const MutexLock lock(mutex_);
    for (const LockNode::Told& told : node_.take_told()) {
      auto answer = pending_.extract(told.request);
      if (answer.empty()) continue;
      if (told.error != 0) answer.mapped().failed = told.error;
      answers.insert(std::move(answer));
    }
    answering_ += answers.size();
  }
  if (answers.empty()) return;
  for (const auto& [request, answer] : answers) answer.answered(answer.failed);
  const MutexLock lock(mutex_);
  answering_ -= answers.size();
  changed_.notify_all();
}

// Until nothing is owed to the root.
Status RemoteLocks::settle(NodeId root) {
  for (;;) {
    std::optional<LockMessage> owed;
    {
      const MutexLock lock(mutex_);
      owed = node_.owed(root);
    }
    if (!owed) return {};
    SWALE_RETURN_IF_ERROR(send(root, *owed, peers_.patience()));
  }
}

// ---- programs

uint64_t RemoteLocks::begin(FileLocks::Answered answered) {
  const MutexLock lock(mutex_);
  const uint64_t request = node_.begin();
  pending_[request] = {std::move(answered)};
  return request;
}

void RemoteLocks::set(const meta::FileId& file, uint64_t handle, const FileLock& wanted, bool waits,
                      uint64_t request, int failed) noexcept {
  const NodeId root = root_of(file);
  const Status done = contain([&]() -> Status {
    for (;;) {
      SWALE_RETURN_IF_ERROR(settle(root));
      LockMessage message;
      {
        const MutexLock lock(mutex_);
        if (node_.owed(root)) continue;  // since then
        pending_.at(request).failed = failed;
        message = node_.set(request, root, file, handle, wanted, waits);
      }
      return send(root, message, peers_.patience());
    }
  });
  if (done.ok()) return;
  log_error("{}", done.message());
  refuse(request, done.posix_error());
}

void RemoteLocks::refuse(uint64_t request, int error) noexcept {
  static_cast<void>(contain([&] {
    {
      const MutexLock lock(mutex_);
      node_.refuse(request, error);
    }
    hand_out();
  }));
}

void RemoteLocks::interrupt(uint64_t request) {
  const MutexLock lock(mutex_);
  node_.interrupt(request);
  changed_.notify_all();
}

Result<FileLock> RemoteLocks::get(const meta::FileId& file, const FileLock& wanted) {
  LockMessage message;
  {
    const MutexLock lock(mutex_);
    message = node_.get(file, wanted);
  }
  SWALE_ASSIGN_OR_RETURN(LockAnswer answer, ask(root_of(file), message, peers_.patience()));
  if (answer.outcome != LockOutcome::kTaken) return FileLock{};
  if (answer.found.node != peers_.own()) answer.found.lock.pid = 0;
  return answer.found.lock;
}

Status RemoteLocks::end_owner(const meta::FileId& file, uint64_t owner) {
  {
    const MutexLock lock(mutex_);
    if (!node_.end_owner(root_of(file), file, owner)) return {};
  }
  return settle(root_of(file));
}

Status RemoteLocks::end_handle(const meta::FileId& file, uint64_t handle) {
  {
    const MutexLock lock(mutex_);
    if (!node_.end_handle(root_of(file), file, handle)) return {};
  }
  return settle(root_of(file));
}

// The roots are told, if they answer: else they would grant what nobody has any more.
void RemoteLocks::end_waits() {
  {
    const MutexLock lock(mutex_);
    node_.interrupt_all(ENOTCONN);
    changed_.notify_all();
    changed_.wait_for(lock, peers_.patience(), [&]() REQUIRES(mutex_) { return pending_.empty() || stop_; });
    node_.abandon_all(ENOTCONN);
  }
  hand_out();
  const MutexLock lock(mutex_);
  changed_.wait(lock, [&]() REQUIRES(mutex_) { return answering_ == 0; });
}

// ---- other nodes

Result<std::string> RemoteLocks::answer(PeerMethod method, NodeId from, Bytes payload) {
  {
    const MutexLock lock(mutex_);
    silent_.erase(from);
  }
  if (method == PeerMethod::kLock) {
    SWALE_ASSIGN_OR_RETURN(const LockMessage message, decode_lock_message(payload));
    if (message.wanted.node != from || root_of(message.file) != peers_.own())
      return corruption("{}: node {} asks for locks as node {}, and node {} is its root, not node {}",
                        text_of(message.file), from, message.wanted.node, root_of(message.file),
                        peers_.own());
    SWALE_ASSIGN_OR_RETURN(const LockAnswer answer, handle(message));
    hand_out();
    return encode(answer);
  }
  Decoder in(payload);
  const uint64_t number = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish(kItsLocks));
  {
    const MutexLock lock(mutex_);
    if (method == PeerMethod::kLockGranted) {
      node_.granted(from, number);
    } else if (from == peers_.own()) {
      root_.forget_node(static_cast<NodeId>(number));
      sort_grants();
    }
  }
  hand_out();
  return std::string();
}

// ---- the keeper

void RemoteLocks::keep() noexcept {
  Nanos looked = system_clock().now();
  for (;;) {
    static_cast<void>(contain([&] {
      std::vector<LockRoot::Grant> grants;
      std::vector<LockNode::Due> due;
      std::set<NodeId> suspects;
      {
        const MutexLock lock(mutex_);
        changed_.wait_for(lock, kAskEvery,
                          [&]() REQUIRES(mutex_) { return stop_ || !grants_.empty() || node_.cancels(); });
        if (stop_) return;
        const bool looks = system_clock().now() - looked >= kAskEvery;
        if (looks) looked = system_clock().now();
        grants = std::exchange(grants_, {});
        due = node_.due(looks, kLooksAtOnce);
        if (looks) suspects = root_.take_suspects();
      }
      tell_grants(grants);
      send_due(due);
      look_for_dead(suspects);
    }));
    const MutexLock lock(mutex_);
    if (stop_) return;
  }
}

void RemoteLocks::tell_grants(const std::vector<LockRoot::Grant>& grants) {
  for (const LockRoot::Grant& each : grants) {
    {
      const MutexLock lock(mutex_);
      if (silent_.contains(each.node)) continue;  // it looks
    }
    std::string text;
    append_u64(&text, each.number);
    const Status told = peers_
                            .call(each.node, PeerMethod::kLockGranted, std::move(text), kLockAnswerBytes,
                                  kItsLocks, kShortPatience)
                            .status();
    if (told.ok()) continue;
    if (is_down(told)) {
      end_locks_of(each.node);
    } else {
      const MutexLock lock(mutex_);
      silent_.insert(each.node);
    }
  }
}

void RemoteLocks::send_due(const std::vector<LockNode::Due>& due) {
  std::set<NodeId> failed;
  for (const LockNode::Due& each : due) {
    if (failed.contains(each.root)) {
      const MutexLock lock(mutex_);
      node_.failed(each.root, each.message, false);
    } else if (!send(each.root, each.message, kShortPatience).ok()) {
      failed.insert(each.root);
    }
  }
}

void RemoteLocks::look_for_dead(const std::set<NodeId>& suspects) {
  for (const NodeId node : suspects) {
    if (node == peers_.own()) continue;
    const auto lives = peers_.call(node, PeerMethod::kLives, "", kLockAnswerBytes, kItsLocks, kShortPatience);
    if (lives.status().code() == Code::kUnavailable) end_locks_of(node);
  }
}

// After all that it has said before, commits too: in their lane.
void RemoteLocks::end_locks_of(NodeId node) {
  log_warn("node {} is gone: the {} end", node, kItsLocks);
  std::string text;
  append_u64(&text, node);
  const auto told =
      peers_.call(peers_.own(), PeerMethod::kLockNodeGone, std::move(text), kLockAnswerBytes, kItsLocks);
  if (!told.ok()) log_warn("{}", told.status().message());
}

}  // namespace swale::fs
