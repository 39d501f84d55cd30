#include "fs/log/served_log.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/crc32c_of_memory.h"
#include "fs/log/futex.h"
#include "io/descriptor.h"

namespace swale::fs {
namespace {

constexpr uint32_t kEntriesMin = 1024;  // of a chunk: 64 KiB of zeros, writes of 4 KiB

}  // namespace

Chunk* ServedLog::find(uint64_t number) {
  const auto found = chunks_.find(number);
  return found == chunks_.end() ? nullptr : &found->second;
}

ServedLog::~ServedLog() {
  if (head_ != nullptr) ::munmap(head_, log_file_bytes(slots_, chunk_bytes_));
}

Status ServedLog::problem_at(const Chunk& chunk, uint32_t index, const char* what) const {
  const uint64_t place = chunk_bytes_ - sizeof(ChunkHead) - sizeof(LogEntry) * (uint64_t{index} + 1);
  return corruption("{}: entry {} of chunk {}, at {}: {}; this write of the process is lost", path_, index,
                    chunk.number, file_offset(chunk, place), what);
}

// A process that writes garbage for ever must not fill anybody's log.
void ServedLog::tell(std::vector<Status>* problems, Status problem) {
  if (problems_told_ >= kProblemsMax) return;
  const bool last = problems_told_ + 1 == kProblemsMax;
  problems->push_back(last ? problem.with_context("the last message of damage in this log")
                           : std::move(problem));
  ++problems_told_;
}

bool ServedLog::believe_reservation(Chunk& chunk, std::vector<Status>* problems) {
  if (chunk.broken) return false;
  const auto now =
      Reservation::of(head_of(memory_of(chunk), chunk_bytes_)->reserve.load(std::memory_order_acquire));
  if (const char* wrong = check_reservation(now, chunk.seen, chunk.number, chunk_bytes_, chunk.entries_max)) {
    tell(problems,
         corruption("{}: reservation of chunk {}, at {}: {}; what the process writes there "
                    "from now on is lost",
                    path_, chunk.number, file_offset(chunk, chunk_bytes_ - sizeof(ChunkHead)), wrong));
    chunk.broken = true;
    return false;
  }
  chunk.entries.resize(now.entries, EntryState::kPending);
  chunk.seen = now;
  return true;
}

void ServedLog::scan(uint64_t limit_ns, const LogRules& rules, std::vector<Found>* found,
                     std::vector<Status>* problems) {
  if (rules.before_log != nullptr) rules.before_log(id_);
  for (Chunk* const chunk : open_) {
    if (!chunk->in_memory() || chunk->complete() || !believe_reservation(*chunk, problems)) continue;
    const KnownChunk known{id_, chunk->number, chunk_bytes_, chunk->seen.used};
    for (uint32_t i = chunk->known; i < chunk->entries.size(); ++i) {
      if (chunk->entries[i] != EntryState::kPending) continue;
      const LogEntry& entry = *entry_of(memory_of(*chunk), chunk_bytes_, i);
      const uint64_t published = entry.published.load(std::memory_order_acquire);
      if (published == 0) continue;
      const EntryCopy copy = copy_of(entry, published);
      if (const char* wrong = rules.wrong_with(copy, known, limit_ns)) {
        tell(problems, problem_at(*chunk, i, wrong));
        chunk->entries[i] = EntryState::kRefused;
        continue;
      }
      if (rules.limit_stamps && (published & ~kPublished) >= limit_ns) continue;  // of the next round
      found->push_back({copy, 0, id_, i, chunk});
    }
    advance(*chunk);
  }
}

void ServedLog::advance(Chunk& chunk) noexcept {
  while (chunk.known < chunk.entries.size() && chunk.entries[chunk.known] != EntryState::kPending)
    ++chunk.known;
}

void ServedLog::mark_taken(const Found& found, uint64_t order) noexcept {
  Chunk& chunk = *found.chunk;
  chunk.entries[found.index] = EntryState::kTaken;
  chunk.live += found.entry.length;
  if (chunk.first_order == 0 || order < chunk.first_order) chunk.first_order = order;
  if (chunk.needed_from == 0 || order < chunk.needed_from) chunk.needed_from = order;
}

void ServedLog::publish_order(const Found& found, uint64_t order) noexcept {
  entry_of(memory_of(*found.chunk), chunk_bytes_, found.index)
      ->order.store(packed_order(order, found.entry.check), std::memory_order_release);
  advance(*found.chunk);
}

std::shared_ptr<PieceChecks> ServedLog::check_as_written() {
  if (!piece_checks_) piece_checks_ = std::make_shared<PieceChecks>(slots_, chunk_bytes_);
  return piece_checks_;
}

void ServedLog::settle() {
  for (size_t i = open_.size(); i-- > 0;) settle(*open_[i]);
}

bool ServedLog::settle_next() {
  const auto waits = [this](const Chunk* chunk) {
    return chunk->in_memory() &&
           (chunk->complete() || end_at_rest(*chunk) / kBlockBytes > chunk->checks.size());
  };
  const auto found = std::find_if(open_.begin(), open_.end(), waits);
  if (found == open_.end()) return false;
  settle(**found);
  return true;
}

// What lies before the first pending entry: places ascend with the entries' numbers.
uint32_t ServedLog::end_at_rest(const Chunk& chunk) const {
  if (chunk.complete()) return chunk.seen.used;
  uint64_t end = chunk.settled;
  if (chunk.known > 0) {
    const LogEntry& last = *entry_of(memory_of(chunk), chunk_bytes_, chunk.known - 1);
    const uint64_t place = uint64_t{last.place} + last.length;
    if (place <= chunk.seen.used) end = std::max(end, place);
  }
  return static_cast<uint32_t>(end);
}

void ServedLog::settle(Chunk& chunk) {
  if (!chunk.in_memory()) return;
  const uint64_t end = end_at_rest(chunk);
  while (chunk.checks.size() < (chunk.complete() ? blocks_of_bytes(end) : end / kBlockBytes)) {
    const uint64_t index = chunk.checks.size();
    const Bytes block = payload(chunk).substr(index * kBlockBytes, kBlockBytes);
    chunk.checks.push_back(piece_checks_ ? piece_checks_->of_block(chunk.slot, index, block)
                                         : crc32c_of_memory(block));
  }
  chunk.settled = static_cast<uint32_t>(end);
  if (chunk.complete()) std::erase(open_, &chunk);
}

// By a call of the system, not through the mapping: a page that the process has taken away is an error here.
Status ServedLog::read_bytes(Chunk& chunk, uint32_t place, MutableBytes out) {
  if (!chunk.in_memory()) return io::read_exactly(*chunk.spilled, place, out);
  return io::read_exactly(*file_, file_offset(chunk, place), out).with_context(path_);
}

Status ServedLog::check_block(Chunk& chunk, uint64_t index, Bytes block) const {
  const uint32_t found = crc32c(block);
  if (found == chunk.checks[index]) return {};
  const uint64_t place = index * kBlockBytes;
  return corruption("{}: {} bytes at {}: checksum {:#x}, expected {:#x}; these bytes of chunk {} are lost",
                    chunk.in_memory() ? path_ : chunk.spilled->path(), block.size(),
                    chunk.in_memory() ? file_offset(chunk, place) : place, found, chunk.checks[index],
                    chunk.number);
}

Result<Bytes> ServedLog::checked_block(Chunk& chunk, uint64_t index) {
  const uint64_t begin = index * kBlockBytes;
  const uint64_t length = std::min<uint64_t>(kBlockBytes, chunk.seen.used - begin);
  if (checked_.span().empty()) {
    SWALE_ASSIGN_OR_RETURN(checked_, Buffer::allocate(kBlockBytes));
  }
  const auto bytes = checked_.span().first(length);
  if (checked_number_ == chunk.number && checked_index_ == index) return view(bytes);
  checked_index_ = kNoBlock;
  SWALE_RETURN_IF_ERROR(read_bytes(chunk, static_cast<uint32_t>(begin), bytes));
  SWALE_RETURN_IF_ERROR(check_block(chunk, index, view(bytes)));
  checked_number_ = chunk.number, checked_index_ = index;
  return view(bytes);
}

Status ServedLog::read(Chunk& chunk, uint32_t place, MutableBytes out) {
  if (place > chunk.seen.used || out.size() > chunk.seen.used - place)
    return invalid_argument("{}: {} bytes at {} of chunk {}, which has {}", path_, out.size(), place,
                            chunk.number, chunk.seen.used);
  while (!out.empty()) {
    const uint64_t index = place / kBlockBytes, begin = index * kBlockBytes;
    const uint64_t piece = std::min<uint64_t>(out.size(), begin + kBlockBytes - place);
    const bool whole = piece == std::min<uint64_t>(kBlockBytes, chunk.seen.used - begin);
    if (index < chunk.checks.size() && !whole) {
      SWALE_ASSIGN_OR_RETURN(const Bytes bytes, checked_block(chunk, index));
      std::memcpy(out.data(), bytes.data() + (place - begin), piece);
    } else {
      SWALE_RETURN_IF_ERROR(read_bytes(chunk, place, out.first(piece)));
      if (index < chunk.checks.size())
        SWALE_RETURN_IF_ERROR(check_block(chunk, index, view(out.first(piece))));
    }
    out = out.subspan(piece);
    place += static_cast<uint32_t>(piece);
  }
  return {};
}

// A write that has returned was in a chunk that was the current one, in the chunk's reservation.
bool ServedLog::mark(LogMark* mark) const {
  *mark = {id_, head_->current.load(std::memory_order_acquire), 0, 0};
  for (const Chunk* const chunk : open_) {
    if (!chunk->in_memory() || chunk->broken || chunk->complete()) continue;
    if (chunk->known != chunk->entries.size()) return false;
    if (chunk->number != mark->current) continue;
    mark->reserve_at = file_offset(*chunk, chunk_bytes_ - sizeof(ChunkHead)) + offsetof(ChunkHead, reserve);
    mark->reserve = chunk->seen.packed();
  }
  return true;
}

// What follows in the file and in the chunk is one place with what was told last: small writes one after the
// other take no more space than a large one, and a block's check is told once.
bool ServedLog::tell(const Chunk& chunk, uint32_t place, uint32_t bytes, uint64_t offset,
                     ToldPlaces* told) const {
  ToldPlace* last = told->place_count > 0 ? &told->places[told->place_count - 1] : nullptr;
  const bool follows = last != nullptr && last->log == id_ && last->chunk_at == file_offset(chunk, 0) &&
                       last->place + last->bytes == place && last->offset + last->bytes == offset;
  const uint32_t first = (follows ? last->place : place) / kBlockBytes;
  const uint32_t end = (place + bytes - 1) / kBlockBytes + 1;
  const auto checked = static_cast<uint32_t>(std::min<size_t>(end, chunk.checks.size()));
  const uint32_t checks = checked > first ? checked - first : 0, known = follows ? last->checks : 0;
  if (checks - known > kToldChecksMax - told->check_count) return false;
  if (!follows) {
    if (told->place_count == kToldPlacesMax) return false;
    last = &told->places[told->place_count++];
    *last = {offset, file_offset(chunk, 0), 0, place, chunk.seen.used, id_, 0};
  }
  last->bytes += bytes;
  last->checks = checks;
  for (uint32_t i = known; i < checks; ++i) told->checks[told->check_count++] = chunk.checks[first + i];
  return true;
}

void ServedLog::end() noexcept {
  ended_ = true;
  if (head_ == nullptr) return;
  head_->ended.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before entries are looked at: LogWriter::append
  for (auto& [number, chunk] : chunks_) {
    if (chunk.slot != kSlotsMax) close(chunk);
  }
  head_->grants.fetch_add(1);
  futex_wake(&head_->grants);
}

void ServedLog::set_mapped(bool mapped) noexcept {
  if (head_ == nullptr) return;
  head_->mapped.store(mapped ? 1 : 0, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before entries are looked at: LogWriter::append
}

void ServedLog::abandon_pending() noexcept {
  for (auto& [number, chunk] : chunks_) {
    for (auto& state : chunk.entries) {
      if (state == EntryState::kPending) state = EntryState::kRefused;
    }
    chunk.seen.closed = true;
    advance(chunk);
  }
}

void ServedLog::close(Chunk& chunk) noexcept {
  head_of(memory_of(chunk), chunk_bytes_)->reserve.fetch_or(kClosed);
}

Reservation ServedLog::reservation(const Chunk& chunk) const {
  return Reservation::of(head_of(memory_of(chunk), chunk_bytes_)->reserve.load(std::memory_order_acquire));
}

// The process's own words decide, unchecked: garbage gets it a chunk that it could have filled.
bool ServedLog::needs_chunk() const {
  if (ended_ || head_ == nullptr || head_->current.load(std::memory_order_acquire) < next_number_)
    return false;
  return !has_open_chunk();
}

bool ServedLog::has_open_chunk() const {
  return std::any_of(open_.begin(), open_.end(), [&](const Chunk* chunk) {
    return chunk->slot != kSlotsMax && (chunk->broken || !reservation(*chunk).closed);
  });
}

bool ServedLog::wants_chunk(uint64_t ahead) const {
  if (needs_chunk()) return true;
  if (ended_ || head_ == nullptr || chunks_.empty()) return false;
  const Chunk& newest = chunks_.rbegin()->second;
  if (newest.broken || newest.slot == kSlotsMax || newest.number + 1 != next_number_) return false;
  if (reservation(newest).closed) return false;
  const auto has_half = [&](const Chunk* chunk) {
    const Reservation now = chunk->in_memory() ? reservation(*chunk) : chunk->seen;
    return !now.closed && !chunk->broken && !is_half_full(now, chunk_bytes_, chunk->entries_max);
  };
  return static_cast<uint64_t>(std::count_if(open_.begin(), open_.end(), has_half)) < ahead;
}

uint64_t ServedLog::full_chunks(uint64_t at_most) const {
  uint64_t full = 0;
  for (auto chunk = chunks_.begin(); full < at_most && chunk != chunks_.end(); ++chunk)
    full += chunk->second.complete() ? 1 : 0;
  return full;
}

// The writer passes it over when it comes to its number.
bool ServedLog::take_back_empty() noexcept {
  if (ended_ || head_ == nullptr || open_.size() < 2) return false;
  Chunk& newest = chunks_.rbegin()->second;
  if (!newest.in_memory() || newest.broken || newest.seen.closed || newest.seen.entries > 0) return false;
  auto& word = head_of(memory_of(newest), chunk_bytes_)->reserve;
  uint64_t empty = newest.seen.packed();
  if (!word.compare_exchange_strong(empty, empty | kClosed)) return false;
  free_slot(newest);
  forget(newest.number);
  return true;
}

bool ServedLog::has_reserved_slot() const { return free_slots() > 0; }

uint32_t ServedLog::free_slots() const {
  return static_cast<uint32_t>(std::count(slot_.begin(), slot_.end(), Slot::kFree));
}

uint32_t ServedLog::small_free_slots() const {
  uint32_t small = 0;
  for (size_t i = 0; i < slot_.size(); ++i) small += slot_[i] == Slot::kFree && !large_[i] ? 1 : 0;
  return small;
}

Status ServedLog::reserve_slot(LargePages& large, Pages pages) {
  const auto free = std::find(slot_.begin(), slot_.end(), Slot::kUnreserved);
  if (free == slot_.end())
    return error(Code::kResourceExhausted, Scope::kOperation, "{}: all {} chunks of the log are in use",
                 path_, slots_);
  const auto begin = static_cast<off_t>(begin_of(free));
  const Nanos began = system_clock().now();
  const bool has_large = large_bytes_of_slot() > 0;
  const bool asks = has_large && large.wanted();
  const bool found = asks && ask_for_large_pages(*file_, reinterpret_cast<char*>(head_), begin_of(free),
                                                 large_bytes_of_slot());
  const int result = io::continued([&] { return ::fallocate(file_->descriptor(), 0, begin, chunk_bytes_); });
  const int failed = errno;
  if (result != 0) {
    static_cast<void>(::fallocate(file_->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin,
                                  chunk_bytes_ - kPageBytes));
    return errno_status(failed,
                        fmt::format("{}: fallocate of {} bytes at {} in the node's memory file system; "
                                    "enlarge it (mount -o remount,size=...) or give a smaller buffer",
                                    path_, chunk_bytes_, begin));
  }
  const Nanos took = system_clock().now() - began;
  if (asks)
    large.made_large(took, found);
  else if (has_large)
    large.made_small(took);
  const auto slot = static_cast<uint32_t>(free - slot_.begin());
#ifdef MADV_POPULATE_WRITE
  warm_[slot] = pages == Pages::kWritten &&
                ::madvise(slot_of(head_, slot, chunk_bytes_), chunk_bytes_, MADV_POPULATE_WRITE) == 0;
#endif
  large_[slot] = found;
  *free = Slot::kFree;
  ++reserved_slots_;
  return {};
}

// The order of the stores is what a server finds that comes after a kill: a chunk counts from its grant on.
void ServedLog::grant() {
  const auto free = std::find(slot_.begin(), slot_.end(), Slot::kFree);
  const auto slot = static_cast<uint32_t>(free - slot_.begin());
  open_.reserve(open_.size() + 1);
  const auto at = chunks_.try_emplace(next_number_).first;
  Chunk& chunk = at->second;
  chunk.number = next_number_;
  chunk.slot = slot;
  chunk.entries_max = make_entries(slot);
  chunk.seen.number = Reservation::number_bits(chunk.number);
  open_.push_back(&chunk);
  *free = Slot::kUsed;
  if (piece_checks_) piece_checks_->forget(slot);
  announce_change();
  ChunkHead& head = *head_of(memory_of(chunk), chunk_bytes_);
  head.number = chunk.number;
  head.check = check_of_chunk(chunk.number, id_);
  head.entries_max = chunk.entries_max;
  head.warm = warm_[slot] ? 1 : 0;
  head.reserve.store(chunk.seen.packed(), std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  head.magic = kChunkMagic;
  head_->grant[chunk.number % kSlotsMax].store(packed_grant(chunk.number, slot), std::memory_order_release);
  ++next_number_;
  head_->refused.store(0, std::memory_order_release);
  head_->grants.fetch_add(1);
  futex_wake(&head_->grants);
}

void ServedLog::refuse(int error_number) noexcept {
  if (head_ == nullptr) return;
  head_->refused.store(static_cast<uint32_t>(error_number), std::memory_order_release);
  head_->grants.fetch_add(1);
  futex_wake(&head_->grants);
}

// Entries of the next chunk may lie where the slot has payload of chunks before, and one that is reserved
// must not look as if it were published. But 4 MiB of zeros for each chunk cost as much as the process's
// copy, and took the memory out of its processor's cache: so there are zeros for twice the entries that the
// last chunk had. Returns for how many.
uint32_t ServedLog::make_entries(uint32_t slot) noexcept {
  const uint32_t all = entries_that_fit(chunk_bytes_);
  uint32_t& before = payload_before_[slot];
  const uint32_t are_zeros = (entries_place(0) - before) / sizeof(LogEntry);
  const uint32_t entries = std::max(are_zeros, std::min(all, std::max(kEntriesMin, 2 * entries_lately_)));
  const uint32_t begin = entries_place(entries);
  if (begin < before) {
    std::memset(slot_of(head_, slot, chunk_bytes_) + begin, 0, before - begin);
    before = begin;
  }
  return entries;
}

// A thread that has stopped before it reserved finds the chunk closed, or another chunk's number.
void ServedLog::free_slot(Chunk& chunk) noexcept {
  char* const memory = memory_of(chunk);
  ChunkHead& head = *head_of(memory, chunk_bytes_);
  announce_change();
  head.reserve.fetch_or(kClosed);
  head.magic = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  payload_before_[chunk.slot] = std::max(payload_before_[chunk.slot], chunk.seen.used);
  entries_lately_ = static_cast<uint32_t>(chunk.entries.size());
  std::memset(memory + chunk_bytes_ - sizeof(ChunkHead) - sizeof(LogEntry) * chunk.entries.size(), 0,
              sizeof(LogEntry) * chunk.entries.size());
  slot_[chunk.slot] = Slot::kFree;
  warm_[chunk.slot] = true;
  chunk.slot = kSlotsMax;
  std::erase(open_, &chunk);
}

// All but the last page: a thread that was stopped before it looked at the chunk's head may still look.
bool ServedLog::give_back_slot(Which which) noexcept {
  auto free = std::find(slot_.begin(), slot_.end(), Slot::kFree);
  while (which == Which::kOfSmallPages && free != slot_.end() && large_[index_of(free)])
    free = std::find(free + 1, slot_.end(), Slot::kFree);
  if (free == slot_.end()) return false;
  const auto begin = static_cast<off_t>(begin_of(free));
  if (::fallocate(file_->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin,
                  chunk_bytes_ - kPageBytes) != 0)
    return false;
  uint32_t& before = payload_before_[index_of(free)];
  if (const uint32_t last_page = chunk_bytes_ - kPageBytes; before > last_page)
    std::memset(reinterpret_cast<char*>(head_) + begin + last_page, 0, before - last_page);
  before = 0;
  *free = Slot::kUnreserved;
  --reserved_slots_;
  return true;
}

}  // namespace swale::fs
