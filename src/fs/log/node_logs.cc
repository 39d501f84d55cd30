#include "fs/log/node_logs.h"

#include <time.h>

#include <algorithm>

#include "base/contain.h"
#include "fs/log/futex.h"

namespace swale::fs {
namespace {

// The clock of the writers' stamps.
uint64_t stamp_now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

bool stamped_before(const Found& a, const Found& b) {
  if (a.stamp() != b.stamp()) return a.stamp() < b.stamp();
  if (a.log != b.log) return a.log < b.log;
  if (a.chunk->number != b.chunk->number) return a.chunk->number < b.chunk->number;
  return a.index < b.index;
}

}  // namespace

void NodeLogs::tell(SegmentConsumer& consumer) {
  std::vector<Status> problems;
  problems.swap(problems_);
  for (const Status& problem : problems) consumer.damaged(problem);
}

Status NodeLogs::hand_out(const std::vector<Found>& found, SegmentConsumer& consumer) {
  if (found.empty()) return {};
  std::vector<Segment> segments;
  segments.reserve(found.size());
  for (const Found& each : found) {
    const uint64_t address = each.chunk->number * logs_.at(each.log)->chunk_bytes() + each.entry.place;
    segments.push_back(
        {each.entry.file, each.entry.offset, each.entry.length, meta::Place(each.log, address), each.order});
  }
  return consumer.take(segments);
}

Status NodeLogs::recover(SegmentConsumer& consumer) noexcept {
  return contain([&]() -> Status {
    tell(consumer);
    std::sort(before_.begin(), before_.end(),
              [](const Found& a, const Found& b) { return a.order < b.order; });
    SWALE_RETURN_IF_ERROR(hand_out(before_, consumer));
    before_.clear();
    before_.shrink_to_fit();
    for (auto& [id, log] : logs_) log->settle();
    tell(consumer);
    return {};
  });
}

Status NodeLogs::take(SegmentConsumer& consumer) noexcept {
  return contain([&]() { return take_found(consumer); });
}

// The clock is read before the first log is looked at, and what is stamped later waits for the next round.
// Else a process could write to a log that was looked at, and then another one, which had waited for that,
// to a log that comes next: and the later write would be handed out first.
Status NodeLogs::take_found(SegmentConsumer& consumer) {
  found_.clear();
  const uint64_t limit = stamp_now();
  for (auto& [id, log] : logs_) log->scan(limit, options_.rules, &found_, &problems_);
  tell(consumer);
  std::sort(found_.begin(), found_.end(), stamped_before);
  if (next_order_ + found_.size() > kOrderMax)
    return error(Code::kResourceExhausted, Scope::kNode, "{}: all {} numbers of the node's order are used",
                 options_.memory_directory, kOrderMax);
  uint64_t order = next_order_;
  for (Found& found : found_) found.order = order++;
  SWALE_RETURN_IF_ERROR(hand_out(found_, consumer));
  // Nothing from here on fails before all is marked.
  next_order_ = order;
  for (const Found& found : found_) {
    ServedLog::mark_taken(found, found.order);
    logs_.find(found.log)->second->publish_order(found, found.order);
  }
  return {};
}

Status NodeLogs::settle() noexcept {
  return contain([&]() -> Status {
    while (settle_one()) {
    }
    return {};
  });
}

bool NodeLogs::settle_next() noexcept {
  bool settled = false;
  static_cast<void>(contain([&] { settled = settle_one(); }));  // without memory, another time
  return settled;
}

bool NodeLogs::settle_one() {
  return std::any_of(logs_.begin(), logs_.end(), [](const auto& each) { return each.second->settle_next(); });
}

Status NodeLogs::end_log(uint32_t id, SegmentConsumer& consumer) noexcept {
  return contain([&]() -> Status {
    const auto at = logs_.find(id);
    if (at == logs_.end()) return invalid_argument("log {} is none of this node's", id);
    at->second->end();
    SWALE_RETURN_IF_ERROR(take_found(consumer));
    at->second->abandon_pending();
    free_what_is_over();
    return {};
  });
}

Result<std::shared_ptr<PieceChecks>> NodeLogs::check_as_written(uint32_t log) noexcept {
  std::shared_ptr<PieceChecks> made;
  const Status status = contain([&]() -> Status {
    const auto at = logs_.find(log);
    if (at == logs_.end()) return invalid_argument("log {} is none of this node's", log);
    made = at->second->check_as_written();
    return {};
  });
  if (!status.ok()) return status;
  return made;
}

Result<Chunk*> NodeLogs::chunk_at(const meta::Place& place, uint64_t length, ServedLog** log) {
  const auto at = logs_.find(place.log);
  if (at == logs_.end()) return invalid_argument("log {} is none of this node's", place.log);
  *log = at->second.get();
  Chunk* const chunk = (*log)->find(place.address / (*log)->chunk_bytes());
  if (chunk == nullptr)
    return invalid_argument("{}: address {} of log {} is in no chunk", (*log)->path(), place.address,
                            place.log);
  const uint64_t begin = place.address % (*log)->chunk_bytes();
  if (begin > chunk->seen.used || length > chunk->seen.used - begin)
    return invalid_argument("{}: {} bytes at address {} of log {} are not in a chunk", (*log)->path(), length,
                            place.address, place.log);
  return chunk;
}

Status NodeLogs::read(const meta::Place& place, MutableBytes out) noexcept {
  return contain([&]() -> Status {
    ServedLog* log = nullptr;
    SWALE_ASSIGN_OR_RETURN(Chunk* const chunk, chunk_at(place, out.size(), &log));
    return log->read(*chunk, static_cast<uint32_t>(place.address % log->chunk_bytes()), out);
  });
}

Status NodeLogs::drop(const meta::Place& place, uint64_t length) noexcept {
  return contain([&]() -> Status {
    ServedLog* log = nullptr;
    SWALE_ASSIGN_OR_RETURN(Chunk* const chunk, chunk_at(place, length, &log));
    if (length > chunk->live)
      return error(Code::kInternal, Scope::kOperation, "log {}: {} bytes are dropped at {}, and {} are live",
                   place.log, length, place.address, chunk->live);
    chunk->live -= length;
    return {};
  });
}

bool NodeLogs::has_rung() const { return bell_->rung.load() != rung_seen_; }

bool NodeLogs::wait(Nanos nanos) noexcept {
  bell_->asleep.store(1);
  uint32_t rung = bell_->rung.load();
  if (rung == rung_seen_) {
    futex_wait(&bell_->rung, rung, static_cast<uint64_t>(std::max<Nanos>(nanos, 0)));
    rung = bell_->rung.load();
  }
  bell_->asleep.store(0);
  const bool rang = rung != rung_seen_;
  rung_seen_ = rung;
  return rang;
}

void NodeLogs::set_mapped(uint32_t log, bool mapped) noexcept {
  const auto found = logs_.find(log);
  if (found != logs_.end()) found->second->set_mapped(mapped);
}

void NodeLogs::refuse(int error_number) noexcept {
  for (auto& [id, log] : logs_) log->refuse(error_number);
}

// A writer that has just used up what serve() gave it is served by the next one.
bool NodeLogs::starves() const {
  return had_no_chunk_ &&
         std::any_of(logs_.begin(), logs_.end(), [](const auto& log) { return log.second->needs_chunk(); });
}

uint64_t NodeLogs::oldest_order() const {
  uint64_t oldest = std::min(next_order_, oldest_removed_);
  if (journal_) oldest = std::min(oldest, journal_->oldest_order());
  for (const auto& [id, log] : logs_) {
    for (const auto& [number, chunk] : log->chunks())
      if (chunk.first_order != 0) oldest = std::min(oldest, chunk.first_order);
  }
  return oldest;
}

std::vector<uint32_t> NodeLogs::logs() const {
  std::vector<uint32_t> ids;
  for (const auto& [id, log] : logs_) ids.push_back(id);
  return ids;
}

uint64_t NodeLogs::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, log] : logs_) bytes += uint64_t{log->reserved_slots()} * log->chunk_bytes();
  for (const auto& log : prepared_) bytes += uint64_t{log->reserved_slots()} * log->chunk_bytes();
  return bytes;
}

