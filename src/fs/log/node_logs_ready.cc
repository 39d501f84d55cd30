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

bool NodeLogs::wants_prepared() const {
  const auto alive = static_cast<uint64_t>(
      std::count_if(logs_.begin(), logs_.end(), [](const auto& log) { return !log.second->ended(); }));
  return alive + prepared_.size() < std::min(logs_most_, kPreparedMax);
}

// The memory of a process that is over goes to the next one as it is: to give it back, and to find and clear
// it again, costs more than the next process's copy. True: the log has been taken.
Result<bool> NodeLogs::keep_ready(std::unique_ptr<ServedLog>& log) {
  const uint64_t slots = options_.memory_bytes / 2 / options_.shape.chunk_bytes;
  const uint64_t share = slots / std::clamp<uint64_t>(logs_most_, 1, kPreparedMax);
  if (share == 0 || log->free_slots() == 0 || !wants_prepared()) return false;
  while (log->free_slots() > share && log->give_back_slot()) {
  }
  prepared_.reserve(prepared_.size() + 1);
  SWALE_ASSIGN_OR_RETURN(const uint32_t id, draw_number());
  SWALE_ASSIGN_OR_RETURN(const bool begun,
                         log->begin_anew(*memory_folder_, path_of(id), id, options_.shape, options_.rules));
  if (begun) prepared_.push_back(std::move(log));
  return begun;
}

// Of a process that is over, without chunks.
void NodeLogs::release(std::unique_ptr<ServedLog>& log) {
  if (const auto kept = keep_ready(log); kept.ok() && *kept) return;
  // Whoever has read there has the file open still.
  while (log->free_slots() > 0 && log->give_back_slot()) {
  }
  static_cast<void>(memory_folder_->remove(log->path()));
}

// The first write to a page costs a process more than the copy: a fault, and a page of zeros.
Result<bool> NodeLogs::prepare() {
  note_use();
  if (memory_bytes() + options_.shape.chunk_bytes > options_.memory_bytes / 2) return false;
  if (wants_prepared()) {
    SWALE_ASSIGN_OR_RETURN(auto log, make_log());
    prepared_.push_back(std::move(log));
    return true;
  }
  const auto fewest = std::min_element(prepared_.begin(), prepared_.end(), [](const auto& a, const auto& b) {
    return a->reserved_slots() < b->reserved_slots();
  });
  if (fewest == prepared_.end() || (*fewest)->reserved_slots() >= slots_most_) return false;
  SWALE_RETURN_IF_ERROR((*fewest)->reserve_slot(large_pages_, ServedLog::Pages::kWritten));
  return true;
}

}  // namespace swale::fs
