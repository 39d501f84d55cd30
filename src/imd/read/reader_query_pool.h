// QueryPool: the Queries of a Reader, each with its memory and its IoQueue: one per running call.
//
// Only a Query whose run ended regularly (Query::reusable) is used again; any other is destroyed with
// everything that its run left.
// Threads: any number of threads may call take and end a Lease. Limits: kIdleMax idle Queries are kept.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "imd/read/reader_query.h"

namespace swale::imd {

class QueryPool {
 public:
  QueryPool() { idle_.reserve(kIdleMax); }

  // A Query for the duration of one call.
  class Lease {
   public:
    Lease(QueryPool& pool, std::unique_ptr<Query> query) : pool_(pool), query_(std::move(query)) {}
    ~Lease() {
      if (query_->reusable()) pool_.put_back(std::move(query_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Query* operator->() const { return query_.get(); }

   private:
    QueryPool& pool_;
    std::unique_ptr<Query> query_;
  };

  template <class Make>
  Lease take(Make&& make) {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Query> query = std::move(idle_.back());
        idle_.pop_back();
        return Lease(*this, std::move(query));
      }
    }
    return Lease(*this, make());
  }

  // Also one that was made in advance. Allocates nothing.
  void put_back(std::unique_ptr<Query> query) noexcept {
    query->trim();
    const MutexLock lock(mutex_);
    if (idle_.size() < kIdleMax) idle_.push_back(std::move(query));
  }

 private:
  static constexpr size_t kIdleMax = 16;

  Mutex mutex_;
  std::vector<std::unique_ptr<Query>> idle_ GUARDED_BY(mutex_);
};

}  // namespace swale::imd
