// Reads, writes and seeks of descriptors that are ours. Others go on to the next library at once.
//
// A write at the offset first takes its place, by one compare-and-swap, then writes there: concurrent writes
// never overlap, and a signal handler may write while the same thread does. A read that was not alone with
// the offset is done anew.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/descriptions.h"
#include "preload/log_reads.h"
#include "preload/log_right.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

constexpr size_t kBytesMax = 0x7ffff000;  // Linux writes no more at once
constexpr uint64_t kEndMax = INT64_MAX;   // nor behind it

Memory& all_of_ours() { return *memory.load(std::memory_order_relaxed); }

// While another thread gives the offset back, it is nobody's.
uint64_t settled_place(const Description& held) {
  uint64_t place = held.place.load(std::memory_order_acquire);
  while ((place & kStateBits) == kGoing) {
    raw(SYS_sched_yield);
    place = held.place.load(std::memory_order_acquire);
  }
  return place;
}
bool is_here(uint64_t place) { return (place & kStateBits) == kHere; }

// A file that was opened past the kernel stays so while logs serve it. Appends are the kernel's.
class Ours : public Held {
 public:
  explicit Ours(int fd) noexcept : Held(fd, kAsItIs) {
    if (*this && (*this)->appends.load(std::memory_order_relaxed)) be_real(**this, fd);
  }
};

void to_kernel(Description& held, int fd) {
  be_real(held, fd);
  give_back(held, fd);
}

// The write is the kernel's.
void prepare_write(Description& held, int fd) {
  be_real(held, fd);
  if (held.appends.load(std::memory_order_relaxed)) learn_size(fd);
}

// Where the next `bytes` go. False: the kernel knows.
bool take_place(Description& held, int fd, size_t bytes, uint64_t* offset) {
  for (;;) {
    uint64_t place = settled_place(held);
    if (!is_here(place)) {
      prepare_write(held, fd);
      return false;
    }
    if (bytes > kPlaceMax - place) {
      to_kernel(held, fd);
      return false;
    }
    if (held.place.compare_exchange_weak(place, place + bytes)) {
      *offset = place;
      return true;
    }
  }
}

// Fewer bytes than wanted: what comes next goes behind them, unless somebody else has a place already.
void return_place(Description& held, uint64_t offset, size_t wanted, ssize_t done) {
  uint64_t place = offset + wanted;
  held.place.compare_exchange_strong(place, offset + static_cast<uint64_t>(done > 0 ? done : 0));
}

// None: the kernel writes it, or says why not.
fs::LogWriter* log_at(Description& held, int fd, uint64_t offset, size_t bytes) {
  return offset > kEndMax - bytes ? nullptr : log_for(all_of_ours(), held, fd, bytes);
}

// What was written, once processes that have mapped the file see it.
ssize_t shown(const fs::LogWriter& log, Description& held, int fd, ssize_t written) {
  if (log.must_show()) show(held, fd);
  return written;
}

ssize_t put(Description& held, int fd, uint64_t offset, const void* data, size_t bytes) {
  fs::LogWriter* const log = log_at(held, fd, offset, bytes);
  if (log != nullptr && data != nullptr) {
    const int64_t written = log->write(held.file, offset, data, bytes);
    if (written >= 0) return shown(*log, held, fd, static_cast<ssize_t>(written));
    refuse_log(held);  // the mount says why
  }
  prepare_write(held, fd);
  return next<decltype(::pwrite)>(calls::pwrite)(fd, data, bytes, static_cast<off_t>(offset));
}

// Bytes of a vector, or -1: the kernel refuses it.
ssize_t bytes_of(const iovec* parts, int count) {
  if (count < 0 || count > IOV_MAX || (count > 0 && parts == nullptr)) return -1;
  size_t sum = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > kBytesMax || (sum += parts[i].iov_len) > kBytesMax) return -1;
    if (parts[i].iov_base == nullptr && parts[i].iov_len > 0) return -1;
  }
  return static_cast<ssize_t>(sum);
}

ssize_t put_parts(Description& held, int fd, uint64_t offset, const iovec* parts, int count, size_t bytes) {
  fs::LogWriter* const log = log_at(held, fd, offset, bytes);
  ssize_t done = 0;
  for (int i = 0; log != nullptr && i < count; ++i) {
    const int64_t written =
        log->write(held.file, offset + static_cast<uint64_t>(done), parts[i].iov_base, parts[i].iov_len);
    if (written >= 0) done += written;
    if (written == static_cast<int64_t>(parts[i].iov_len)) continue;
    refuse_log(held);
    break;
  }
  if (done > 0) return shown(*log, held, fd, done);
  prepare_write(held, fd);
  return next<decltype(::pwritev)>(calls::pwritev)(fd, parts, count, static_cast<off_t>(offset));
}

