#include "net/bootstrap.h"

#include <algorithm>
#include <cstring>

#include "base/coding.h"
#include "base/patience.h"

namespace swale::net {
namespace {

class SoloBootstrap : public Bootstrap {
 public:
  Rank rank() const override { return 0; }
  int32_t size() const override { return 1; }
  Result<std::vector<std::string>> allgather(Bytes mine) override {
    SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
    return std::vector<std::string>{std::string(mine)};
  }
};

// The caller's allgather takes equal sizes only: lengths go first, then everybody's bytes padded to the
// longest. A rank whose own string is too long says so in its length, so that all ranks fail together.
class CallbackBootstrap : public Bootstrap {
 public:
  explicit CallbackBootstrap(CommCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  Rank rank() const override { return callbacks_.rank; }
  int32_t size() const override { return callbacks_.size; }

  Result<std::vector<std::string>> allgather(Bytes mine) override {
    const auto size = static_cast<size_t>(callbacks_.size);
    const uint64_t length = mine.size();
    std::vector<uint64_t> lengths(size);
    SWALE_RETURN_IF_ERROR(call(&length, lengths.data(), sizeof(length)));
    if (lengths[static_cast<size_t>(callbacks_.rank)] != length) {
      return invalid_argument(
          "the communicator's allgather gave rank {} of {} another rank's bytes: are rank and size right?",
          callbacks_.rank, callbacks_.size);
    }
    const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    SWALE_RETURN_IF_ERROR(check_gathered_bytes(longest));
    std::vector<std::string> all(size);
    if (longest == 0) return all;
    std::string send(longest, '\0');
    std::memcpy(send.data(), mine.data(), mine.size());
    std::string received(longest * size, '\0');
    SWALE_RETURN_IF_ERROR(call(send.data(), received.data(), longest));
    for (size_t i = 0; i < size; ++i) all[i] = received.substr(i * longest, lengths[i]);
    return all;
  }

 private:
  Status call(const void* send, void* receive, size_t bytes) {
    const int answer = callbacks_.allgather(send, receive, bytes);
    if (answer == 0) return ok_status();
    return error(Code::kUnavailable, Scope::kFatal,
                 "the communicator's allgather of {} bytes failed with {} on rank {}", bytes, answer,
                 callbacks_.rank);
  }

  CommCallbacks callbacks_;
};

class LocalBootstrap : public Bootstrap {
 public:
  LocalBootstrap(std::shared_ptr<LocalGroup> group, Rank rank) : group_(std::move(group)), rank_(rank) {}
  Rank rank() const override { return rank_; }
  int32_t size() const override { return group_->size(); }
  Result<std::vector<std::string>> allgather(Bytes mine) override {
    SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
    return group_->allgather(rank_, mine);
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  Rank rank_;
};

}  // namespace

Status check_gathered_bytes(size_t bytes) {
  if (bytes <= Bootstrap::kBytesMax) return ok_status();
  return error(Code::kResourceExhausted, Scope::kOperation, "allgather of {} bytes, the limit is {}", bytes,
               Bootstrap::kBytesMax);
}

std::unique_ptr<Bootstrap> solo_bootstrap() { return std::make_unique<SoloBootstrap>(); }

std::unique_ptr<Bootstrap> callback_bootstrap(CommCallbacks callbacks) {
  return std::make_unique<CallbackBootstrap>(std::move(callbacks));
}

std::unique_ptr<Bootstrap> local_bootstrap(std::shared_ptr<LocalGroup> group, Rank rank) {
  return std::make_unique<LocalBootstrap>(std::move(group), rank);
}

// A round that is full becomes `last_`, and a new one begins; a rank cannot enter round n + 1 before it has
// left round n, so one finished round is enough to keep.
Result<std::vector<std::string>> LocalGroup::allgather(Rank rank, Bytes mine) {
  MutexLock lock(mutex_);
  const uint64_t round = round_;
  auto& slot = pending_[rank];
  slot = std::string(mine);
  if (std::all_of(pending_.begin(), pending_.end(), [](const auto& each) { return each.has_value(); })) {
    last_.clear();
    for (auto& each : pending_) last_.push_back(std::move(*std::exchange(each, std::nullopt)));
    ++round_;
    changed_.notify_all();
    return last_;
  }
  if (!wait_patiently(changed_, lock, deadline_, [&]() REQUIRES(mutex_) { return round_ != round; })) {
    std::string missing;
    for (Rank each = 0; each < size_; ++each) {
      if (!pending_[each]) missing += fmt::format(" {}", each);
    }
    return error(Code::kDeadlineExceeded, Scope::kFatal, "allgather: waited {:g} s for ranks{}",
                 to_seconds(deadline_), missing);
  }
  return last_;
}

}  // namespace swale::net
