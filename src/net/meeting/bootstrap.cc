#include "net/meeting/bootstrap.h"

#include <algorithm>
#include <utility>

#include "base/patience.h"

namespace swale::net {
namespace {

class SoloBootstrap : public Bootstrap {
 public:
  Rank rank() const override { return 0; }
  int32_t size() const override { return 1; }
  Result<std::string> ask(Bytes mine, Survey* survey) override {
    SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
    return answer_of({std::string(mine)}, survey);
  }
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap&) override {
    return make_book(std::vector<std::string>{std::string(row)});
  }
};

class LocalBootstrap : public Bootstrap {
 public:
  LocalBootstrap(std::shared_ptr<LocalGroup> group, Rank rank) : group_(std::move(group)), rank_(rank) {}
  Rank rank() const override { return rank_; }
  int32_t size() const override { return group_->size(); }
  Result<std::string> ask(Bytes mine, Survey* survey) override {
    SWALE_RETURN_IF_ERROR(check_gathered_bytes(mine.size()));
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, group_->allgather(rank_, mine));
    return answer_of(all, survey);
  }
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap&) override {
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, group_->allgather(rank_, row));
    return make_book(all);
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

std::string answer_of(const std::vector<std::string>& all, Survey* survey) {
  for (size_t rank = 0; rank < all.size(); ++rank) survey->take(static_cast<Rank>(rank), 0, all[rank]);
  return survey->answer();
}

std::unique_ptr<Bootstrap> solo_bootstrap() { return std::make_unique<SoloBootstrap>(); }

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
