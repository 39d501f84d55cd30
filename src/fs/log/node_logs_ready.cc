// NodeLogs: what it does when nobody writes: memory that is ready for processes to come.
#include <algorithm>

#include "base/contain.h"
#include "base/log.h"
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

// Else the last few spills stay without their names until the next burst, which waits for them and for all
// that has to stay as long as they do.
bool NodeLogs::arrive_next() noexcept {
  bool moved = false;
  static_cast<void>(contain([&]() -> Status {
    const size_t kept = over_and_kept_;
    const bool was_busy = spills_ && spills_->is_busy();
    if (was_busy) {
      const Status arrived = note_names(spills_->has_under_way() ? spills_->advance(1) : spills_->finish());
      if (!arrived.ok()) log_warn("{}", arrived.message());
    }
    if (!spills_ || !spills_->is_busy()) free_what_is_over();
    moved = was_busy || over_and_kept_ != kept;
    return {};
  }));
  return moved;
}

std::unique_ptr<io::File> NodeLogs::take_nameless() noexcept {
  if (nameless_.empty()) return nullptr;
  std::unique_ptr<io::File> taken = std::move(nameless_.back());
  nameless_.pop_back();
  return taken;
}

bool NodeLogs::wants_prepared() const {
  const auto alive = static_cast<uint64_t>(
      std::count_if(logs_.begin(), logs_.end(), [](const auto& log) { return !log.second->ended(); }));
  return alive + prepared_.size() < std::min(logs_most_, kPreparedMax);
}

// The memory of a process that is over goes to the next one as it is: to give it back, and to find and clear
// it again, costs more than the next process's copy. A log that was made meanwhile, with less memory, goes in
// its place. True: the log has been taken.
Result<bool> NodeLogs::keep_ready(std::unique_ptr<ServedLog>& log) {
  const uint64_t slots = options_.memory_bytes / 2 / options_.shape.chunk_bytes;
  const uint64_t share = slots / std::clamp<uint64_t>(logs_most_, 1, kPreparedMax);
  prepared_.reserve(prepared_.size() + 1);
  const auto poorest = poorest_prepared();
  const bool wants = wants_prepared();
  if (share == 0 || log->free_slots() == 0) return false;
  if (!wants && (poorest == prepared_.end() || (*poorest)->reserved_slots() >= log->free_slots()))
    return false;
  while (log->free_slots() > share && log->give_back_slot()) {
  }
  SWALE_ASSIGN_OR_RETURN(const uint32_t id, draw_number());
  SWALE_ASSIGN_OR_RETURN(const bool begun,
                         log->begin_anew(*memory_folder_, path_of(id), id, options_.shape, options_.rules));
  if (!begun) return false;
  if (wants) {
    prepared_.push_back(std::move(log));
  } else {
    std::swap(*poorest, log);
    discard(*log);
  }
  return true;
}

// Whoever has read there has the file open still.
void NodeLogs::discard(ServedLog& log) {
  while (log.free_slots() > 0 && log.give_back_slot()) {
  }
  static_cast<void>(memory_folder_->remove(log.path()));
}

// Of a process that is over, without chunks.
void NodeLogs::release(std::unique_ptr<ServedLog>& log) {
  if (const auto kept = keep_ready(log); !kept.ok() || !*kept) discard(*log);
}

std::vector<std::unique_ptr<ServedLog>>::iterator NodeLogs::poorest_prepared() {
  return std::min_element(prepared_.begin(), prepared_.end(), [](const auto& a, const auto& b) {
    return a->reserved_slots() < b->reserved_slots();
  });
}

// The first write to a page costs a process more than the copy: a fault, and a page of zeros.
Result<bool> NodeLogs::prepare() {
  note_use();
  SWALE_ASSIGN_OR_RETURN(bool prepared, prepare_logs());
  if (!prepared) prepared = warm_up();
  if (!prepared) return make_large();
  return true;
}

Result<bool> NodeLogs::prepare_logs() {
  if (memory_bytes() + options_.shape.chunk_bytes > options_.memory_bytes / 2) return false;
  if (wants_prepared()) {
    SWALE_ASSIGN_OR_RETURN(auto log, make_log());
    prepared_.push_back(std::move(log));
    return true;
  }
  const auto fewest = poorest_prepared();
  if (fewest == prepared_.end() || (*fewest)->reserved_slots() >= slots_most_) return false;
  // Nobody waits: a step for each page.
  const uint64_t large = large_pages_of(options_.shape.chunk_bytes);
  if (warm_ && warm_->count() < large && has_memory() && warm_->add()) return true;
  SWALE_RETURN_IF_ERROR(reserve_slot(**fewest, ServedLog::Pages::kWritten));
  return true;
}

// For as much as processes had at once, and no more than a part of the memory.
bool NodeLogs::warm_up() {
  if (!warm_) return false;
  const uint64_t had = logs_most_ * slots_most_ * options_.shape.chunk_bytes;
  const uint64_t bytes = warm_->bytes() + kLargePageBytes;
  const bool is_room = memory_bytes() + bytes <= options_.memory_bytes - options_.memory_bytes / kWarmPart;
  return is_room && bytes <= had && warm_->add();
}

// What is left of processes that had small pages.
Result<bool> NodeLogs::make_large() {
  if (!warm_ || !makes_large_ || warm_->count() < large_pages_of(options_.shape.chunk_bytes)) return false;
  for (const auto& log : prepared_) {
    const uint32_t before = log->small_free_slots();
    if (before == 0 || !log->give_back_slot(ServedLog::Which::kOfSmallPages)) continue;
    SWALE_RETURN_IF_ERROR(reserve_slot(*log, ServedLog::Pages::kWritten));
    makes_large_ = log->small_free_slots() < before;
    return true;
  }
  return false;
}

// Pages that are ready go to the log, by the kernel; with them there is never more than the memory for logs.
Status NodeLogs::reserve_slot(ServedLog& log, ServedLog::Pages pages) {
  const uint64_t large = large_pages_of(options_.shape.chunk_bytes), chunk = log.chunk_bytes();
  if (warm_ && warm_->count() >= large && chunk == options_.shape.chunk_bytes) {
    for (uint64_t i = 0; i < large; ++i) warm_->give_back();
    large_pages_.are_there();
  }
  while (warm_bytes() > 0 && memory_bytes() + chunk + warm_bytes() > options_.memory_bytes)
    if (!warm_->give_back()) break;
  Status reserved = log.reserve_slot(large_pages_, pages);
  if (reserved.code() != Code::kNoSpace || warm_bytes() == 0) return reserved;
  while (warm_->give_back()) {
  }
  return log.reserve_slot(large_pages_, pages);
}

}  // namespace swale::fs
