// ServedLog: how a log begins, is found again and goes to files.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/coding.h"
#include "fs/log/map_log.h"
#include "fs/log/served_log.h"

namespace swale::fs {
namespace {

// The kernel leases a file to whoever alone has it open to be written; a mapping of it is such an open, until
// it goes. Somebody who opens it at this moment is told by a signal, which does nothing.
bool nobody_else_writes(const io::File& file) {
  const int fd = file.descriptor();
  if (::fcntl(fd, F_SETSIG, SIGURG) != 0 || ::fcntl(fd, F_SETLEASE, F_WRLCK) != 0) return false;
  static_cast<void>(::fcntl(fd, F_SETLEASE, F_UNLCK));
  return true;
}

}  // namespace

Status ServedLog::map(io::Device& device, const std::string& path, io::OpenMode mode) {
  path_ = path;
  SWALE_ASSIGN_OR_RETURN(file_, device.open(path, mode));
  if (file_->descriptor() < 0)
    return error(Code::kUnsupported, Scope::kOperation, "{}: a log needs a file of the operating system",
                 path);
  if (mode != io::OpenMode::kCreate) {
    LogHead head;
    SWALE_RETURN_IF_ERROR(io::read_exactly(
        *file_, 0, MutableBytes(reinterpret_cast<char*>(&head), offsetof(LogHead, current))));
    if (head.magic != kLogMagic || head.log != id_ || head.check != check_of(head))
      return corruption("{}: offset 0: the log's head is damaged; its writes cannot be found", path);
    if (head.version != kLogVersion)
      return error(Code::kUnsupported, Scope::kFile, "{}: version {} of a log; this build reads {}", path,
                   head.version, kLogVersion);
    chunk_bytes_ = head.chunk_bytes, slots_ = head.slots;
    if (slots_ < 1 || slots_ > kSlotsMax || chunk_bytes_ < kChunkBytesMin || chunk_bytes_ > kChunkBytesMax ||
        chunk_bytes_ % kPageBytes != 0)
      return corruption("{}: offset 0: {} chunks of {} bytes", path, slots_, chunk_bytes_);
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, file_->size());
    if (size < log_file_bytes(slots_, chunk_bytes_))
      return corruption("{}: {} bytes, expected {}", path, size, log_file_bytes(slots_, chunk_bytes_));
  }
  const uint64_t bytes = log_file_bytes(slots_, chunk_bytes_);
  slot_.assign(slots_, Slot::kUnreserved);
  payload_before_.assign(slots_, 0);
  warm_.assign(slots_, false);
  large_.assign(slots_, false);
  if (mode == io::OpenMode::kCreate) {
    SWALE_RETURN_IF_ERROR(file_->truncate(bytes));
    if (const int failure = ::posix_fallocate(file_->descriptor(), 0, kPageBytes); failure != 0)
      return errno_status(failure, fmt::format("{}: fallocate of a page in the node's memory file system; "
                                               "enlarge it (mount -o remount,size=...)",
                                               path));
  }
  void* const memory = map_log(file_->descriptor(), bytes, PROT_READ | PROT_WRITE);
  if (memory == nullptr) return errno_status(errno, fmt::format("{}: mmap of {} bytes", path, bytes));
  head_ = static_cast<LogHead*>(memory);
  return {};
}

Result<std::unique_ptr<ServedLog>> ServedLog::create(io::Device& device, const std::string& path, uint32_t id,
                                                     const LogShape& shape) {
  std::unique_ptr<ServedLog> log(new ServedLog(id));
  log->chunk_bytes_ = shape.chunk_bytes;
  log->slots_ = shape.slots;
  SWALE_RETURN_IF_ERROR(log->map(device, path, io::OpenMode::kCreate));
  log->begin_head(shape);
  return log;
}

void ServedLog::begin_head(const LogShape& shape) noexcept {
  LogHead& head = *head_;
  head.version = kLogVersion;
  head.log = id_;
  head.chunk_bytes = shape.chunk_bytes;
  head.slots = shape.slots;
  head.wait_ns = shape.wait_ns;
  std::memcpy(head.node, shape.node.data(), std::min(shape.node.size(), sizeof(head.node) - 1));
  head.check = check_of(head);
  std::atomic_thread_fence(std::memory_order_release);
  head.magic = kLogMagic;  // from now on it is a log
}

