#include "net/meeting/exchange.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/contain.h"
#include "base/patience.h"
#include "net/fabric/status_codec.h"
#include "net/meeting/bootstrap.h"

namespace swale::net {
namespace {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
constexpr uint8_t kFailed = 3;
struct Kinds {
  uint8_t up;
  uint8_t down;
};
constexpr Kinds kKinds[] = {{1, 2}, {4, 5}, {6, 7}};  // by ExchangeTree::Answer

const Kinds& kinds_of(ExchangeTree::Answer wanted) { return kKinds[static_cast<size_t>(wanted)]; }

Status malformed(Rank from, Bytes message) {
  return error(
      Code::kCorruption, Scope::kPeer,
      "rank {} sent a malformed message of {} bytes to an exchange of the job; do all ranks run the same "
      "version of Swale?",
      from, message.size());
}

// Ranks ascend, so that none comes twice.
bool read_parts(Decoder* in, int32_t size, std::map<Rank, std::string>* parts) {
  const uint64_t count = in->varint64();
  int64_t last = -1;
  for (uint64_t i = 0; i < count && in->ok(); ++i) {
    const uint32_t rank = in->u32();
    const Bytes bytes = in->sized();
    if (rank >= static_cast<uint32_t>(size) || int64_t{rank} <= last) return false;
    last = rank;
    parts->emplace_hint(parts->end(), static_cast<Rank>(rank), std::string(bytes));
  }
  return in->finished();
}

}  // namespace

void ExchangeTree::tell_neighbours(const std::string& message, Rank but) {
  std::vector<Rank> all = tree_.children();
  if (!tree_.is_root()) all.push_back(tree_.parent());
  for (const Rank each : all) {
    if (each != but) outgoing_.emplace_back(each, message);
  }
}

std::string ExchangeTree::encode(uint8_t kind, const Parts& parts) const {
  std::string out;
  append_u32(&out, round_);
  append_u8(&out, kind);
  append_varint(&out, parts.size());
  for (const auto& [rank, bytes] : parts) {
    append_u32(&out, static_cast<uint32_t>(rank));
    append_sized(&out, bytes);
  }
  return out;
}

std::string ExchangeTree::encode_failure() const {
  std::string out;
  append_u32(&out, round_);
  append_u8(&out, kFailed);
  append_status(&out, failure_);
  return out;
}

void ExchangeTree::begin(Bytes mine, Answer wanted) {
  assert(!under_way_);
  under_way_ = true;
  sent_up_ = false;
  ++round_;
  wanted_ = wanted;
  mine_.clear();
  if (wanted == Answer::kAll || !mine.empty()) mine_.emplace(rank_, mine);
  if (!failure_.ok()) return fail(failure_);
  advance();
}

std::vector<Rank> ExchangeTree::awaited() const {
  std::vector<Rank> missing;
  const auto given = up_.find(round_);
  for (const Rank child : tree_.children()) {
    if (given == up_.end() || !given->second.contains(child)) missing.push_back(child);
  }
  if (missing.empty() && !tree_.is_root()) missing.push_back(tree_.parent());
  return missing;
}

// The lowest rank's, of those that gave the same.
void ExchangeTree::keep_least(Parts* parts) const {
  const auto least = std::min_element(parts->begin(), parts->end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least != parts->end()) *parts = {{least->first, std::move(least->second)}};
}

void ExchangeTree::advance() {
  if (!under_way_ || sent_up_ || !failure_.ok()) return;
  std::map<Rank, Given>& given = up_[round_];
  if (given.size() < static_cast<size_t>(tree_.child_count())) return;
  Parts all = std::exchange(mine_, {});
  for (auto& [child, from_child] : given) {
    if (from_child.wanted != wanted_) {
      return fail(error(Code::kCorruption, Scope::kPeer,
                        "rank {}: rank {} came to round {} of an exchange for another kind of answer: do all "
                        "ranks make the same collective calls?",
                        rank_, child, round_));
    }
    all.merge(from_child.parts);
  }
  up_.erase(round_);
  sent_up_ = true;
  if (wanted_ == Answer::kLeast) keep_least(&all);
  if (!tree_.is_root()) {
    outgoing_.emplace_back(tree_.parent(), encode(kinds_of(wanted_).up, all));
  } else {
    receive_down(round_, {wanted_, std::move(all)});
  }
}

void ExchangeTree::receive_up(Rank from, uint32_t round, Given given) {
  const bool next = round == round_ + 1 || (round == round_ && under_way_ && !sent_up_);
  if (!next || !tree_.is_child(from) || !up_[round].emplace(from, std::move(given)).second) {
    return fail(error(
        Code::kCorruption, Scope::kPeer,
        "rank {}: rank {} gave to round {} of an exchange, expected {} and from each child once: do all "
        "ranks make the same collective calls?",
        rank_, from, round, round_));
  }
  advance();
}

void ExchangeTree::receive_down(uint32_t round, Given given) {
  Parts& parts = given.parts;
  const bool whole = given.wanted != Answer::kAll || parts.size() == static_cast<size_t>(size_);
  if (!under_way_ || round != round_ || !sent_up_ || down_ || given.wanted != wanted_ || !whole) {
    return fail(
        error(Code::kCorruption, Scope::kPeer,
              "rank {}: an answer of {} ranks to round {} of an exchange, expected {} ranks and round {}",
              rank_, parts.size(), round, wanted_ == Answer::kAll ? size_ : 1, round_));
  }
  const std::string message = encode(kinds_of(wanted_).down, parts);
  for (const Rank child : tree_.children()) outgoing_.emplace_back(child, message);
  down_ = std::move(parts);
}

void ExchangeTree::on_message(Rank from, Bytes message) {
  Decoder in(message);
  const uint32_t round = in.u32();
  const uint8_t kind = in.u8();
  if (kind == kFailed) {
    const Status theirs = read_status(&in);
    if (!in.finished() || theirs.ok()) return fail(malformed(from, message));
    if (failure_.ok()) {
      failure_ = theirs;
      failure_from_ = from;
    }
    failure_due_ = true;
    return tell_failure();
  }
  bool up = false, down = false;
  Given given{Answer::kAll, {}};
  for (const Answer each : {Answer::kAll, Answer::kLeast, Answer::kGiven}) {
    if (kind != kinds_of(each).up && kind != kinds_of(each).down) continue;
    given.wanted = each;
    up = kind == kinds_of(each).up;
    down = !up;
  }
  const bool read = (up || down) && read_parts(&in, size_, &given.parts);
  if (!read || !tree_.is_neighbour(from) || (given.wanted == Answer::kLeast && given.parts.size() > 1))
    return fail(malformed(from, message));
  if (!failure_.ok()) return;
  if (up) return receive_up(from, round, std::move(given));
  if (from > rank_) return fail(malformed(from, message));  // answers come from the parent
  receive_down(round, std::move(given));
}

void ExchangeTree::on_gone(Rank peer, const Status& why) {
  if (tree_.is_neighbour(peer)) fail(why);
}

// Others are told once somebody may be waiting: a job that is just closing makes no noise.
void ExchangeTree::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
  if (!under_way_ || down_) return;
  failure_due_ = true;
  tell_failure();
}

