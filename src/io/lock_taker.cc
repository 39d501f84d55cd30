#include "io/lock_taker.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/log.h"
#include "io/fresh_file.h"
#include "io/held_lock.h"

namespace swale::io {
namespace {

constexpr int kTriesPerLook = 16;  // the lock may vanish or be taken between two calls; retry after step()
constexpr Nanos kTellAfter = seconds(1);
constexpr std::string_view kDraftTail = ".tmp";
constexpr std::string_view kClaimTail = ".claim";

std::string draw_nonce(uint64_t given) {
  if (given != 0) return fmt::format("{:016x}", given);
  std::random_device entropy;
  return fmt::format("{:08x}{:08x}", entropy(), entropy());
}

}  // namespace

LockTaker::LockTaker(Device& device, std::string path, const LockRequest& request, Nanos now)
    : device_(device),
      path_(std::move(path)),
      request_(request),
      began_(now),
      wait_(request.lease.wait, now) {
  content_.holder = request.self ? *request.self : this_process();
  content_.allocation = scheduler_allocation();
  content_.job = request.job;
  content_.nonce = draw_nonce(request.nonce);
  content_.since = utc_now();
  content_.lease = std::clamp(request.lease.lease, kLeaseMin, kLeaseMax);
  draft_ = fmt::format("{}.{}{}", path_, content_.nonce, kDraftTail);
  if (!request.self) listed_ = list_nonce(content_.nonce);
}

LockTaker::~LockTaker() = default;

Nanos LockTaker::step() const {
  if (contended_ && !told_) return Patience::kStepMin;
  return watch_ ? std::min(watch_->patience.step(), wait_.step()) : wait_.step();
}

Result<std::optional<LockFile>> LockTaker::look(Nanos now) {
  for (int attempt = 0; attempt < kTriesPerLook; ++attempt) {
    const Result<std::optional<Next>> tried = try_once(now);
    if (!tried.ok()) {
      leave_nothing();
      return tried.status();
    }
    const std::optional<Next> next = *tried;
    if (!next) {
      if (!took_over_.empty()) log_warn("{}: took over {}", path_, took_over_);
      remove_leftovers();
      return std::optional(LockFile(
          std::make_shared<HeldLock>(device_, path_, content_, std::move(file_), std::move(listed_))));
    }
    if (*next == Next::kWait) break;
  }
  if (wait_.over(now)) return undecided();
  tell_what_is_waited_for(now);
  return std::optional<LockFile>();
}

Result<std::optional<LockTaker::Next>> LockTaker::try_once(Nanos now) {
  Result<FoundLock> found = read_lock(device_, path_);
  if (found.status().code() == Code::kNotFound) {
    const Status made = place(path_);
    if (made.ok()) return std::optional<Next>();
    if (made.code() == Code::kAlreadyExists) return std::optional(Next::kAgain);
    if (made.code() != Code::kNotFound) return made;
    // The winner removed our draft as a leftover; or the directory does not exist, or is a link that leads
    // nowhere, which exists, too.
    const Status directory = device_.list(parent_directory(path_)).status();
    return directory.ok() ? Result<std::optional<Next>>(Next::kAgain) : directory;
  }
  SWALE_RETURN_IF_ERROR(found.status());
  if (is_ours(*found)) {  // another taker, late with its own claim, has moved our lock into place
    if (!file_) {
      SWALE_ASSIGN_OR_RETURN(file_, device_.open(path_, OpenMode::kReadWrite));
    }
    return std::optional<Next>();
  }
  const bool changed_hands = holder_ && watch_ && !found->same_lock(*holder_);
  holder_ = *std::move(found);
  const LockVerdict verdict = judge(*holder_, &watch_, now);
  if (verdict.kind == LockVerdict::Kind::kDead) return take(*holder_, verdict.why, now);
  if (!holder_->content.ok()) {
    return error(Code::kBusy, Scope::kFile, "{}: {}. If no job is writing here, `swale unlock {}` removes it",
                 path_, holder_->content.status().message(), parent_directory(path_));
  }
  if (verdict.kind == LockVerdict::Kind::kAlive) return alive(verdict.why);
  if (changed_hands) return alive("has taken the lock a moment ago");
  return std::optional(Next::kWait);
}

// Decides whether the holder is certainly dead or alive, or else whether it renews the lock while we watch.
LockVerdict LockTaker::judge(const FoundLock& found, std::optional<Watch>* watch, Nanos now) const {
  using Kind = LockVerdict::Kind;
  const std::string who = found.text();
  if (found.token() == request_.force) return {Kind::kDead, who + ": by force, as a person asked"};
  LockVerdict verdict = request_.self && found.content.ok() ? LockVerdict() : judge_lock(found);
  if (verdict.kind != Kind::kUnknown) return verdict;
  const std::string witnessed = request_.witness ? request_.witness(*found.content) : "";
  if (!witnessed.empty()) return {Kind::kDead, fmt::format("{}: {}", who, witnessed)};
  if (!*watch || !(*watch)->seen.same_lock(found)) {
    *watch = Watch{found, Patience(found.content->lease, now)};
    return {};
  }
  if ((*watch)->seen.content->counter != found.content->counter) return {Kind::kAlive, "renews its lock"};
  if (!(*watch)->patience.over(now)) return {};
  return {Kind::kDead,
          fmt::format("{}: it has not renewed it for {:g} s", who, to_seconds(found.content->lease))};
}

// Steps: create our lock under the name of the claim, which only one taker gets; read the old lock once more;
// rename the claim over it.
Result<std::optional<LockTaker::Next>> LockTaker::take(const FoundLock& found, const std::string& why,
                                                       Nanos now) {
  const std::string claim = fmt::format("{}.{}{}", path_, found.token(), kClaimTail);
  SWALE_ASSIGN_OR_RETURN(const std::optional<Next> theirs, judge_claim(claim, now));
  contended_ = theirs == Next::kWait;
  if (theirs) return theirs;
  const Status claimed = place(claim);
  const bool too_late = claimed.code() == Code::kAlreadyExists || claimed.code() == Code::kNotFound;
  if (too_late) return std::optional(Next::kAgain);  // kNotFound: as in try_once
  SWALE_RETURN_IF_ERROR(claimed);
  Result<FoundLock> there = read_lock(device_, path_);
  Status status = there.status();
  if (there.ok() && there->bytes == found.bytes) {
    status = device_.rename(claim, path_);
    there = read_lock(device_, path_);
    if (status.ok()) status = there.status();
  }
  if (there.ok() && is_ours(*there)) {
    took_over_ = why;
    return std::optional<Next>();
  }
  static_cast<void>(device_.remove(claim));
  if (!status.ok() && status.code() != Code::kNotFound) return status;
  return std::optional(Next::kAgain);
}

// Handles the claim of another taker, which needs it for milliseconds unless it died. None: there is no
// claim.
Result<std::optional<LockTaker::Next>> LockTaker::judge_claim(const std::string& claim, Nanos now) {
  const Result<FoundLock> found = read_lock(device_, claim);
  if (found.status().code() == Code::kNotFound) return std::optional<Next>();
  SWALE_RETURN_IF_ERROR(found.status());
  if (judge(*found, &claim_watch_, now).kind != LockVerdict::Kind::kDead) return std::optional(Next::kWait);
  const Status removed = device_.remove(claim);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  return std::optional<Next>();
}

// Creates the whole lock at `path`, or nothing. kAlreadyExists if a lock is there; kNotFound if the process
// that got the lock removed our draft as a leftover.
Status LockTaker::place(const std::string& path) {
  const auto make = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(file_, create_fresh(device_, draft_));
    SWALE_RETURN_IF_ERROR(file_->pwrite(0, content_.encode()));
    SWALE_RETURN_IF_ERROR(file_->sync());
    return device_.rename_new(draft_, path);
  };
  const Status status = make();
  if (status.ok()) return status;
  file_.reset();
  static_cast<void>(device_.remove(draft_));
  return status;
}