Result<bool> ServedLog::begin_anew(io::Device& device, const std::string& path, uint32_t id,
                                   const LogShape& shape, const LogRules& rules) {
  const bool unusable = std::count(slot_.begin(), slot_.end(), Slot::kUnusable) > 0;
  if (unusable || chunk_bytes_ != shape.chunk_bytes || slots_ != shape.slots) return false;
  std::string renamed = path;
  announce_change();
  head_->magic = 0;  // from now on it is none
  std::atomic_thread_fence(std::memory_order_release);
  SWALE_RETURN_IF_ERROR(device.rename(path_, path));
  path_.swap(renamed);
  if (rules.proves_alone && !nobody_else_writes(*file_)) return false;
  std::memset(static_cast<void*>(head_), 0, sizeof(LogHead));
  // The process may have left anything where heads and entries go.
  payload_before_.assign(slots_, entries_place(0));
  for (uint32_t slot = 0; slot < slots_; ++slot)
    if (slot_[slot] == Slot::kFree)
      std::memset(slot_of(head_, slot, chunk_bytes_) + entries_place(0), 0, sizeof(ChunkHead));
  id_ = id;
  next_number_ = 0;
  problems_told_ = 0;
  ended_ = false;
  checked_index_ = kNoBlock;
  begin_head(shape);
  return true;
}

Result<std::unique_ptr<ServedLog>> ServedLog::adopt(io::Device& device, const std::string& path, uint32_t id,
                                                    const std::set<uint64_t>& spilled,
                                                    std::vector<Found>* before,
                                                    std::vector<Status>* problems) {
  std::unique_ptr<ServedLog> log(new ServedLog(id));
  {
    SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
    char magic[sizeof(LogHead::magic)] = {};
    SWALE_ASSIGN_OR_RETURN(const size_t got, file->pread(0, magic));
    if (got < sizeof(magic) || get_u64(magic) == 0) return std::unique_ptr<ServedLog>();
  }
  SWALE_RETURN_IF_ERROR(log->map(device, path, io::OpenMode::kReadWrite));
  log->ended_ = log->head_->ended.load(std::memory_order_acquire) != 0;
  // Writers wait for the number after the last grant, whatever became of that chunk.
  for (uint64_t i = 0; i < kSlotsMax; ++i) {
    const uint64_t word = log->head_->grant[i].load(std::memory_order_acquire);
    if (word != 0 && (word >> 16) % kSlotsMax == i)
      log->next_number_ = std::max(log->next_number_, (word >> 16) + 1);
  }
  for (uint32_t slot = 0; slot < log->slots_; ++slot)
    SWALE_RETURN_IF_ERROR(log->adopt_slot(slot, spilled, before, problems));
  for (auto& [number, chunk] : log->chunks_) log->open_.push_back(&chunk);
  return log;
}

// The server before this one may have ended while it freed the slot. Its last page stays: see give_back_slot.
Status ServedLog::empty_slot(uint32_t slot) {
  const uint64_t begin = slot_begin(slot, chunk_bytes_), last_page = begin + chunk_bytes_ - kPageBytes;
  ChunkHead& head = *head_of(slot_of(head_, slot, chunk_bytes_), chunk_bytes_);
  head.reserve.fetch_or(kClosed);
  head.magic = 0;
  if (::fallocate(file_->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                  chunk_bytes_ - kPageBytes) != 0)
    return errno_status(errno, fmt::format("{}: punching {} bytes at {}", path_, chunk_bytes_, begin));
  return file_->pwrite(last_page, std::string(kPageBytes - sizeof(ChunkHead), '\0'));
}

Status ServedLog::adopt_slot(uint32_t slot, const std::set<uint64_t>& spilled, std::vector<Found>* before,
                             std::vector<Status>* problems) {
  Chunk chunk;
  chunk.slot = slot;
  const uint64_t at = file_offset(chunk, chunk_bytes_ - sizeof(ChunkHead));
  uint64_t words[5];  // read, not loaded: a slot may have no memory
  SWALE_RETURN_IF_ERROR(
      io::read_exactly(*file_, at, MutableBytes(reinterpret_cast<char*>(words), sizeof(words))));
  const auto [reserve, magic, number, check, entries] = words;
  const auto entries_max = static_cast<uint32_t>(entries);
  if (magic == 0) return reserve == 0 ? Status() : empty_slot(slot);
  const bool never_granted = number >= next_number_;
  if (magic == kChunkMagic && check == check_of_chunk(number, id_) &&
      (never_granted || spilled.contains(number)))
    return empty_slot(slot);
  if (magic != kChunkMagic || check != check_of_chunk(number, id_) || chunks_.contains(number) ||
      entries_max == 0 || entries_max > entries_that_fit(chunk_bytes_)) {
    tell(problems, corruption("{}: chunk head at {} is damaged; what this chunk had is lost", path_, at));
    slot_[slot] = Slot::kUnusable;
    return {};
  }
  chunk.number = number;
  chunk.seen.number = Reservation::number_bits(number);
  chunk.entries_max = entries_max;
  payload_before_[slot] = entries_place(entries_max);
  Chunk& added = chunks_.emplace(number, std::move(chunk)).first->second;
  slot_[slot] = Slot::kUsed;
  ++reserved_slots_;
  if (believe_reservation(added, problems)) adopt_entries(added, before, problems);
  return {};
}

