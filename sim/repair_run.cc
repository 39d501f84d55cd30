#include "sim/repair_run.h"

#include <memory>
#include <utility>

namespace swale::sim {
namespace {

constexpr Nanos kRepairCallNanosMax = 400'000;  // a storage call

}  // namespace

RepairRun::RepairRun(uint64_t seed, io::Device& disk, std::string directory, Nanos lock_wait)
    : seed_(seed),
      directory_(std::move(directory)),
      lock_wait_(lock_wait),
      events_(seed),
      device_(disk),
      fiber_([this](Fiber&) { repair(); }) {
  device_.set_hook([this](const io::Call&) {
    if (alive_) pause(events_.delay(kRepairCallNanosMax));
    return alive_ ? Status() : error(Code::kIoError, Scope::kFile, "the repair is dead");
  });
  events_.after(kRepairCallNanosMax, [this] { fiber_.resume(); });
}

bool RepairRun::run(uint64_t events) {
  for (uint64_t count = 0; count < events; ++count) {
    if (!alive_ || !events_.step()) return false;
  }
  return !events_.empty();
}

void RepairRun::kill() {
  alive_ = false;
  fiber_.cancel();
}

// Called by the body.
void RepairRun::pause(Nanos nanos) {
  const auto woken = std::make_shared<bool>(false);
  events_.at(events_.now() + nanos, [this, woken] {
    *woken = true;
    fiber_.resume();
  });
  while (!*woken && fiber_.wait()) {
  }
}

void RepairRun::repair() {
  imd::RepairOptions options;
  options.environment.entropy = [this] { return events_.rng().next(); };
  io::LockRequest& lock = options.environment.lock;
  lock.self = ProcessIdentity{"sim-repair", "boot", "", 1, fmt::format("{}", seed_)};
  lock.lease.wait = lock_wait_;
  lock.nonce = events_.rng().next();
  lock.clock = &events_.clock();
  lock.sleep = [this](Nanos nanos) { pause(nanos); };
  lock.renewal = io::LockRequest::Renewal::kByCaller;
  Result<imd::RepairReport> report = imd::repair_directory(device_, directory_, options);
  if (alive_) outcome_ = std::move(report);
}

}  // namespace swale::sim
