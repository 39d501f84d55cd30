// NodeLogs: what it tells processes of this node that read in logs by themselves.
#include "base/contain.h"
#include "fs/log/node_logs.h"

namespace swale::fs {

bool NodeLogs::tell_marks(ToldPlaces* told) const noexcept {
  told->epoch = page_->epoch.load();
  for (const auto& [id, log] : logs_) {
    if (log->ended() || !log->in_memory()) continue;
    if (told->mark_count == kToldMarksMax || !log->mark(&told->marks[told->mark_count])) return false;
    ++told->mark_count;
  }
  return true;
}

bool NodeLogs::tell_place(const meta::Place& place, uint64_t length, uint64_t offset,
                          ToldPlaces* told) noexcept {
  ServedLog* log = nullptr;
  const auto chunk = chunk_at(place, length, &log);
  if (!chunk.ok() || !(*chunk)->in_memory()) return true;
  const auto in_chunk = static_cast<uint32_t>(place.address % log->chunk_bytes());
  return log->tell(**chunk, in_chunk, static_cast<uint32_t>(length), offset, told);
}

Result<PublishedMaps*> NodeLogs::maps() noexcept {
  const Status status = contain([&]() -> Status {
    if (maps_ != nullptr) return {};
    SWALE_ASSIGN_OR_RETURN(maps_, PublishedMaps::open(*memory_folder_, options_.memory_directory));
    return {};
  });
  if (!status.ok()) return status;
  return maps_.get();
}

}  // namespace swale::fs
