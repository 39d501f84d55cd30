#include "base/memory_budget.h"

#include <cassert>
#include <iterator>

#include <algorithm>

#include "base/mutex.h"

namespace swale {

struct MemoryBudget::State {
  explicit State(uint64_t limit_bytes) : limit(limit_bytes) {}

  const uint64_t limit;
  Mutex mutex;
  uint64_t used GUARDED_BY(mutex) = 0;
  std::list<Row> rows GUARDED_BY(mutex);

  Status expect_free(std::string_view name, uint64_t bytes) const REQUIRES(mutex) {
    const uint64_t free_bytes = limit - used;
    if (bytes <= free_bytes) return {};
    std::string holders;
    for (const Row& row : rows)
      fmt::format_to(std::back_inserter(holders), "{}{} {}", holders.empty() ? "" : ", ", row.name,
                     row.bytes);
    return error(
        Code::kResourceExhausted, Scope::kOperation,
        "memory budget: {} wants {} bytes, {} of {} are free (held: {}); raise the memory option or reduce "
        "what the holders are configured to take",
        name, bytes, free_bytes, limit, holders.empty() ? "nothing" : holders);
  }
};

MemoryBudget::MemoryBudget(uint64_t limit_bytes) : state_(std::make_shared<State>(limit_bytes)) {}

Result<MemoryBudget::Reservation> MemoryBudget::reserve(std::string_view name, uint64_t bytes) {
  const MutexLock lock(state_->mutex);
  SWALE_RETURN_IF_ERROR(state_->expect_free(name, bytes));
  Reservation reservation;
  reservation.row_ = state_->rows.insert(state_->rows.end(), Row{std::string(name), bytes});
  state_->used += bytes;
  reservation.state_ = state_;
  return reservation;
}

Status MemoryBudget::Reservation::resize(uint64_t bytes) {
  assert(state_ != nullptr);
  const MutexLock lock(state_->mutex);
  if (bytes > row_->bytes) SWALE_RETURN_IF_ERROR(state_->expect_free(row_->name, bytes - row_->bytes));
  state_->used += bytes - row_->bytes;
  row_->bytes = bytes;
  return {};
}

uint64_t MemoryBudget::limit() const { return state_->limit; }

uint64_t MemoryBudget::used() const {
  const MutexLock lock(state_->mutex);
  return state_->used;
}

std::vector<MemoryBudget::Row> MemoryBudget::report() const {
  const MutexLock lock(state_->mutex);
  return {state_->rows.begin(), state_->rows.end()};
}

MemoryBudget::Reservation::Reservation(Reservation&& other) noexcept
    : state_(std::move(other.state_)), row_(other.row_) {}

MemoryBudget::Reservation& MemoryBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    state_ = std::move(other.state_);
    row_ = other.row_;
  }
  return *this;
}

uint64_t MemoryBudget::Reservation::bytes() const { return state_ ? row_->bytes : 0; }

void MemoryBudget::Reservation::release() {
  if (!state_) return;
  {
    const MutexLock lock(state_->mutex);
    state_->used -= row_->bytes;
    state_->rows.erase(row_);
  }
  state_.reset();
}

}  // namespace swale
