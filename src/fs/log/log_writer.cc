#include "fs/log/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/log/futex.h"
#include "fs/log/map_log.h"
#include "fs/log/plain_text.h"

namespace swale::fs {
namespace {

constexpr uint32_t kLineBytes = 64;
constexpr uint64_t kLookNanos = 100'000'000;  // a waiting writer asks so often whether the server lives

uint64_t now_ns() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Maps `bytes` of a file that is at least that long. Returns nullptr with errno.
void* map_file(int fd, uint64_t bytes) {
  struct stat found;
  if (::fstat(fd, &found) != 0) return nullptr;
  if (!S_ISREG(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 077) != 0) {
    errno = EPERM;
    return nullptr;
  }
  if (static_cast<uint64_t>(found.st_size) < bytes) {
    errno = EUCLEAN;
    return nullptr;
  }
  return map_log(fd, bytes, PROT_READ | PROT_WRITE);
}

int failed(LogTrouble* trouble, int error, const char* path, const char* what) {
  if (trouble != nullptr) PlainText(trouble->text, sizeof(trouble->text)) << path << ": " << what;
  return -error;
}

// The next write begins behind this one. Its cache lines, which the server may have read, come while this one
// is copied: a write waits for them before its stamp is seen, which took most of its time.
void prefetch_next(const char* begin, uint32_t bytes) {
  if (bytes > kPageBytes) bytes = kPageBytes;
  for (uint32_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(begin + at);
}

}  // namespace

// The descriptors are closed again: a program may close all that it has.
int LogWriter::attach(const char* folder, uint32_t log, LogTrouble* trouble) noexcept {
  detach();
  char path[sizeof(node_path_)], bell_path[sizeof(node_path_)];
  if (::strlen(folder) + 32 > sizeof(path)) return failed(trouble, ENAMETOOLONG, folder, "too long a path");
  PlainText(path, sizeof(path)) << folder << "/" << kLogPrefix << uint64_t{log};
  PlainText(bell_path, sizeof(bell_path)) << folder << "/" << kBellName;
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  const LogFiles files{::open(path, kFlags), ::open(bell_path, kFlags), folder};
  int result = 0;
  if (files.log < 0 || files.bell < 0)
    result = failed(trouble, errno, path, "the log cannot be opened");
  else
    result = attach(files, log, trouble);
  if (files.log >= 0) ::close(files.log);
  if (files.bell >= 0) ::close(files.bell);
  return result;
}

int LogWriter::attach(const LogFiles& files, uint32_t log, LogTrouble* trouble) noexcept {
  detach();
  char name[sizeof(node_path_)];
  if (::strlen(files.folder) + 32 > sizeof(name))
    return failed(trouble, ENAMETOOLONG, files.folder, "too long a path");
  PlainText(name, sizeof(name)) << files.folder << "/" << kLogPrefix << uint64_t{log};
  auto* const first = static_cast<LogHead*>(map_file(files.log, kPageBytes));
  if (first == nullptr) return failed(trouble, errno, name, "the log cannot be mapped");
  const bool whole = head_is_whole(*first, log);
  const uint32_t slots = first->slots, chunk_bytes = first->chunk_bytes;
  ::munmap(first, kPageBytes);
  if (!whole)
    return failed(trouble, EUCLEAN, name, "this is no log of this version; start the job's server anew");
  void* const own = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return failed(trouble, errno, name, "no memory");
  own_ = static_cast<std::atomic<uint32_t>*>(own);
  slots_ = slots, chunk_bytes_ = chunk_bytes, log_ = log;
  piece_bytes_ = chunk_bytes - static_cast<uint32_t>(sizeof(ChunkHead) + sizeof(LogEntry));
  if (piece_bytes_ > kPieceBytesMax) piece_bytes_ = kPieceBytesMax;
  head_ = static_cast<LogHead*>(map_file(files.log, log_file_bytes(slots, chunk_bytes)));
  int failure = head_ == nullptr ? errno : 0;
  if (failure == 0 && ::madvise(own, kPageBytes, MADV_WIPEONFORK) != 0) failure = errno;
  if (failure == 0 && (bell_ = static_cast<Bell*>(map_file(files.bell, sizeof(Bell)))) == nullptr)
    failure = errno;
  if (failure != 0) {
    detach();
    return failed(trouble, failure, name, "the log cannot be mapped");
  }
  PlainText(node_path_, sizeof(node_path_)) << files.folder << "/" << kNodeName;
  if (::access(node_path_, F_OK) != 0) node_path_[0] = '\0';
  own_->store(1, std::memory_order_release);
  return 0;
}

void LogWriter::detach() noexcept {
  if (head_ != nullptr) ::munmap(head_, log_file_bytes(slots_, chunk_bytes_));
  if (bell_ != nullptr) ::munmap(bell_, sizeof(Bell));
  if (own_ != nullptr) ::munmap(own_, kPageBytes);
  head_ = nullptr, bell_ = nullptr, own_ = nullptr;
  for (auto& word : prepared_) word.store(0, std::memory_order_relaxed);
}

int64_t LogWriter::write(const meta::FileId& file, uint64_t offset, const void* data, uint64_t bytes,
                         LogTrouble* trouble) noexcept {
  const Request whole{file, offset, trouble};
  if (!attached()) return say(whole, ECHILD, "this process has no log; it must attach to its own");
  if (offset > meta::kOffsetEnd || bytes > meta::kOffsetEnd - offset)
    return say(whole, EFBIG, "the write ends beyond 2^63");
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t left = bytes - done;
    const auto length = static_cast<uint32_t>(left < piece_bytes_ ? left : piece_bytes_);
    const int result = append({file, offset + done, trouble}, static_cast<const char*>(data) + done, length);
    if (result != 0) return done > 0 ? static_cast<int64_t>(done) : result;
    done += length;
  }
  return static_cast<int64_t>(bytes);
}

int LogWriter::append(const Request& request, const char* data, uint32_t length) noexcept {
  Space space;
  const int result = reserve(request, length, &space);
  if (result != 0) return result;
  copy(space, data, length);
  LogEntry& entry = *entry_of(space.chunk, chunk_bytes_, space.at.entries);
  const EntryCopy copy{
      kPublished | now_ns(), request.file, request.offset, length, space.at.used, space.number, 0};
  entry.file_high = copy.file.high;
  entry.file_low = copy.file.low;
  entry.offset = copy.offset;
  entry.length = copy.length;
  entry.place = copy.place;
  entry.number = copy.number;
  entry.check = check_of(copy, log_);
  // Either the server that ends the log sees the entry when it looks for the last time, or `ended` is seen
  // here (ServedLog::end): in the order of all such stores and loads.
  entry.published.store(copy.published, std::memory_order_seq_cst);
  if (head_->ended.load(std::memory_order_seq_cst) != 0)
    return say(request, EIO, "the server has ended this log: the write may be lost");
  // A write that begins after this one has returned gets a later stamp, and a server that is asked then
  // reads a later time, also where the clock moves in steps.
  while ((kPublished | now_ns()) <= copy.published) {
  }
  return 0;
}

void LogWriter::copy(const Space& space, const char* data, uint32_t length) noexcept {
  char* const to = space.chunk + space.at.used;
  if (copier_.copy != nullptr && length >= kCopierMin) {
    copier_.copy(copier_.self, space.slot, space.at.used, to, data, length);
  } else {
    prefetch_next(to + length, length);
    ::memcpy(to, data, length);
  }
}

int LogWriter::reserve(const Request& request, uint32_t length, Space* space) noexcept {
  for (;;) {
    uint64_t number = head_->current.load(std::memory_order_acquire);
    const uint64_t grant = head_->grant[number % kSlotsMax].load(std::memory_order_acquire);
    const uint32_t slot = granted_slot(grant, number);
    if (slot >= slots_) {
      if (const int result = wait_for_chunk(request, number); result != 0) return result;
      continue;
    }
    char* const chunk = slot_of(head_, slot, chunk_bytes_);
    prepare(slot, chunk);
    ChunkHead& head = *head_of(chunk, chunk_bytes_);
    auto& word = head.reserve;
    uint64_t seen = word.load(std::memory_order_acquire);
    const uint32_t entries_max = head.entries_max;
    for (;;) {
      Reservation now = Reservation::of(seen);
      if (now.closed || now.number != Reservation::number_bits(number)) break;
      const uint32_t skipped = skip_before(now.used, length);
      if (has_space(now, uint64_t{skipped} + length, chunk_bytes_, entries_max)) now.used += skipped;
      if (!has_space(now, length, chunk_bytes_, entries_max)) {
        // Closed for all: else a smaller piece might still find space in a chunk that the server takes for
        // full.
        if (word.compare_exchange_weak(seen, seen | kClosed)) break;
        continue;
      }
      *space = {chunk, slot, number, now};
      now.used += length;
      now.entries += 1;
      if (!word.compare_exchange_weak(seen, now.packed())) continue;
      if (is_half_full(now, chunk_bytes_, entries_max) && !is_half_full(space->at, chunk_bytes_, entries_max))
        ring();
      return 0;
    }
    if (head_->current.compare_exchange_strong(number, number + 1)) ring();
  }
}

// The server has reserved the chunk's memory, so that none of its pages can be missing. Mapping them at once
// costs a fifth of a page fault for each. An old kernel maps them one by one.
void LogWriter::prepare(uint32_t slot, char* chunk) noexcept {
  const uint64_t bit = uint64_t{1} << slot % 64;
  if ((prepared_[slot / 64].load(std::memory_order_relaxed) & bit) != 0) return;
  if ((prepared_[slot / 64].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  const int kept = errno;
#ifdef MADV_POPULATE_WRITE
  // Pages that hold something are mapped sixteen at a time for a read, and writable for all that.
  const bool warm = head_of(chunk, chunk_bytes_)->warm != 0;
  static_cast<void>(::madvise(chunk, chunk_bytes_, warm ? MADV_POPULATE_READ : MADV_POPULATE_WRITE));
#else
  static_cast<void>(chunk);
#endif
  errno = kept;
}

int LogWriter::wait_for_chunk(const Request& request, uint64_t number) noexcept {
  const int kept = errno;
  const uint64_t end = now_ns() + head_->wait_ns;
  int result = 0;
  for (;;) {
    const uint32_t seen = head_->grants.load(std::memory_order_acquire);
    const uint64_t grant = head_->grant[number % kSlotsMax].load(std::memory_order_acquire);
    if (granted_slot(grant, number) < slots_ || head_->current.load(std::memory_order_acquire) != number)
      break;
    if (head_->ended.load(std::memory_order_acquire) != 0) {
      result = say(request, EIO, "the server has ended this log");
      break;
    }
    if (const uint32_t refused = head_->refused.load(std::memory_order_acquire); refused != 0) {
      result = say(request, static_cast<int>(refused & 0xfff), "the server has no space");
      break;
    }
    ring();
    if (server_is_gone()) {
      result = say(request, EIO, "the server of the node is gone; start it anew (swale serve)");
      break;
    }
    if (now_ns() >= end) {
      result =
          say(request, EIO, "the server of the node is silent, or nothing drains: no memory for a write");
      break;
    }
    futex_wait(&head_->grants, seen, kLookNanos);
  }
  errno = kept;
  return result;
}

// The living server locks the file; the kernel takes the lock away from a dead one. The file is opened each
// time: a program that closes all descriptors might have given the number to another file.
bool LogWriter::server_is_gone() const noexcept {
  if (node_path_[0] == '\0') return false;
  const int fd = ::open(node_path_, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool free = ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  ::close(fd);
  return free;
}

void LogWriter::ring() noexcept {
  const int kept = errno;
  bell_->rung.fetch_add(1);
  if (bell_->asleep.load() != 0) futex_wake(&bell_->rung);
  errno = kept;
}

int LogWriter::say(const Request& request, int error, const char* what) const noexcept {
  if (request.trouble != nullptr) {
    PlainText text(request.trouble->text, sizeof(request.trouble->text));
    text << "node " << (head_ != nullptr ? head_->node : "?") << ": write at " << request.offset
         << " of file ";
    text.hex(request.file.high) << ":";
    text.hex(request.file.low) << ": " << what;
  }
  return -error;
}

}  // namespace swale::fs
