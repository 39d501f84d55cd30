#include "fs/log/map_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/log/plain_crc32c.h"
#include "fs/log/plain_text.h"

namespace swale::fs {
namespace {

constexpr uint64_t kVersion = uint64_t{1} << 32;  // of Log::state
constexpr uint32_t kPieceBytes = 2048;            // of a block that is checked where it is not wanted
constexpr uint32_t kCopiedAtOnce = 256 << 10;  // blocks that stay in a processor's cache until their checks

bool is_odd(uint64_t state) { return (state & kVersion) != 0; }
uint32_t number_of(uint64_t state) { return static_cast<uint32_t>(state); }

// A program's errno, which nothing here changes.
class KeptErrno {
 public:
  KeptErrno() = default;
  ~KeptErrno() { errno = kept_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  const int kept_ = errno;
};

// Of this user, closed to others, and at least so long; or -1.
int open_shared(const char* folder, const char* name, uint64_t number, uint64_t bytes_min, uint64_t* bytes) {
  char path[320];
  PlainText text(path, sizeof(path));
  text << folder << "/" << name;
  if (number != 0) text << number;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  struct stat found;
  if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == ::geteuid() &&
      (found.st_mode & 077) == 0 && static_cast<uint64_t>(found.st_size) >= bytes_min) {
    *bytes = static_cast<uint64_t>(found.st_size);
    return fd;
  }
  ::close(fd);
  return -1;
}

const char* map_shared(int fd, uint64_t bytes, const char* at) {
  const int how = MAP_SHARED | MAP_NORESERVE | (at != nullptr ? MAP_FIXED : 0);
  void* const made = ::mmap(const_cast<char*>(at), bytes, PROT_READ, how, fd, 0);
  return made == MAP_FAILED ? nullptr : static_cast<const char*>(made);
}

}  // namespace

bool MapReader::Seen::copy(uint64_t at, char* out, size_t bytes) const {
  if (file > 0) return ::pread(file - 1, out, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
  const iovec there = {const_cast<char*>(memory + at), bytes}, here = {out, bytes};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

uint32_t MapReader::crc32c(uint32_t crc, const char* bytes, size_t count) const noexcept {
  return means_.crc32c != nullptr ? means_.crc32c(crc, bytes, count) : plain_crc32c(crc, bytes, count);
}

bool MapReader::open(const MapRequest& answer) noexcept {
  const KeptErrno kept;
  if (::memchr(answer.folder, 0, sizeof(answer.folder)) == nullptr) return false;
  PlainText(folder_, sizeof(folder_)) << answer.folder;
  uint64_t bytes = 0;
  const int node = open_shared(folder_, kNodeName, 0, kPageBytes, &bytes);
  const int maps = open_shared(folder_, kMapsName, 0, map_file_bytes(1), &bytes);
  const char* const page = node < 0 ? nullptr : map_shared(node, kPageBytes, nullptr);
  const char* const file = maps < 0 ? nullptr : map_shared(maps, bytes, nullptr);
  if (node >= 0) ::close(node);
  if (maps >= 0) ::close(maps);
  node_ = reinterpret_cast<const NodePage*>(page);
  maps_ = file, maps_bytes_ = bytes;
  if (page == nullptr || file == nullptr) return false;
  MapsHead head;
  ::memcpy(&head, file, sizeof(head));
  slots_ = head.slots;
  server_ = head.server;
  return head.magic == kMapsMagic && head.version == kMapsVersion && head.check == check_of(head) &&
         slots_ <= kMapSlotsMax && bytes == map_file_bytes(slots_) && server_ == answer.server;
}

void MapReader::close() noexcept {
  if (node_ != nullptr) ::munmap(const_cast<NodePage*>(node_), kPageBytes);
  if (maps_ != nullptr) ::munmap(const_cast<char*>(maps_), maps_bytes_);
  node_ = nullptr, maps_ = nullptr;
  for (Log& each : logs_) {
    if (const char* const memory = each.memory.exchange(nullptr); memory != nullptr)
      ::munmap(const_cast<char*>(memory), each.bytes.load());
    if (const int file = each.file.exchange(0); file > 0) ::close(file - 1);
    each.state.store(0);
  }
}

void MapReader::settle_after_fork() noexcept {
  for (Log& each : logs_)
    if (const uint64_t state = each.state.load(); is_odd(state))
      each.state.store((state & ~uint64_t{UINT32_MAX}) + kVersion);
}

bool MapReader::has_epoch(uint64_t epoch) const noexcept {
  return rules_.ignores_epoch || node_->epoch.load(std::memory_order_seq_cst) == epoch;
}

bool MapReader::look(uint32_t slot, uint64_t ticket, uint64_t offset, Look* out) const noexcept {
  if (maps_ == nullptr || slot >= slots_) return false;
  out->number = slot;
  out->slot = reinterpret_cast<const MapSlot*>(maps_ + map_slot_begin(slot));
  out->sequence = out->slot->sequence.load(std::memory_order_acquire);
  if (out->sequence % 2 != 0) return false;
  take_words(out->slot->state, &out->state);
  const MapState& state = out->state;
  return state.check == check_of(state, out->sequence) && state.ticket == ticket &&
         state.mark_count <= kToldMarksMax && state.place_count <= kToldPlacesMax && offset >= state.offset &&
         offset < state.end && has_epoch(state.epoch);
}

bool MapReader::still_counts(const Look& look) const noexcept {
  if (rules_.looks_once) return true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return look.slot->sequence.load(std::memory_order_relaxed) == look.sequence && has_epoch(look.state.epoch);
}

bool MapReader::Seen::has_slot_at(uint64_t begin) const {
  const uint64_t first = slot_begin(0, chunk_bytes), distance = slot_begin(1, chunk_bytes) - first;
  return begin >= first && (begin - first) % distance == 0 && (begin - first) / distance < slots;
}

bool MapReader::Seen::has_word(uint64_t at, uint64_t expected) const {
  const auto* const word = reinterpret_cast<const std::atomic<uint64_t>*>(memory + at);
  return word->load(std::memory_order_seq_cst) == expected && is_still_there();
}

// Nobody has written to a log since.
bool MapReader::has_marks(const Look& look) noexcept {
  if (rules_.ignores_marks) return true;
  for (uint32_t i = 0; i < look.state.mark_count; ++i) {
    MapMark mark;
    take_words(look.slot->marks[i], &mark);
    Seen seen;
    if (mark.check != check_of(mark, look.state.check) || !find_log(mark.log, &seen) ||
        !seen.has_word(offsetof(LogHead, current), mark.current))
      return false;
    if (mark.reserve_at == 0) continue;
    const uint64_t in_slot = seen.chunk_bytes - sizeof(ChunkHead) + offsetof(ChunkHead, reserve);
    if (mark.reserve_at < in_slot || !seen.has_slot_at(mark.reserve_at - in_slot) ||
        !seen.has_word(mark.reserve_at, mark.reserve))
      return false;
  }
  return true;
}

bool MapReader::place_at(const Look& look, uint32_t index, MapPlace* out) const noexcept {
  take_words(look.slot->places[index], out);
  return out->check == check_of(*out, look.state.check) && out->bytes > 0 && out->place <= out->used &&
         out->bytes <= out->used - out->place && out->first_check + out->checks <= kToldChecksMax;
}

// The last one that does not begin behind `offset`, or 0.
uint32_t MapReader::first_place(const Look& look, uint64_t offset) const noexcept {
  uint32_t begin = 0, end = look.state.place_count;
  while (end - begin > 1) {
    const uint32_t middle = begin + (end - begin) / 2;
    const uint64_t at = __atomic_load_n(&look.slot->places[middle].offset, __ATOMIC_RELAXED);
    (at <= offset ? begin : end) = middle;
  }
  return begin;
}

size_t MapReader::copy(const Look& look, uint64_t offset, char* out, size_t bytes) noexcept {
  size_t done = 0;
  for (uint32_t i = first_place(look, offset); i < look.state.place_count && done < bytes; ++i) {
    MapPlace place;
    if (!place_at(look, i, &place)) break;
    const uint64_t wanted = offset + done;
    if (wanted < place.offset || wanted - place.offset >= place.bytes) break;
    const auto skip = static_cast<uint32_t>(wanted - place.offset);
    const auto part =
        static_cast<uint32_t>(bytes - done < place.bytes - skip ? bytes - done : place.bytes - skip);
    if (!copy_place(look, place, skip, out + done, part)) break;
    done += part;
  }
  return done;
}

bool MapReader::copy_place(const Look& look, const MapPlace& place, uint32_t skip, char* out,
                           uint32_t bytes) noexcept {
  Seen seen;
  if (!find_log(place.log, &seen) || !seen.has_slot_at(place.chunk_at) ||
      place.used > seen.chunk_bytes - sizeof(ChunkHead))
    return false;
  const uint32_t first = place.place / kBlockBytes;
  uint32_t at = place.place + skip;
  while (bytes > 0) {
    uint32_t part = 0, block = at / kBlockBytes;
    // What needs no look any more is copied at once: blocks that were found whole, and those without a check.
    while (part < bytes && (block - first >= place.checks || rules_.skips_checks ||
                            is_checked(look, place.first_check + block - first))) {
      const uint32_t end = ++block * kBlockBytes;
      part = end - at < bytes ? end - at : bytes;
    }
    const uint32_t begin = block * kBlockBytes;
    const uint32_t length = place.used - begin < kBlockBytes ? place.used - begin : kBlockBytes;
    if (part > 0) {
      if (!seen.copy(place.chunk_at + at, out, part)) return false;
    } else if (at == begin && bytes >= length) {
      part = copy_blocks(look, place, seen, block, out, bytes);
      if (part == 0) return false;
    } else {
      part = begin + length - at < bytes ? begin + length - at : bytes;
      if (!is_whole(seen, place.chunk_at + begin, length, expected_check(look, place, block)) ||
          !seen.copy(place.chunk_at + at, out, part) || !seen.is_still_there())
        return false;
      note_checked(look, place.first_check + block - first);
    }
    at += part, out += part, bytes -= part;
  }
  return seen.is_still_there();
}

uint32_t MapReader::expected_check(const Look& look, const MapPlace& place, uint32_t block) noexcept {
  const uint32_t check = place.first_check + block - place.place / kBlockBytes;
  return __atomic_load_n(&look.slot->checks[check], __ATOMIC_RELAXED);
}

// Whole blocks, from one that has a check on: all that follow and have one, up to kCopiedAtOnce. How many
// bytes; 0: one was not what it should be.
uint32_t MapReader::copy_blocks(const Look& look, const MapPlace& place, const Seen& seen, uint32_t block,
                                char* out, uint32_t bytes) noexcept {
  const uint32_t first = place.place / kBlockBytes, begin = block * kBlockBytes;
  const uint64_t end_of_checks = uint64_t{first + place.checks} * kBlockBytes;
  uint64_t end = end_of_checks < place.used ? end_of_checks : place.used;
  if (end > begin + uint64_t{bytes}) end = (begin + uint64_t{bytes}) / kBlockBytes * kBlockBytes;
  const auto run = static_cast<uint32_t>(end - begin < kCopiedAtOnce ? end - begin : kCopiedAtOnce);
  if (!seen.copy(place.chunk_at + begin, out, run)) return 0;
  for (uint32_t done = 0; done < run; done += kBlockBytes, ++block) {
    const uint32_t length = run - done < kBlockBytes ? run - done : kBlockBytes;
    if (crc32c(0, out + done, length) != expected_check(look, place, block)) return 0;
  }
  if (!seen.is_still_there()) return 0;
  while (block-- > begin / kBlockBytes) note_checked(look, place.first_check + block - first);
  return run;
}

// Not by a look at the mapping: the server may take the block away.
bool MapReader::is_whole(const Seen& seen, uint64_t at, uint32_t bytes, uint32_t check) const noexcept {
  char piece[kPieceBytes];
  uint32_t found = 0;
  for (uint32_t done = 0; done < bytes;) {
    const uint32_t part = bytes - done < kPieceBytes ? bytes - done : kPieceBytes;
    if (!seen.copy(at + done, piece, part)) return false;
    found = crc32c(found, piece, part);
    done += part;
  }
  return found == check;
}

bool MapReader::is_checked(const Look& look, uint32_t block) noexcept {
  const Checked& known = checked_[look.number];
  return known.sequence.load(std::memory_order_acquire) == look.sequence &&
         (known.blocks[block / 64].load(std::memory_order_relaxed) >> block % 64 & 1) != 0;
}

void MapReader::note_checked(const Look& look, uint32_t block) noexcept {
  Checked& known = checked_[look.number];
  uint64_t sequence = known.sequence.load(std::memory_order_acquire);
  if (sequence != look.sequence) {
    if (sequence == UINT64_MAX || !known.sequence.compare_exchange_strong(sequence, UINT64_MAX)) return;
    for (auto& each : known.blocks) each.store(0, std::memory_order_relaxed);
    known.sequence.store(look.sequence, std::memory_order_release);
  }
  const uint64_t bit = uint64_t{1} << block % 64;
  known.blocks[block / 64].fetch_or(bit);
  // Another thread has just begun with another map.
  if (known.sequence.load() != look.sequence) known.blocks[block / 64].fetch_and(~bit);
}

bool MapReader::find_log(uint32_t number, Seen* out) noexcept {
  if (number == 0) return false;
  Log* const set = logs_ + number % kSets * kWays;
  Log* other = nullptr;
  for (int tries = 0; tries < 2; ++tries) {
    for (Log* log = set; log < set + kWays; ++log) {
      const uint64_t state = log->state.load(std::memory_order_acquire);
      if (is_odd(state)) continue;
      if (number_of(state) == 0) other = log;
      if (number_of(state) != number) continue;
      *out = {log,
              state,
              log->memory.load(std::memory_order_relaxed),
              log->chunk_bytes.load(std::memory_order_relaxed),
              log->slots.load(std::memory_order_relaxed),
              log->file.load(std::memory_order_relaxed)};
      return out->is_still_there();
    }
    if (other == nullptr) other = set + next_way_.fetch_add(1, std::memory_order_relaxed) % kWays;
    const uint64_t before = other->state.load(std::memory_order_relaxed);
    if (tries > 0 || is_odd(before) || !map_log_into(*other, before, number)) return false;
  }
  return false;
}

// Its number stays a log's, also when another one takes the place: nobody reads a stranger's file by it.
bool MapReader::keep_file(Log& log, int fd) noexcept {
  const int old = log.file.load(std::memory_order_relaxed);
  const int kept = old > 0 ? ::dup3(fd, old - 1, O_CLOEXEC) : ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (kept >= 0) log.file.store(kept + 1, std::memory_order_relaxed);
  return kept >= 0;
}

// In the place of another one: whoever still looks there sees another log's words, and then another state.
bool MapReader::map_log_into(Log& log, uint64_t before, uint32_t number) noexcept {
  if (!log.state.compare_exchange_strong(before, before + kVersion)) return false;
  const KeptErrno kept;
  bool mapped = false;
  uint64_t bytes = 0;
  alignas(LogHead) char page[sizeof(LogHead)];
  const int fd = open_shared(folder_, kLogPrefix, number, kPageBytes, &bytes);
  if (fd >= 0 && ::pread(fd, page, sizeof(page), 0) == static_cast<ssize_t>(sizeof(page))) {
    const LogHead& head = *reinterpret_cast<const LogHead*>(page);
    const char* const there = log.memory.load(std::memory_order_relaxed);
    const bool fits = there == nullptr || log.bytes.load(std::memory_order_relaxed) == bytes;
    if (head_is_whole(head, number) && bytes >= log_file_bytes(head.slots, head.chunk_bytes) && fits) {
      const char* const memory = map_shared(fd, bytes, there);
      if (memory != nullptr) {
        log.memory.store(memory, std::memory_order_relaxed);
        log.bytes.store(bytes, std::memory_order_relaxed);
        log.chunk_bytes.store(head.chunk_bytes, std::memory_order_relaxed);
        log.slots.store(head.slots, std::memory_order_relaxed);
        mapped = !means_.keeps_descriptors || keep_file(log, fd);
      }
    }
  }
  if (fd >= 0) ::close(fd);
  const uint64_t version = (before & ~uint64_t{UINT32_MAX}) + 2 * kVersion;
  log.state.store(version | (mapped ? number : 0), std::memory_order_release);
  return mapped;
}

MapReader::Outcome MapReader::read(uint32_t slot, uint64_t ticket, uint64_t offset, void* out,
                                   size_t bytes) noexcept {
  Look seen;
  if (!look(slot, ticket, offset, &seen) || !has_marks(seen)) return {};
  if (rules_.between != nullptr) rules_.between(rules_.of_between);
  const KeptErrno kept;
  const uint64_t size = seen.state.size;
  size_t wanted = bytes;
  bool to_the_end = false;
  if (size != kSizeUnknown && (offset >= size || bytes > size - offset)) {
    wanted = offset >= size ? 0 : static_cast<size_t>(size - offset);
    to_the_end = true;
  }
  const size_t got = copy(seen, offset, static_cast<char*>(out), wanted);
  if (!still_counts(seen)) return {};
  if (got == wanted && (to_the_end || got > 0)) return {How::kAll, got};
  return {got == 0 ? How::kNothing : How::kPart, got};
}

}  // namespace swale::fs
