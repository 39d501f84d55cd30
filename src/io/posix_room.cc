#include "io/posix_room.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "io/descriptor.h"

namespace swale::io {
namespace {

constexpr uint64_t kShareOfFile = 4;
constexpr uint64_t kShareOfFree = 256;
constexpr uint64_t kWorthACallBytes = 256 * kKiB;

uint64_t free_bytes(int fd) {
  struct statvfs disk;
  if (::fstatvfs(fd, &disk) != 0) return 0;
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
}

uint64_t size_of(int fd) {
  struct stat attributes;
  return ::fstat(fd, &attributes) == 0 ? static_cast<uint64_t>(attributes.st_size) : 0;
}

}  // namespace

void PosixRooms::reserve(PosixRoom& room, uint64_t end, const std::string& path) {
  const MutexLock lock(mutex_);
  room.written_end = std::max(room.written_end, end);
  if (room.never || end <= room.reserved_end || end > static_cast<uint64_t>(INT64_MAX) - 2 * kStepBytesMax)
    return;
  if (room.reserved_end == 0) {
    room.reserved_end = size_of(room.fd);
    room.written_end = std::max(room.written_end, room.reserved_end);
    if (end <= room.reserved_end) return;
  }
  const uint64_t wanted = std::clamp(end / kShareOfFile, kStepBytesMin, kStepBytesMax);
  const uint64_t step = std::min(wanted, free_bytes(room.fd) / kShareOfFree);
  if (step < kWorthACallBytes) return;
  const uint64_t from = room.reserved_end;
  const uint64_t to = round_up(end + step, 64 * kKiB);
  if (std::find(rooms_.begin(), rooms_.end(), &room) == rooms_.end()) rooms_.push_back(&room);
  const int result = continued(
      [&] { return ::fallocate(room.fd, 0, static_cast<off_t>(from), static_cast<off_t>(to - from)); });
  // If the disk is full, the write itself reports it.
  if (result != 0 && errno != ENOSPC && errno != EDQUOT) {
    log_debug("{}", errno_status(errno, path + ": reserving room, which is not tried again").message());
    room.never = true;
    return;
  }
  room.reserved_end = to;
}

bool PosixRooms::give_back() {
  const MutexLock lock(mutex_);
  for (PosixRoom* const room : rooms_) {
    if (size_of(room->fd) <= room->written_end) continue;
    if (continued([&] { return ::ftruncate(room->fd, static_cast<off_t>(room->written_end)); }) != 0)
      continue;
    room->reserved_end = room->written_end;
    given_back_ = true;
  }
  return given_back_;
}

void PosixRooms::truncated(PosixRoom& room, uint64_t size) {
  const MutexLock lock(mutex_);
  room.written_end = std::min(room.written_end, size);
  room.reserved_end = std::min(room.reserved_end, size);
}

void PosixRooms::forget(PosixRoom& room) {
  const MutexLock lock(mutex_);
  rooms_.erase(std::remove(rooms_.begin(), rooms_.end(), &room), rooms_.end());
}

}  // namespace swale::io
