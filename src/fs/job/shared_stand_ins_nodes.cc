// SharedStandIns: what nodes ask each other, and locks.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/contain.h"
#include "fs/job/insist.h"
#include "fs/job/job_marks.h"
#include "fs/job/shared_stand_ins.h"
#include "fs/job/stand_in_file.h"

namespace swale::fs {
namespace {

constexpr useconds_t kAskRootAgain = 2'000;
constexpr int kTriesBeforeLook = 500;           // whether the node that has its turn lives
constexpr size_t kRootAnswerBytes = 64 * kKiB;  // some 16,000 nodes

}  // namespace

Result<StandInAnswer> SharedStandIns::ask(const StandInStep& step) {
  NodePeers& peers = fs_.peers();
  const NodeId root = root_of(step.file);
  if (root == peers.own()) return fs_.stand_in_roots().obey(peers.own(), step);
  SWALE_ASSIGN_OR_RETURN(const std::string text, peers.call(root, PeerMethod::kStandIn, encode(step),
                                                            kRootAnswerBytes, text_of(step.file)));
  return decode_stand_in_answer(text);
}

// Waits for the node that is in the way, if that lives.
int SharedStandIns::ask_until_granted(const StandInStep& step, StandInAnswer* out) {
  for (int tries = 1;; ++tries) {
    auto answer = ask(step);
    if (!answer.ok()) return fs_.answer_of(answer.status());
    if (answer->granted) {
      *out = std::move(*answer);
      return 0;
    }
    if (tries % kTriesBeforeLook == 0 && answer->taking != fs_.peers().own()) {
      const auto lives = fs_.peers().call(answer->taking, PeerMethod::kLives, "", kSmallAnswer,
                                          text_of(step.file) + ": taking it in");
      if (!lives.ok()) return fs_.answer_of(lives.status());
    }
    ::usleep(kAskRootAgain);
  }
}

int SharedStandIns::say(const meta::FileId& id, uint8_t uses, uint64_t* number) {
  StandInAnswer answer;
  const int failed = ask_until_granted({.file = id, .op = StandInOp::kOpen, .uses = uses}, &answer);
  if (failed == 0) *number = answer.number;
  return failed;
}

// `change` returns an errno. What it has changed is committed before the turn is over.
int SharedStandIns::in_turn(const meta::FileId& id, bool alone, const std::function<int()>& change) {
  if (!rules_.takes_turns) return errno_of(change);
  StandInAnswer answer;
  if (const int failed = ask_until_granted({.file = id, .op = StandInOp::kTurn, .alone = alone}, &answer);
      failed != 0)
    return failed;
  const int failed = errno_of(change);
  const auto over = ask({.file = id, .op = StandInOp::kTurnOver});
  return failed != 0 || over.ok() ? failed : fs_.answer_of(over.status());
}

// What other nodes have written of it is in the tree. *number: of the root, from before what is read next.
int SharedStandIns::bring(const meta::FileId& id, uint64_t* number) {
  const StandInStep step{.file = id};
  auto answer = ask(step);
  if (!answer.ok()) return fs_.answer_of(answer.status());
  if (!answer->nodes.empty() && rules_.asks_others) {
    const std::string wish = encode(TakeInWish{id});
    for (const auto& each :
         fs_.peers().call_all(answer->nodes, PeerMethod::kTakeIn, wish, kSmallAnswer, text_of(id)))
      if (!each.ok()) return fs_.answer_of(each.status());
    answer = ask(step);
    if (!answer.ok()) return fs_.answer_of(answer.status());
  }
  *number = answer->number;
  return 0;
}

int SharedStandIns::bring_once(StandIn& stand, uint64_t* number) {
  const uint64_t came = stand.asks.load();
  const MutexLock lock(stand.asking);
  if (stand.asks.load() <= came) {
    ++stand.asks;
    if (const int failed = bring(stand.id, &stand.asked_number); failed != 0) {
      --stand.asks;
      return failed;
    }
  }
  *number = stand.asked_number;
  return 0;
}

// How long it is there, and since when, without taking it in.
int SharedStandIns::look_elsewhere(const meta::FileId& id, struct stat* found) {
  const auto answer = ask({.file = id});
  if (!answer.ok()) return fs_.answer_of(answer.status());
  if (answer->nodes.empty()) return 0;
  const std::string wish = encode(TakeInWish{id, false});
  for (const auto& each :
       fs_.peers().call_all(answer->nodes, PeerMethod::kTakeIn, wish, kSmallAnswer, text_of(id))) {
    const auto there = each.ok() ? decode_take_in_answer(*each) : each.status();
    if (!there.ok()) return fs_.answer_of(there.status());
    found->st_size = std::max(found->st_size, static_cast<off_t>(there->size));
    if (there->modified_ns > nanos_of(found->st_mtim)) found->st_mtim = timespec_of(there->modified_ns);
  }
  return 0;
}

// One that has begun since this was asked has all that had been written then.
Status SharedStandIns::take_in_for_others(StandIn& stand) {
  const uint64_t came = stand.takes.load();
  const MutexLock lock(stand.mutex);
  int failed = stand.over || stand.takes.load() > came ? 0 : take_in_locked(stand);
  if (failed == 0) failed = end_if_nobodys(stand);
  if (failed == 0) return {};
  return errno_status(failed, fmt::format("{}/{}: taking it into the tree", folder_, name_of(stand)));
}

Result<TakeInAnswer> SharedStandIns::answer(const TakeInWish& wish) {
  TakeInAnswer own;
  if (wish.file.none()) {
    SWALE_RETURN_IF_ERROR(take_all());
    return own;
  }
  for (const Kind kind : {Kind::kCopy, Kind::kTail}) {
    const auto stand = find_by_id(wish.file, kind);
    if (stand == nullptr) continue;
    if (wish.takes) {
      SWALE_RETURN_IF_ERROR(take_in_for_others(*stand));
      continue;
    }
    const MutexLock lock(stand->mutex);
    struct stat now;
    if (stand->over || !stand->may_be_written || ::fstat(stand->own.get(), &now) != 0) continue;
    own.size = std::max(own.size, static_cast<uint64_t>(now.st_size));
    if (!same(now.st_mtim, stand->taken.st_mtim))
      own.modified_ns = std::max(own.modified_ns, nanos_of(now.st_mtim));
  }
  return own;
}

Status SharedStandIns::take_all_everywhere() noexcept {
  SWALE_RETURN_IF_ERROR(take_all());
  return contain([&]() -> Status {
    std::vector<NodeId> others;
    for (NodeId node = 0; node < fs_.peers().nodes(); ++node)
      if (node != fs_.peers().own()) others.push_back(node);
    for (const auto& each : fs_.peers().call_all(others, PeerMethod::kTakeIn, encode(TakeInWish{}),
                                                 kSmallAnswer, "what programs have written"))
      SWALE_RETURN_IF_ERROR(each.status());
    return {};
  });
}

// ---- locks

int SharedStandIns::refresh_own(const meta::FileId& id) {
  const auto copy = find_by_id(id, Kind::kCopy);
  if (copy == nullptr) return 0;
  const auto answer = ask({.file = id});
  if (!answer.ok()) return fs_.answer_of(answer.status());
  const MutexLock lock(copy->mutex);
  if (copy->over || !copy->own.valid()) return 0;
  return errno_of([&]() NO_THREAD_SAFETY_ANALYSIS { return refresh(*copy, answer->number); });
}

int SharedStandIns::lock(Node& node, ino_t inode, const FileLock& wanted) {
  const meta::FileId id = JobFs::file_id(node);
  const int untaken = wanted.type == LockType::kWrite ? 0 : take_in_own(id);
  if (untaken != 0 && wanted.type == LockType::kRead) return untaken;
  if (const int failed = locks_.set(node, inode, wanted); failed != 0) return failed;
  if (wanted.type == LockType::kNone) return untaken;
  const int failed = refresh_own(id);
  if (failed != 0) {
    FileLock none = wanted;
    none.type = LockType::kNone;
    static_cast<void>(locks_.set(node, inode, none));
  }
  return failed;
}

int SharedStandIns::find_lock(Node& node, const FileLock& wanted, FileLock* in_the_way) {
  return locks_.get(node, wanted, in_the_way);
}

}  // namespace swale::fs
