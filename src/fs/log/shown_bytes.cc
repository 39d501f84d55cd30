// NodeLogs and ServedLog: bytes that are answered from where they stand.
#include <algorithm>

#include "base/contain.h"
#include "base/crc32c_of_memory.h"
#include "fs/log/node_logs.h"

namespace swale::fs {

bool ServedLog::show(const Chunk& chunk, uint64_t place, uint64_t bytes, ShownBytes* shown) const {
  const uint64_t end = place + bytes;
  if (!chunk.in_memory() || end > chunk.seen.used || shown->parts.size() == ShownBytes::kPartsMax)
    return false;
  const Bytes all = payload(chunk);
  for (uint64_t i = place / kBlockBytes; i < chunk.checks.size() && i * kBlockBytes < end; ++i) {
    const Bytes block = all.substr(i * kBlockBytes, kBlockBytes);
    const bool is_edge = i * kBlockBytes < place || i * kBlockBytes + block.size() > end;
    const std::pair<const Chunk*, uint64_t> edge(&chunk, i);
    if (is_edge && std::find(shown->edges.rbegin(), shown->edges.rend(), edge) != shown->edges.rend())
      continue;
    if (crc32c_of_memory(block) != chunk.checks[i]) return false;
    if (is_edge) shown->edges.push_back(edge);
  }
  shown->parts.push_back(all.substr(place, bytes));
  return true;
}

bool NodeLogs::show(const meta::Place& place, uint64_t length, ShownBytes* shown) noexcept {
  bool is_shown = false;
  static_cast<void>(contain([&]() -> Status {
    ServedLog* log = nullptr;
    SWALE_ASSIGN_OR_RETURN(const Chunk* const chunk, chunk_at(place, length, &log));
    is_shown = log->show(*chunk, place.address % log->chunk_bytes(), length, shown);
    return {};
  }));
  return is_shown;
}

}  // namespace swale::fs