bool LockTaker::is_ours(const FoundLock& found) const {
  return found.content.ok() && found.content->nonce == content_.nonce;
}

// After a failure the lock may still be at its path: no other process could take it while this one lives.
void LockTaker::leave_nothing() {
  const Result<FoundLock> there = read_lock(device_, path_);
  if (there.ok() && is_ours(*there)) static_cast<void>(device_.remove(path_));
}

// Removes drafts and claims of takers that were killed or came too late. A file that cannot be removed does
// no harm.
void LockTaker::remove_leftovers() {
  const std::string directory = parent_directory(path_);
  const Result<std::vector<std::string>> names = device_.list(directory);
  if (!names.ok()) return;
  const std::string head = path_.substr(path_.find_last_of('/') + 1) + ".";
  for (const std::string& name : *names) {
    if (name.starts_with(head) && (name.ends_with(kDraftTail) || name.ends_with(kClaimTail)))
      static_cast<void>(device_.remove(fmt::format("{}/{}", directory, name)));
  }
}

void LockTaker::tell_what_is_waited_for(Nanos now) {
  if (told_ || now - began_ < kTellAfter) return;
  told_ = true;
  if (contended_ || !holder_ || !holder_->content.ok()) {
    log_warn("{}: waiting up to {:g} s for another process that is taking it over, or has died doing so",
             path_, to_seconds(request_.lease.wait));
    return;
  }
  log_warn("{}: waiting up to {:g} s to see whether {} still renews its lock", path_,
           to_seconds(std::min(holder_->content->lease, request_.lease.wait)), holder_->content->who());
}

Status LockTaker::alive(std::string_view how) const {
  const LockContent& lock = *holder_->content;
  return error(
      Code::kBusy, Scope::kFile,
      "{}: {} has been writing here since {} (job {}) and {}; wait for it, or end it. `swale unlock {}` "
      "shows more",
      path_, lock.who(), lock.since, lock.job, how, parent_directory(path_));
}

Status LockTaker::undecided() const {
  const std::string remedy =
      fmt::format("if no job is writing here, `swale unlock {}` removes it", parent_directory(path_));
  if (!holder_ || !holder_->content.ok() || contended_) {
    return error(Code::kBusy, Scope::kFile, "{}: other processes have been taking it for {:g} s; {}", path_,
                 to_seconds(request_.lease.wait), remedy);
  }
  const LockContent& lock = *holder_->content;
  return error(
      Code::kBusy, Scope::kFile,
      "{}: {} has been writing here since {} (job {}), and whether it is alive is not known after {:g} s "
      "(imd.lock_wait_s): its lease is {:g} s; {}",
      path_, lock.who(), lock.since, lock.job, to_seconds(request_.lease.wait), to_seconds(lock.lease),
      remedy);
}

}  // namespace swale::io
