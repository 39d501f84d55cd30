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
  for (Worker& worker : pipeline->workers_) pipeline->crew_->wake(&worker);
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

// Reading goes first: only one thread can do it, and all others depend on it.
bool StripePipeline::turn(SeriesMaker& maker) {
  const MutexLock lock(mutex_);
  if (over_ || !failure_.ok()) return false;
  if (can_read()) {
    read_one();
  } else if (can_make()) {
    make_one(maker);
  } else {
    return false;
  }
  return failure_.ok();
}

void StripePipeline::read_one() {
  Slot& slot = this->slot(read_);
  const uint64_t number = read_;
  reading_ = true;
  Status status;
  {
    const MutexUnlock unlock(mutex_);
    status = contain([&] {
      slot.stripe.first = begin_of(number, params_.stripes, params_.range);
      slot.stripe.last = begin_of(number + 1, params_.stripes, params_.range) - 1;
      return reader_.read(&slot.stripe);
    });
  }
  reading_ = false;
  slot.state = State::kRead;
  ++read_;
  settle(std::move(status));
}

void StripePipeline::make_one(SeriesMaker& maker) {
  Slot& slot = this->slot(taken_++);
  slot.state = State::kMaking;
  Status status;
  {
    const MutexUnlock unlock(mutex_);
    status = contain([&] { return maker.make(slot.stripe, &slot.batch); });
  }
  slot.state = State::kMade;
  settle(std::move(status));
}

// Allocates nothing: memory may be what has failed.
void StripePipeline::settle(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  made_.notify_all();
  for (Worker& worker : workers_) crew_->wake(&worker);
}

Result<SeriesBatch*> StripePipeline::next() {
  const MutexLock lock(mutex_);
  if (given_ > 0) {
    slot(given_ - 1).state = State::kFree;
    for (Worker& worker : workers_) crew_->wake(&worker);
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