// By `read`, which reads where it is told.
template <class Read, class ReadNext>
ssize_t read_on(Description& held, const Read& read, const ReadNext& read_next) {
  for (;;) {
    uint64_t place = settled_place(held);
    if (!is_here(place)) return read_next();
    const ssize_t got = read(place);
    if (got <= 0) return got;
    if (held.place.compare_exchange_strong(place, place + static_cast<uint64_t>(got))) return got;
  }
}

ssize_t read_some(int fd, void* out, size_t bytes) {
  auto* const read_next = next<decltype(::read)>(calls::read);
  if (is_foreign(fd)) return read_next(fd, out, bytes);
  const Ours held(fd);
  if (!held) return read_next(fd, out, bytes);
  return read_on(
      *held, [&](uint64_t place) { return read_at(*held, fd, place, out, bytes); },
      [&] { return read_next(fd, out, bytes); });
}

ssize_t read_some_at(int fd, void* out, size_t bytes, off_t offset) {
  const Ours held(fd);
  if (held && offset < 0) be_real(*held, fd);
  if (!held || offset < 0) return next<decltype(::pread)>(calls::pread)(fd, out, bytes, offset);
  return read_at(*held, fd, static_cast<uint64_t>(offset), out, bytes);
}

ssize_t read_vector(Description& held, int fd, const iovec* parts, int count, off_t offset) {
  if (offset < 0 || bytes_of(parts, count) <= 0) {
    be_real(held, fd);
    return next<decltype(::preadv)>(calls::preadv)(fd, parts, count, offset);
  }
  return read_parts_at(held, fd, static_cast<uint64_t>(offset), parts, count);
}

// The new offset, or -1 with errno.
off_t target_of(int fd, off_t offset, int whence, uint64_t place) {
  off_t base = 0;
  if (whence == SEEK_CUR) base = static_cast<off_t>(place);
  if (whence == SEEK_END) {
    struct stat found;
    if (::fstat(fd, &found) != 0) return -1;
    base = found.st_size;
  }
  off_t target = 0;
  const bool over = __builtin_add_overflow(base, offset, &target);
  if (!over && target >= 0) return target;
  errno = over ? EOVERFLOW : EINVAL;
  return -1;
}

off_t seek(Description& held, int fd, off_t offset, int whence) {
  auto* const seek_next = next<decltype(::lseek)>(calls::lseek);
  for (;;) {
    uint64_t place = settled_place(held);
    if (!is_here(place)) return seek_next(fd, offset, whence);
    const bool is_place = whence == SEEK_SET || whence == SEEK_CUR || whence == SEEK_END;
    if (!is_place) be_real(held, fd);
    const off_t target = is_place ? target_of(fd, offset, whence, place) : seek_next(fd, offset, whence);
    if (target < 0) return target;
    if (static_cast<uint64_t>(target) > kPlaceMax)
      to_kernel(held, fd);
    else if (held.place.compare_exchange_strong(place, static_cast<uint64_t>(target)))
      return target;
  }
}

// Asking where it stands is how libraries find out: no reason for a message.
off_t refuse_seek(int fd, off_t offset) {
  if (offset != 0) return refuse_subfile(fd, "lseek", ESPIPE, kNoPlaces);
  errno = ESPIPE;
  return -1;
}

bool may_have_to_settle() { return unmounted.load(std::memory_order_relaxed) == Unmounted::kYes; }

// What the kernel has written may have to be durable. `offset`: -1: the descriptor's.
ssize_t written(int fd, ssize_t done, off_t offset, bool durable = false) {
  return done > 0 && may_have_to_settle() ? settle_write_unmounted(fd, done, offset, durable) : done;
}

// The descriptor is no file of ours.
ssize_t write_other(int fd, const void* data, size_t bytes) {
  if (!is_subfile(fd)) return written(fd, next<decltype(::write)>(calls::write)(fd, data, bytes), -1);
  const iovec part = {const_cast<void*>(data), bytes < kBytesMax ? bytes : kBytesMax};
  return write_subfile(fd, &part, 1);
}

}  // namespace

extern "C" {

ssize_t swale_take_write(int fd, const void* data, size_t bytes) {
  auto* const write_next = next<decltype(::write)>(calls::write);
  if (is_foreign(fd) && !is_subfile(fd))  // a jump, where nothing has to be done afterwards
    return may_have_to_settle() ? written(fd, write_next(fd, data, bytes), -1) : write_next(fd, data, bytes);
  const Ours held(fd);
  if (!held) return write_other(fd, data, bytes);
  const size_t wanted = bytes < kBytesMax ? bytes : kBytesMax;
  uint64_t offset = 0;
  if (wanted == 0) be_real(*held, fd);
  if (wanted == 0 || !take_place(*held, fd, wanted, &offset)) return write_next(fd, data, bytes);
  const ssize_t done = put(*held, fd, offset, data, wanted);
  if (done != static_cast<ssize_t>(wanted)) return_place(*held, offset, wanted, done);
  return done;
}

ssize_t swale_take_pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  const Ours held(fd);
  if (!held && is_subfile(fd)) return refuse_subfile(fd, "pwrite", ESPIPE, kNoPlaces);
  const bool is_kernels = !held || bytes == 0 || bytes > kBytesMax || offset < 0;
  if (held && is_kernels) be_real(*held, fd);
  if (is_kernels)
    return written(fd, next<decltype(::pwrite)>(calls::pwrite)(fd, data, bytes, offset), offset);
  return put(*held, fd, static_cast<uint64_t>(offset), data, bytes);
}

