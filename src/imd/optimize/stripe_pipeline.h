// StripePipeline: makes the series of all stripes of a pass, on several threads, and gives them out in the
// order of hashes: the result does not depend on the number of threads.
//
//   a member of the crew: reads a stripe (one member at a time, in order) ─► makes its series ─► next()
//
// What a member has read is in its core's caches when it makes the series.
//
// A stripe has a slot from its reading until the owner asks for the one after it, so there are never more
// than `slots` in memory: an owner that does not ask makes the readers wait.
//
// Threads: the owner makes all calls; the work is done by the process's crew.
// Errors: the first failure, also of an exception, is what next returns from then on.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/crew.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/status.h"
#include "imd/format/record_tally.h"
#include "imd/optimize/series_maker.h"
#include "imd/optimize/stripe.h"
#include "imd/optimize/stripe_reader.h"
#include "run/ordered_records.h"

namespace swale::imd {

class StripePipeline {
 public:
  struct Params {
    HashRange range = {};  // that is cut into
    uint64_t stripes = 1;
    uint32_t epochs = 0;
    uint32_t threads = 1;
    uint32_t slots = 2;
    SeriesLayout layout = SeriesLayout::kRows;
    SeriesMaker::ResolveFn resolve = {};
  };
  // The reader must outlive the pipeline.
  static Result<std::unique_ptr<StripePipeline>> start(StripeReader& reader, const Params& params);
  ~StripePipeline();
  StripePipeline(const StripePipeline&) = delete;
  StripePipeline& operator=(const StripePipeline&) = delete;

  // The series of the next stripe, valid until the next call; its chunks may be taken. nullptr after the last
  // one.
  Result<SeriesBatch*> next();
  // Call after the last: what all series hold, epoch by epoch.
  std::vector<RecordTally> tallies() const;

 private:
  class Worker final : public Crew::Member {
   public:
    explicit Worker(StripePipeline& owner)
        : owner_(owner),
          maker_(owner.params_.epochs, owner.params_.layout, owner.params_.resolve, owner.pool_) {}
    bool turn() noexcept override;
    std::vector<RecordTally> tallies() const { return maker_.tallies(); }

   private:
    StripePipeline& owner_;
    SeriesMaker maker_;  // of the thread in the turn
  };
  enum class State { kFree, kMaking, kMade };
  struct Slot {
    State state = State::kFree;
    Stripe stripe;
    SeriesBatch batch;
  };

  StripePipeline(StripeReader& reader, const Params& params)
      : reader_(reader), params_(params), slots_(params.slots) {}
  Slot& slot(uint64_t stripe) REQUIRES(mutex_) { return slots_[stripe % slots_.size()]; }
  bool can_read() REQUIRES(mutex_) {
    return !reading_ && read_ < params_.stripes && slot(read_).state == State::kFree;
  }
  bool turn(SeriesMaker& maker);
  void take_next(SeriesMaker& maker) REQUIRES(mutex_);
  Status read(uint64_t number, Stripe* stripe);
  void wake_workers();

  StripeReader& reader_;
  const Params params_;
  const std::shared_ptr<run::ChunkPool> pool_ = run::ChunkPool::create();
  Mutex mutex_;
  CondVar made_;
  std::vector<Slot> slots_ GUARDED_BY(mutex_);  // of a stripe being read or made: its thread's
  uint64_t read_ GUARDED_BY(mutex_) = 0;        // stripes that were read, in order
  uint64_t given_ GUARDED_BY(mutex_) = 0;       // to the owner
  bool reading_ GUARDED_BY(mutex_) = false;
  bool over_ GUARDED_BY(mutex_) = false;  // the owner wants no more
  Status failure_ GUARDED_BY(mutex_);
  std::shared_ptr<Crew> crew_;
  std::deque<Worker> workers_;  // a member does not move
};

}  // namespace swale::imd