uint64_t NodeLogs::free_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, log] : logs_) bytes += uint64_t{log->free_slots()} * log->chunk_bytes();
  for (const auto& log : prepared_) bytes += uint64_t{log->free_slots()} * log->chunk_bytes();
  return bytes;
}

uint64_t NodeLogs::spilled_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, log] : logs_) {
    for (const auto& [number, chunk] : log->chunks()) bytes += chunk.spilled != nullptr ? chunk.seen.used : 0;
  }
  return bytes;
}

uint64_t NodeLogs::oldest_in_memory() const {
  uint64_t oldest = next_order_;
  for (const auto& [id, log] : logs_) {
    for (const auto& [number, chunk] : log->chunks())
      if (chunk.only_in_memory() && chunk.needed_from != 0) oldest = std::min(oldest, chunk.needed_from);
  }
  return oldest;
}

size_t NodeLogs::spilled_chunks() const {
  size_t count = 0;
  for (const auto& [id, log] : logs_) {
    for (const auto& [number, chunk] : log->chunks()) count += chunk.spilled != nullptr;
  }
  return count;
}

uint64_t NodeLogs::live_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, log] : logs_) {
    for (const auto& [number, chunk] : log->chunks()) bytes += chunk.live;
  }
  return bytes;
}

}  // namespace swale::fs