void ExchangeTree::leave() {
  under_way_ = false;
  down_.reset();
}

void ExchangeTree::give_up(const Status& why) {
  if (failure_.ok()) failure_ = why;
  failure_due_ = true;
  tell_failure();
}

// Marked as told last: for want of memory some neighbours may be told twice, and none never.
void ExchangeTree::tell_failure() {
  if (!failure_due_ || failure_told_) return;
  tell_neighbours(encode_failure(), failure_from_);
  failure_told_ = true;
}

std::optional<Result<ExchangeTree::Parts>> ExchangeTree::take() {
  if (!under_way_) return std::nullopt;
  if (down_) {
    under_way_ = false;
    Parts all = *std::move(down_);
    down_.reset();
    return all;
  }
  if (failure_.ok()) return std::nullopt;
  under_way_ = false;
  return failure_;
}

// ---- the blocking call

void Exchange::post_all() {
  std::deque<ExchangeTree::Outgoing>& outgoing = tree_.outgoing();
  while (!outgoing.empty()) {
    auto& [to, message] = outgoing.front();
    const uint32_t place = lent_.add(std::move(message));
    bool free = false;
    try {
      free = fabric_.post(to, lent_.bytes(place), place);
    } catch (...) {
      message = lent_.release(place);
      throw;
    }
    if (free) lent_.release(place);
    outgoing.pop_front();
  }
}

