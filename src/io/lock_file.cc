#include "io/lock_file.h"

#include <chrono>
#include <thread>
#include <utility>

#include "io/held_lock.h"
#include "io/lease_keeper.h"
#include "io/lock_taker.h"

namespace swale::io {
namespace {

void wait_for(const LockRequest& request, Nanos nanos) {
  if (request.sleep) return request.sleep(nanos);
  std::this_thread::sleep_for(std::chrono::nanoseconds(nanos));
}

}  // namespace

LockVerdict judge_lock(const FoundLock& found) {
  using Kind = LockVerdict::Kind;
  if (found.content.status().code() == Code::kUnsupported) return {Kind::kAlive, {}};
  if (!found.content.ok()) return {Kind::kDead, found.text()};
  const LockContent& lock = *found.content;
  const auto dead = [&](std::string_view why) -> LockVerdict {
    return {Kind::kDead, fmt::format("{}: {}", found.text(), why)};
  };
  if (is_listed(lock.nonce)) return {Kind::kAlive, "is this process"};
  if (lock.holder == this_process()) return dead("this process has released it");
  const ProcessReport report = look_for(lock.holder);
  if (report.state == ProcessState::kGone) return dead(report.why);
  if (report.state == ProcessState::kRunning) return {Kind::kAlive, "is alive"};
  return {};
}

Result<LockFile> LockFile::acquire(Device& device, const std::string& path, const LockRequest& request) {
  LockTaker taker(device, path, request, request.clock->now());
  for (;;) {
    SWALE_ASSIGN_OR_RETURN(std::optional<LockFile> lock, taker.look(request.clock->now()));
    if (lock && request.renewal == LockRequest::Renewal::kByKeeper) {
      const Nanos first = system_clock().now() + lock->held_->renewal_interval();
      SWALE_RETURN_IF_ERROR(LeaseKeeper::of_this_process().add(lock->held_, first));
    }
    if (lock) return *std::move(lock);
    wait_for(request, taker.step());
  }
}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  if (this != &other) {
    release();
    held_ = std::move(other.held_);
  }
  return *this;
}

Status LockFile::check() { return held_->check(); }
bool LockFile::lost() const { return held_->lost(); }
Nanos LockFile::renew(Nanos now) { return held_->renew(now); }
const LockContent& LockFile::content() const { return held_->content(); }

void LockFile::release() {
  const std::shared_ptr<HeldLock> held = std::move(held_);
  if (!held) return;
  LeaseKeeper::of_this_process().remove(held.get());
  held->release();
}

}  // namespace swale::io
