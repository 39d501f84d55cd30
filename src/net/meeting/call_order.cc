#include "net/meeting/call_order.h"

namespace swale::net {

std::string CallOrder::text_of(const Call& call) {
  const std::string_view directory = call.path.empty() ? std::string_view("a directory") : call.path;
  const std::string named = call.path.empty() ? std::string() : " " + call.path;
  switch (call.kind) {
    case CallKind::kNone:
      return "makes no collective call";
    case CallKind::kOpenDirectory:
      return fmt::format("opens {}", directory);
    case CallKind::kMakeDirectory:
      return fmt::format("makes {}", directory);
    case CallKind::kEndEpoch:
      return fmt::format("ends epoch {} of {}", call.epoch, directory);
    case CallKind::kCloseDirectory:
      return fmt::format("closes {}", directory);
    case CallKind::kCloseJob:
      return "closes the job";
    case CallKind::kOpenStore:
      return fmt::format("opens the metadata store{}", named);
    case CallKind::kCloseStore:
      return fmt::format("closes the metadata store{}", named);
    case CallKind::kOpenServers:
      return "opens the I/O servers";
    case CallKind::kCloseServers:
      return "closes the I/O servers";
    case CallKind::kSetAttributes:
      return fmt::format("sets attributes of {}", directory);
  }
  return fmt::format("makes call {} of another version of Swale", static_cast<int>(call.kind));
}

Status CallOrder::mismatch(const Call& own, Rank peer, const Call& theirs) const {
  return error(Code::kInvalidArgument, Scope::kFatal,
               "rank {} {} while rank {} {}: all ranks must make the same collective calls in the same order",
               peer, text_of(theirs), rank_, text_of(own));
}

Status CallOrder::begin(CallKind kind, std::string_view path) {
  const MutexLock lock(mutex_);
  ++number_;
  JobCall& own = own_[number_ % kKept];
  own.number = number_;
  own.call.kind = kind;
  own.call.path.clear();  // first: the call counts even if there is no memory for the path
  own.call.path = path;
  const JobCall& claim = ahead_[number_ % kKept];
  if (claim.number == number_ && claim.call.kind != kind) return mismatch(own.call, claim.peer, claim.call);
  for (const auto& [channel, directory] : directories_) {
    if (directory.ahead.number > directory.made && directory.ahead.job_calls < number_)
      return mismatch(own.call, directory.peer, {directory.kind, directory.epoch, directory.path});
  }
  return {};
}

CallKind CallOrder::last(uint32_t* number) const {
  const MutexLock lock(mutex_);
  *number = number_;
  return own_[number_ % kKept].call.kind;
}

Status CallOrder::heard(Rank peer, uint32_t number, CallKind kind) {
  const MutexLock lock(mutex_);
  if (number == 0) return {};
  if (number > number_) {
    // The first one counts: if a later one differs, one of the two peers differs from this rank.
    JobCall& claim = ahead_[number % kKept];
    if (claim.number != number) claim = {number, peer, {kind, 0, {}}};
    return {};
  }
  const JobCall& own = own_[number % kKept];
  if (own.number != number || own.call.kind == kind) return {};
  return mismatch(own.call, peer, {kind, 0, {}});
}

void CallOrder::add_channel(uint32_t channel) {
  const MutexLock lock(mutex_);
  directories_[channel];
}

void CallOrder::forget(uint32_t channel) {
  const MutexLock lock(mutex_);
  directories_.erase(channel);
}

Status CallOrder::begin(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path,
                        CallStamp* stamp) {
  const MutexLock lock(mutex_);
  const auto found = directories_.find(channel);
  if (found == directories_.end()) return {};
  Directory& directory = found->second;
  ++directory.made;
  if (kind == CallKind::kCloseDirectory) directory.closed = directory.made;
  *stamp = {directory.made, number_};
  directory.path = path;
  if (directory.ahead.number != directory.made || directory.kind == kind) return {};
  return mismatch({kind, epoch, directory.path}, directory.peer,
                  {directory.kind, directory.epoch, directory.path});
}

Status CallOrder::heard(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch, const CallStamp& stamp) {
  const MutexLock lock(mutex_);
  const auto found = directories_.find(channel);
  if (found == directories_.end() || stamp.number == 0) return {};
  Directory& directory = found->second;
  const Call theirs{kind, epoch, directory.path};
  if (stamp.number <= directory.made) {
    const bool own_is_close = stamp.number == directory.closed;
    if (own_is_close == (kind == CallKind::kCloseDirectory)) return {};
    return mismatch({own_is_close ? CallKind::kCloseDirectory : CallKind::kEndEpoch, epoch, directory.path},
                    peer, theirs);
  }
  // A second call from ahead, of a peer that did not wait for its first one, is not kept: the first one tells
  // enough.
  if (directory.ahead.number <= directory.made) {
    directory.ahead = stamp;
    directory.peer = peer;
    directory.kind = kind;
    directory.epoch = epoch;
  }
  if (directory.closed != 0) return mismatch({CallKind::kCloseDirectory, 0, directory.path}, peer, theirs);
  if (stamp.job_calls >= number_) return {};
  return mismatch(own_[number_ % kKept].call, peer, theirs);
}

}  // namespace swale::net