Result<std::vector<std::string>> Exchange::allgather(Bytes mine) {
  SWALE_ASSIGN_OR_RETURN(ExchangeTree::Parts parts, exchange(mine, ExchangeTree::Answer::kAll));
  std::vector<std::string> all;
  for (auto& [rank, bytes] : parts) all.push_back(std::move(bytes));
  return all;
}

Result<std::string> Exchange::least(Bytes mine) {
  SWALE_ASSIGN_OR_RETURN(ExchangeTree::Parts one, exchange(mine, ExchangeTree::Answer::kLeast));
  return one.empty() ? std::string() : std::move(one.begin()->second);
}

Result<ExchangeTree::Parts> Exchange::exchange(Bytes mine, ExchangeTree::Answer wanted) {
  MutexLock lock(mutex_);
  std::optional<Result<ExchangeTree::Parts>> answer;
  const Status status = contain([&]() REQUIRES(mutex_) { answer = wait_for_all(lock, mine, wanted); });
  if (status.ok()) return *std::move(answer);
  tree_.leave();
  lock.unlock();
  give_up(error(status.code(), Scope::kFatal, "rank {}: {}", rank_, status.message()));
  return status;
}

std::optional<Result<ExchangeTree::Parts>> Exchange::wait_for_all(const MutexLock& lock, Bytes mine,
                                                                  ExchangeTree::Answer wanted) {
  if (const Status status = check_gathered_bytes(mine.size()); !status.ok()) {
    tree_.fail(status.with_context(fmt::format("rank {}", rank_)));
    mine = {};
  }
  tree_.begin(mine, wanted);
  post_all();
  // Children that have not spoken yet may be dead already: from here on they are watched.
  for (const Rank each : tree_.awaited()) fabric_.watch(each);
  std::optional<Result<ExchangeTree::Parts>> answer;
  const auto answered = [&]() REQUIRES(mutex_) {
    answer = tree_.take();
    return answer.has_value();
  };
  bool in_time = wait_patiently(changed_, lock, deadline_, answered);
  // A rank that only waits for its parent leaves it to the ranks above to name the one that is missing: these
  // began to wait no later.
  const auto for_parent = [&]() REQUIRES(mutex_) {
    const auto awaited = tree_.awaited();
    return !awaited.empty() && awaited.front() < rank_;
  };
  if (!in_time && for_parent()) in_time = wait_patiently(changed_, lock, deadline_, answered);
  if (in_time) return answer;
  std::string names;
  for (const Rank each : tree_.awaited()) names += fmt::format("{}{}", names.empty() ? "" : ", ", each);
  tree_.fail(error(Code::kDeadlineExceeded, Scope::kFatal,
                   "rank {} of {} waited more than {:g} s (job.collective_deadline_s) for rank {}, which "
                   "lives but does not come to the same collective call: do all ranks make it?",
                   rank_, size_, to_seconds(deadline_), names));
  post_all();
  return tree_.take();
}

// An event that cannot be dealt with leaves the ranks at different places.
template <class Event>
void Exchange::handle(const Event& event) noexcept {
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) {
    event();
    post_all();
  });
  if (!status.ok()) {
    static_cast<void>(contain([&]() REQUIRES(mutex_) { tree_.fail(status); }));  // retry() tells of it
    static_cast<void>(contain([&]() REQUIRES(mutex_) { post_all(); }));
  }
  changed_.notify_all();
}

void Exchange::on_message(Rank from, Bytes message) noexcept {
  handle([&]() REQUIRES(mutex_) { tree_.on_message(from, message); });
}

void Exchange::on_gone(Rank peer, const Status& why) noexcept {
  handle([&]() REQUIRES(mutex_) { tree_.on_gone(peer, why); });
}

void Exchange::give_up(const Status& why) noexcept {
  handle([&]() REQUIRES(mutex_) { tree_.give_up(why); });
}

void Exchange::retry() noexcept {
  const MutexLock lock(mutex_);
  static_cast<void>(contain([&]() REQUIRES(mutex_) {
    tree_.tell_failure();
    post_all();
  }));
}

Status Exchange::failure() {
  const MutexLock lock(mutex_);
  return tree_.failure();
}

void Exchange::on_sent(uint64_t cookie) noexcept {
  const MutexLock lock(mutex_);
  lent_.release(static_cast<uint32_t>(cookie));
}

}  // namespace swale::net