ssize_t swale_take_writev(int fd, const iovec* parts, int count) {
  auto* const write_next = next<decltype(::writev)>(calls::writev);
  const Ours held(fd);
  if (!held && !is_subfile(fd)) return written(fd, write_next(fd, parts, count), -1);
  if (!held) return write_subfile(fd, parts, count);
  const ssize_t bytes = bytes_of(parts, count);
  uint64_t offset = 0;
  if (bytes <= 0) be_real(*held, fd);
  if (bytes < 0) give_back(*held, fd);
  if (bytes <= 0 || !take_place(*held, fd, static_cast<size_t>(bytes), &offset))
    return write_next(fd, parts, count);
  const ssize_t done = put_parts(*held, fd, offset, parts, count, static_cast<size_t>(bytes));
  if (done != bytes) return_place(*held, offset, static_cast<size_t>(bytes), done);
  return done;
}

ssize_t swale_take_pwritev(int fd, const iovec* parts, int count, off_t offset) {
  const Ours held(fd);
  if (!held && is_subfile(fd)) return refuse_subfile(fd, "pwritev", ESPIPE, kNoPlaces);
  const ssize_t bytes = held && offset >= 0 ? bytes_of(parts, count) : 0;
  if (held && bytes <= 0) be_real(*held, fd);
  if (bytes <= 0)
    return written(fd, next<decltype(::pwritev)>(calls::pwritev)(fd, parts, count, offset), offset);
  return put_parts(*held, fd, static_cast<uint64_t>(offset), parts, count, static_cast<size_t>(bytes));
}

// An offset of -1 is the description's own. Flags are the mount's matter.
ssize_t swale_take_pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  if (flags == 0)
    return offset == -1 ? swale_take_writev(fd, parts, count) : swale_take_pwritev(fd, parts, count, offset);
  if (const Held held(fd); held && offset == -1) give_back(*held, fd);
  const ssize_t done = next<decltype(::pwritev2)>(calls::pwritev2)(fd, parts, count, offset, flags);
  return written(fd, done, offset, (flags & (RWF_DSYNC | RWF_SYNC)) != 0);
}

ssize_t swale_take_read(int fd, void* out, size_t bytes) { return read_some(fd, out, bytes); }

// A program that was built with checks: the C library ends one that reads more than it has space for.
ssize_t swale_take_read_chk(int fd, void* out, size_t bytes, size_t space) {
  if (bytes <= space) return read_some(fd, out, bytes);
  return next<ssize_t(int, void*, size_t, size_t)>(calls::__read_chk)(fd, out, bytes, space);
}

ssize_t swale_take_readv(int fd, const iovec* parts, int count) {
  auto* const read_next = next<decltype(::readv)>(calls::readv);
  const Ours held(fd);
  if (!held) return read_next(fd, parts, count);
  return read_on(
      *held, [&](uint64_t place) { return read_vector(*held, fd, parts, count, static_cast<off_t>(place)); },
      [&] { return read_next(fd, parts, count); });
}

ssize_t swale_take_pread(int fd, void* out, size_t bytes, off_t offset) {
  return read_some_at(fd, out, bytes, offset);
}

ssize_t swale_take_pread_chk(int fd, void* out, size_t bytes, off_t offset, size_t space) {
  if (bytes <= space) return read_some_at(fd, out, bytes, offset);
  return next<ssize_t(int, void*, size_t, off_t, size_t)>(calls::__pread_chk)(fd, out, bytes, offset, space);
}

ssize_t swale_take_preadv(int fd, const iovec* parts, int count, off_t offset) {
  const Ours held(fd);
  if (!held) return next<decltype(::preadv)>(calls::preadv)(fd, parts, count, offset);
  return read_vector(*held, fd, parts, count, offset);
}

ssize_t swale_take_preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  if (flags == 0)
    return offset == -1 ? swale_take_readv(fd, parts, count) : swale_take_preadv(fd, parts, count, offset);
  if (const Held held(fd); held && offset == -1) give_back(*held, fd);
  return next<decltype(::preadv2)>(calls::preadv2)(fd, parts, count, offset, flags);
}

off_t swale_take_lseek(int fd, off_t offset, int whence) {
  const Ours held(fd);
  if (!held && is_subfile(fd)) return refuse_seek(fd, offset);
  if (!held) return next<decltype(::lseek)>(calls::lseek)(fd, offset, whence);
  return seek(*held, fd, offset, whence);
}

}  // extern "C"

}  // namespace swale::preload
