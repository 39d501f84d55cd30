// NodeLogs: memory that is ready for processes to come.
#include <algorithm>

#include "base/contain.h"
#include "fs/log/node_logs.h"

namespace swale::fs {
namespace {

constexpr uint64_t kPreparedMax = 64;  // logs

}  // namespace

// Of processes that write at the same time, with as much memory each.
void NodeLogs::note_use() {
  uint64_t logs = 0;
  for (const auto& [id, log] : logs_) {
    logs += log->ended() ? 0 : 1;
    slots_most_ = std::max(slots_most_, log->reserved_slots());
  }
  logs_most_ = std::max(logs_most_, logs);
}

bool NodeLogs::prepare_next() noexcept {
  bool prepared = false;
  const Status status = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(prepared, prepare());
    return {};
  });
  return prepared && status.ok();
}

// The first write to a page costs a process more than the copy: a fault, and a page of zeros.
Result<bool> NodeLogs::prepare() {
  note_use();
  const auto alive = static_cast<uint64_t>(
      std::count_if(logs_.begin(), logs_.end(), [](const auto& log) { return !log.second->ended(); }));
  if (memory_bytes() + options_.shape.chunk_bytes > options_.memory_bytes / 2) return false;
  if (alive + prepared_.size() < std::min(logs_most_, kPreparedMax)) {
    SWALE_ASSIGN_OR_RETURN(auto log, make_log());
    prepared_.push_back(std::move(log));
    return true;
  }
  const auto fewest = std::min_element(prepared_.begin(), prepared_.end(), [](const auto& a, const auto& b) {
    return a->reserved_slots() < b->reserved_slots();
  });
  if (fewest == prepared_.end() || (*fewest)->reserved_slots() >= slots_most_) return false;
  SWALE_RETURN_IF_ERROR((*fewest)->reserve_slot(ServedLog::Pages::kWritten));
  return true;
}

}  // namespace swale::fs
