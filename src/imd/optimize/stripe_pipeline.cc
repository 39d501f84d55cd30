#include "imd/optimize/stripe_pipeline.h"

#include <utility>

#include "base/contain.h"
#include "base/uint128.h"

namespace swale::imd {
namespace {

Hash begin_of(uint64_t stripe, uint64_t stripes, const HashRange& range) {
  const Uint128 hashes = static_cast<Uint128>(range.last - range.first) + 1;
  return range.first + static_cast<Hash>(hashes * stripe / stripes);
}

}  // namespace

Result<std::unique_ptr<StripePipeline>> StripePipeline::start(StripeReader& reader, const Params& params) {
  std::unique_ptr<StripePipeline> pipeline(new StripePipeline(reader, params));
  pipeline->crew_ = Crew::of_this_process();
  for (uint32_t i = 0; i < params.threads; ++i) pipeline->workers_.emplace_back(*pipeline);
  for (Worker& worker : pipeline->workers_)
    SWALE_RETURN_IF_ERROR(pipeline->crew_->join(&worker, params.threads));
  pipeline->wake_workers();
  return pipeline;
}

StripePipeline::~StripePipeline() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  for (Worker& worker : workers_) crew_->leave(&worker);
}

bool StripePipeline::Worker::turn() noexcept {
  bool more = false;
  static_cast<void>(contain([&] { more = owner_.turn(maker_); }));
  return more;
}

bool StripePipeline::turn(SeriesMaker& maker) {
  const MutexLock lock(mutex_);
  if (over_ || !failure_.ok() || !can_read()) return false;
  take_next(maker);
  return failure_.ok();
}

// Allocates nothing besides reading and making: memory may be what has failed.
void StripePipeline::take_next(SeriesMaker& maker) {
  const uint64_t number = read_;
  Slot& slot = this->slot(number);
  reading_ = true;
  Status status;
  {
    const MutexUnlock unlock(mutex_);
    status = contain([&] { return read(number, &slot.stripe); });
  }
  reading_ = false;
  slot.state = State::kMaking;
  ++read_;
  if (status.ok()) {
    const MutexUnlock unlock(mutex_);
    wake_workers();  // one of them reads the next stripe meanwhile
    status = contain([&] { return maker.make(slot.stripe, &slot.batch); });
  }
  slot.state = State::kMade;
  if (failure_.ok()) failure_ = std::move(status);
  made_.notify_all();
}

Status StripePipeline::read(uint64_t number, Stripe* stripe) {
  stripe->first = begin_of(number, params_.stripes, params_.range);
  stripe->last = begin_of(number + 1, params_.stripes, params_.range) - 1;
  return reader_.read(stripe);
}

void StripePipeline::wake_workers() {
  for (Worker& worker : workers_) crew_->wake(&worker);
}

Result<SeriesBatch*> StripePipeline::next() {
  const MutexLock lock(mutex_);
  if (given_ > 0) {
    slot(given_ - 1).state = State::kFree;
    wake_workers();
  }
  if (given_ == params_.stripes) return nullptr;
  made_.wait(lock, [&]() REQUIRES(mutex_) { return !failure_.ok() || slot(given_).state == State::kMade; });
  SWALE_RETURN_IF_ERROR(failure_);
  return &slot(given_++).batch;
}

std::vector<RecordTally> StripePipeline::tallies() const {
  std::vector<RecordTally> all(params_.epochs);
  for (const Worker& worker : workers_) {
    const std::vector<RecordTally> made = worker.tallies();
    for (size_t i = 0; i < all.size(); ++i) all[i].add(made[i]);
  }
  return all;
}

}  // namespace swale::imd
