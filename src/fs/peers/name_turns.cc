#include "fs/peers/name_turns.h"

#include <cerrno>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr Nanos kLookEvery = seconds(1);
constexpr char kTheTurn[] = "the turn to change names";
constexpr int kTellTries = 100;  // without memory

std::string encode_number(uint64_t number) {
  std::string out;
  append_u64(&out, number);
  return out;
}

}  // namespace

Result<uint64_t> NameTurns::take() {
  Turn turn{peers_.own(), 0};
  {
    const MutexLock lock(mutex_);
    turn.number = ++last_;
  }
  const Status given = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(
        turn.node == 0
            ? wait_for(turn)
            : peers_.call(0, PeerMethod::kTurn, encode_number(turn.number), 64, kTheTurn).status());
    // It may have lost it while it waited.
    return expect_own_ ? expect_own_() : Status();
  });
  if (given.ok()) return turn.number;
  over(turn.number);  // it may come after all
  return given;
}

// A turn that nobody ends stops the changes of all nodes: what fails for want of memory is done again.
void NameTurns::over(uint64_t number) {
  if (peers_.own() == 0) return end({0, number});
  Status told;
  for (int tries = 0; tries < kTellTries; ++tries) {
    told = contain(
        [&] { return peers_.call(0, PeerMethod::kTurnOver, encode_number(number), 64, kTheTurn).status(); });
    if (told.code() != Code::kResourceExhausted) break;
  }
  if (!told.ok()) log_warn("{}", told.message());
}

Result<std::string> NameTurns::answer(PeerMethod method, NodeId from, Bytes payload) {
  Decoder in(payload);
  const Turn turn{from, in.u64()};
  SWALE_RETURN_IF_ERROR(in.finish(kTheTurn));
  if (method == PeerMethod::kTurnOver)
    end(turn);
  else
    SWALE_RETURN_IF_ERROR(wait_for(turn));
  return std::string();
}

// Answers before those that asked stop waiting: a turn that nobody knows of would be nobody's to end.
Status NameTurns::wait_for(const Turn& turn) {
  const Nanos until = system_clock().now() + peers_.patience() / 2;
  for (;;) {
    NodeId holder = 0;
    {
      const MutexLock lock(mutex_);
      if (over_.erase(turn) > 0) return Status(Code::kAborted, Scope::kOperation, "the turn was given up");
      if (!taken_) {
        taken_ = true;
        now_ = turn;
        return {};
      }
      const Nanos now = system_clock().now();
      if (now >= until)
        return errno_status(EIO, fmt::format("node {} has {}, and does not end it", now_.node, kTheTurn));
      const Turn before = now_;
      holder = before.node;
      changed_.wait_for(lock, std::min(kLookEvery, until - now),
                        [&]() REQUIRES(mutex_) { return !taken_ || now_ != before || over_.contains(turn); });
      if (!taken_ || now_ != before) continue;
    }
    if (holder != peers_.own()) static_cast<void>(look_for_dead(holder));
  }
}

// What a dead node has begun, its intent finishes when it is started again.
Status NameTurns::look_for_dead(NodeId node) {
  const auto lives = peers_.call(node, PeerMethod::kLives, "", 64, kTheTurn);
  if (lives.status().code() != Code::kUnavailable) return {};
  const MutexLock lock(mutex_);
  if (taken_ && now_.node == node) taken_ = false;
  changed_.notify_all();
  return lives.status();
}

void NameTurns::end(const Turn& turn) {
  static_cast<void>(contain([&] {
    const MutexLock lock(mutex_);
    if (taken_ && now_ == turn)
      taken_ = false;
    else
      over_.insert(turn);
    changed_.notify_all();
  }));
}

}  // namespace swale::fs