void ServedLog::adopt_entries(Chunk& chunk, std::vector<Found>* before, std::vector<Status>* problems) {
  const KnownChunk known{id_, chunk.number, chunk_bytes_, chunk.seen.used};
  for (uint32_t i = 0; i < chunk.entries.size(); ++i) {
    const LogEntry& entry = *entry_of(memory_of(chunk), chunk_bytes_, i);
    const uint64_t published = entry.published.load(std::memory_order_acquire);
    const uint64_t order = entry.order.load(std::memory_order_acquire);
    // take() finds it, or it is not there. Its stamp says as well when it was; and no process may use up the
    // node's numbers.
    if (published == 0 || !order_is_whole(order, entry.check) || order == 0 || order >> 16 > kOrderMax / 2)
      continue;
    const EntryCopy copy = copy_of(entry, published);
    if (const char* wrong = check_entry(copy, known, published & ~kPublished)) {
      tell(problems, problem_at(chunk, i, wrong));
      chunk.entries[i] = EntryState::kRefused;
      continue;
    }
    before->push_back({copy, order >> 16, id_, i, &chunk});
    mark_taken(before->back(), order >> 16);
  }
  advance(chunk);
}

std::unique_ptr<ServedLog> ServedLog::of_spilled(uint32_t id, uint32_t chunk_bytes) {
  std::unique_ptr<ServedLog> log(new ServedLog(id));
  log->path_ = fmt::format("log {} (in files only)", id);
  log->chunk_bytes_ = chunk_bytes;
  log->ended_ = true;
  return log;
}

void ServedLog::add_spilled(SpillIndex index, std::unique_ptr<io::File> file, std::vector<Found>* before) {
  Chunk& chunk = chunks_[index.number];
  chunk.number = index.number;
  chunk.spilled = std::move(file);
  chunk.seen = {index.used, static_cast<uint32_t>(index.entries.size()),
                Reservation::number_bits(index.number), true};
  chunk.entries.assign(index.entries.size(), EntryState::kTaken);
  chunk.known = chunk.seen.entries;
  chunk.settled = index.used;
  chunk.checks = std::move(index.checks);
  chunk.live = 0;
  for (uint32_t i = 0; i < index.entries.size(); ++i) {
    before->push_back({index.entries[i].entry, index.entries[i].order, id_, i, &chunk});
    mark_taken(before->back(), index.entries[i].order);
  }
  next_number_ = std::max(next_number_, chunk.number + 1);
}

JournalRecord ServedLog::unkept(const Chunk& chunk, std::vector<Status>* problems) {
  JournalRecord record;
  record.log = id_, record.chunk_bytes = chunk_bytes_, record.number = chunk.number;
  record.from = chunk.kept_bytes, record.end = std::max(chunk.kept_bytes, end_at_rest(chunk));
  record.entries_end = chunk.known;
  record.entries = entries_of(chunk, chunk.kept_entries, chunk.known, problems);
  record.payload = payload(chunk).substr(record.from, record.end - record.from);
  return record;
}

SpillIndex ServedLog::index_of(const Chunk& chunk, std::vector<Status>* problems) {
  const auto count = static_cast<uint32_t>(chunk.entries.size());
  return {id_,         chunk.number, chunk_bytes_, chunk.seen.used, entries_of(chunk, 0, count, problems),
          chunk.checks};
}

std::vector<SpilledEntry> ServedLog::entries_of(const Chunk& chunk, uint32_t first, uint32_t end,
                                                std::vector<Status>* problems) {
  std::vector<SpilledEntry> entries;
  const KnownChunk known{id_, chunk.number, chunk_bytes_, chunk.seen.used};
  for (uint32_t i = first; i < end; ++i) {
    if (chunk.entries[i] != EntryState::kTaken) continue;
    const LogEntry& entry = *entry_of(memory_of(chunk), chunk_bytes_, i);
    const uint64_t published = entry.published.load(std::memory_order_acquire);
    const EntryCopy copy = copy_of(entry, published);
    const uint64_t order = entry.order.load(std::memory_order_acquire);
    const char* wrong = check_entry(copy, known, published & ~kPublished);
    if (wrong == nullptr && !order_is_whole(order, copy.check)) wrong = "its order is damaged";
    if (wrong != nullptr) {
      tell(problems, problem_at(chunk, i, wrong));
      continue;
    }
    entries.push_back({copy, order >> 16});
  }
  return entries;
}

}  // namespace swale::fs
