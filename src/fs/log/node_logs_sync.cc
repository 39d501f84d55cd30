// NodeLogs: what an fsync makes durable, and the journal that has it until its chunk is complete.
//
// The journal keeps what it has until it is full. A chunk of which it has a part may be spilled, or be over,
// at any time: what the part says is then superfluous. It begins anew when memory alone has nothing: all that
// has overwritten its bytes is durable, too, and a loss of power leaves the old bytes or the new ones.
#include <algorithm>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "fs/log/node_logs.h"

namespace swale::fs {

// A part of a chunk that memory has is durable there still; one that nobody has becomes a spilled chunk.
Status NodeLogs::find_journal(std::map<uint32_t, std::map<uint64_t, SpillIndex>>* spilled) {
  struct Part {
    SpillIndex index;
    std::map<uint32_t, SpilledEntry> entries;  // by place: a later server may have written them again
    std::string payload;
  };
  std::map<std::pair<uint32_t, uint64_t>, Part> lost;
  const auto visit = [&](const JournalRecord& record) -> Status {
    if (int64_t& time = found_times_[record.time.file]; record.time.modified_ns > time)
      time = record.time.modified_ns;
    if (record.chunk_bytes == 0) return {};
    next_log_ = std::max(next_log_, record.log + 1);
    const auto in_files = spilled->find(record.log);
    if (in_files != spilled->end() && in_files->second.contains(record.number)) return {};
    const auto log = logs_.find(record.log);
    Chunk* const chunk = log == logs_.end() ? nullptr : log->second->find(record.number);
    if (chunk != nullptr) {
      if (record.from != chunk->kept_bytes) return {};
      chunk->kept_bytes = std::min(record.end, chunk->seen.used);
      chunk->kept_entries = std::min(record.entries_end, chunk->seen.entries);
      return {};
    }
    Part& part = lost[{record.log, record.number}];
    part.index.log = record.log, part.index.number = record.number;
    part.index.chunk_bytes = record.chunk_bytes;
    for (const SpilledEntry& each : record.entries) part.entries.insert_or_assign(each.entry.place, each);
    part.payload.resize(std::max<size_t>(part.payload.size(), record.end), '\0');
    std::copy(record.payload.begin(), record.payload.end(), part.payload.begin() + record.from);
    return {};
  };
  SWALE_RETURN_IF_ERROR(journal_->find(visit, &problems_));
  found_times_.erase(meta::FileId());
  for (auto& [name, part] : lost) {
    for (const auto& [place, entry] : part.entries) part.index.entries.push_back(entry);
    SWALE_ASSIGN_OR_RETURN(SpillIndex index, spill_found(part.index, part.payload));
    (*spilled)[name.first].emplace(name.second, std::move(index));
  }
  return lost.empty() ? Status() : spill_folder_->sync_directory(options_.spill_directory);
}

// A file of it that was never finished is in the way.
Result<SpillIndex> NodeLogs::spill_found(const SpillIndex& chunk, Bytes payload) {
  SpillIndex index = chunk;
  index.used = static_cast<uint32_t>(payload.size());
  for (uint64_t at = 0; at < payload.size(); at += kBlockBytes)
    index.checks.push_back(crc32c(payload.substr(at, kBlockBytes)));
  SWALE_ASSIGN_OR_RETURN(const auto file, spill_folder_->open(spills_->path_of(index.log, index.number),
                                                              io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(file->truncate(0));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, std::string(payload) + encode_spill_index(index)));
  SWALE_RETURN_IF_ERROR(file->sync());
  return index;
}

std::optional<NodeLogs::ChunkPart> NodeLogs::in_memory(const meta::Place& place, uint64_t length) const {
  const auto log = logs_.find(place.log);
  if (log == logs_.end()) return {};
  const uint64_t number = place.address / log->second->chunk_bytes();
  const auto begin = static_cast<uint32_t>(place.address % log->second->chunk_bytes());
  const Chunk* const chunk = log->second->find(number);
  if (chunk == nullptr || !chunk->only_in_memory() || begin < chunk->kept_bytes) return {};
  return ChunkPart{place.log, number, begin + static_cast<uint32_t>(length)};
}

Result<NodeLogs::Kept> NodeLogs::keep(std::span<const ChunkPart> parts, const FileTime& time) noexcept {
  Kept kept = Kept::kNotYet;
  const Status status = contain([&]() -> Status {
    if (!spills_) return invalid_argument("{}: no folder to spill to", options_.memory_directory);
    SWALE_ASSIGN_OR_RETURN(const auto in_journal, keep_in_journal(parts, time));
    if (in_journal) {
      kept = *in_journal;
      return {};
    }
    SWALE_ASSIGN_OR_RETURN(kept, keep_in_files(parts));
    return {};
  });
  if (!status.ok()) {
    static_cast<void>(rest());
    return status;
  }
  return kept;
}

// Nothing: it takes files of their own.
Result<std::optional<NodeLogs::Kept>> NodeLogs::keep_in_journal(std::span<const ChunkPart> parts,
                                                                const FileTime& time) {
  const std::optional<Kept> not_here;
  const uint64_t most = std::min(options_.rules.journal_bytes_max, kJournalRecordsMax);
  if (most == 0 || !options_.outlives_power || !journal_->usable()) return not_here;
  std::vector<JournalRecord> records;
  std::vector<Chunk*> chunks;
  uint64_t bytes = 0;
  for (const ChunkPart& part : parts) {
    const auto log = logs_.find(part.log);
    Chunk* const chunk = log == logs_.end() ? nullptr : log->second->find(part.number);
    if (chunk == nullptr || !chunk->only_in_memory() || chunk->live == 0) continue;
    if (part.end <= chunk->kept_bytes) continue;
    if (chunk->broken) return not_here;
    const uint32_t end = log->second->end_at_rest(*chunk);
    if (end < part.end) return std::optional(Kept::kNotYet);
    if (bytes + (end - chunk->kept_bytes) > most) return not_here;
    records.push_back(log->second->unkept(*chunk, &problems_));
    records.back().time = time;
    chunks.push_back(chunk);
    bytes += records.back().bytes();
    if (bytes > kJournalRecordsMax) return not_here;
  }
  if (records.empty() && time.modified_ns != 0) {
    records.emplace_back().time = time;
    bytes += records.back().bytes();
  }
  if (records.empty()) return std::optional(Kept::kJournal);
  if (!journal_->has_space(bytes)) {
    SWALE_ASSIGN_OR_RETURN(const bool renewed, renew_journal());
    if (renewed && !chunks.empty()) return std::optional(Kept::kFiles);  // with all others
    if (!renewed || !journal_->usable()) return not_here;
  }
  if (const Status kept = journal_->append(records); !kept.ok()) {
    log_warn("{}; fsyncs go to files of their own from now on", kept.message());
    return not_here;
  }
  for (size_t i = 0; i < chunks.size(); ++i)
    chunks[i]->kept_bytes = records[i].end, chunks[i]->kept_entries = records[i].entries_end;
  return std::optional(Kept::kJournal);
}

// False: a process is in the middle of a write.
Result<bool> NodeLogs::renew_journal() {
  std::vector<ChunkPart> all;
  for (const auto& [id, log] : logs_)
    for (const auto& [number, chunk] : log->chunks())
      if (chunk.only_in_memory() && chunk.live > 0) all.push_back({id, number, chunk.seen.used});
  SWALE_ASSIGN_OR_RETURN(const Kept kept, keep_in_files(all));
  if (kept == Kept::kNotYet) return false;
  if (const Status begun = journal_->begin_anew(); !begun.ok())
    log_warn("{}; fsyncs go to files of their own from now on", begun.message());
  return true;
}

Result<NodeLogs::Kept> NodeLogs::keep_in_files(std::span<const ChunkPart> parts) {
  bool all = true;
  std::vector<std::pair<ServedLog*, Chunk*>> chunks;
  for (const ChunkPart& part : parts) {
    const auto log = logs_.find(part.log);
    Chunk* const chunk = log == logs_.end() ? nullptr : log->second->find(part.number);
    if (chunk == nullptr || !chunk->only_in_memory() || chunk->live == 0) continue;
    if (!close(*log->second, *chunk)) {
      all = false;
      continue;
    }
    chunks.emplace_back(log->second.get(), chunk);
    if (!chunk->is_on_its_way) SWALE_RETURN_IF_ERROR(start_spill(*log->second, *chunk));
  }
  if (!chunks.empty()) {
    SWALE_RETURN_IF_ERROR(rest());
    fails_ahead_ = false;
    for (const auto& [log, chunk] : chunks) grant_next(*log, *chunk);
  }
  return all ? Kept::kFiles : Kept::kNotYet;
}

}  // namespace swale::fs
