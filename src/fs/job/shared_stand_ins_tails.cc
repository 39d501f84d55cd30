// SharedStandIns: stand-ins of those that append.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/buffer.h"
#include "base/log.h"
#include "fs/job/shared_stand_in_names.h"
#include "fs/job/shared_stand_ins.h"
#include "fs/job/stand_in_file.h"

namespace swale::fs {
namespace {

constexpr size_t kTailPiece = 1 << 20;

}  // namespace

// One write, which a kill does not cut.
int SharedStandIns::put_place(StandIn& stand) {
  char bytes[sizeof(Place)];
  std::memcpy(bytes, &stand.place, sizeof(bytes));
  return write_all(stand.base.get(), Bytes(bytes, sizeof(bytes)), 0);
}

int SharedStandIns::begin_tail(StandIn& stand, uint64_t size) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const std::string name = name_of(stand) + std::string(kPlaceSuffix);
  stand.base = io::Descriptor(::openat(directory_.get(), name.c_str(), kFlags, 0600));
  if (!stand.base.valid()) return errno;
  stand.place = {size, size, 0};
  return put_place(stand);
}

int SharedStandIns::recover_tail(StandIn& stand) {
  char bytes[sizeof(Place)];
  size_t got = 0;
  if (const int failed = read_all(stand.base.get(), MutableBytes(bytes, sizeof(bytes)), 0, &got); failed != 0)
    return failed;
  std::memcpy(&stand.place, bytes, sizeof(bytes));
  if (got == sizeof(bytes) && stand.place.taken <= stand.place.until) return 0;
  log_error("{}/{}: {} bytes, and not three numbers that say what of it is in the tree: its bytes stay there",
            folder_, name_of(stand) + std::string(kPlaceSuffix), got);
  return EIO;
}

int SharedStandIns::copy_tail(StandIn& stand, MutableBytes space) {
  const Place at = stand.place;
  for (uint64_t from = at.taken; from < at.until;) {
    const MutableBytes part = space.first(std::min<uint64_t>(space.size(), at.until - from));
    size_t got = 0;
    int failed = read_all(stand.own.get(), part, from, &got);
    const uint64_t to = at.place + (from - at.taken);
    if (failed == 0)
      fs_.write_bytes(*stand.writer, to, view(part), stand.by, [&](int error) { failed = error; });
    if (failed != 0) return failed;
    from += part.size();
  }
  return fs_.flush(*stand.writer);
}

// Each byte once, also if this is killed: its place is noted before it is written there, and again when it is
// committed.
int SharedStandIns::take_in_tail(StandIn& stand) {
  if (const int failed = begin_writer(stand, stand.by); failed != 0) return failed;
  auto buffer = Buffer::allocate(kTailPiece);
  if (!buffer.ok()) return ENOMEM;
  Place& at = stand.place;
  bool changed = false;
  for (;;) {
    if (at.taken < at.until) {
      if (const int failed = in_turn(
              stand.id, false, [&]() NO_THREAD_SAFETY_ANALYSIS { return copy_tail(stand, buffer->span()); });
          failed != 0)
        return failed;
      at.taken = at.until;
      changed = true;
      if (const int failed = put_place(stand); failed != 0) return failed;
    }
    struct stat now;
    if (::fstat(stand.own.get(), &now) != 0) return errno;
    const auto size = static_cast<uint64_t>(now.st_size);
    if (size <= at.taken) break;
    if (const int failed = fs_.reserve(*stand.writer, size - at.taken, &at.place); failed != 0) return failed;
    if (!rules_.reserves) at.place = at.taken;
    at.until = size;
    if (const int failed = put_place(stand); failed != 0) return failed;
  }
  if (!changed) return 0;
  const auto told = ask({.file = stand.id, .op = StandInOp::kTook, .changed = true});
  return told.ok() ? 0 : fs_.answer_of(told.status());
}

// The tree ends there now: so does what is appended next.
int SharedStandIns::cut_tail(const meta::FileId& id, uint64_t size) {
  const auto stand = find_by_id(id, Kind::kTail);
  if (stand == nullptr) return 0;
  const MutexLock lock(stand->mutex);
  if (stand->over || !stand->own.valid()) return 0;
  if (::ftruncate(stand->own.get(), static_cast<off_t>(size)) != 0) return errno;
  stand->place = {size, size, 0};
  return put_place(*stand);
}

}  // namespace swale::fs
