#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>

#include "base/log.h"

namespace swale::io {
namespace {

constexpr size_t kPageBytes = 4096;

// The alignment that direct transfers need in offset, length and memory; 0: the kernel allows none for this
// file.
size_t kernel_alignment([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN
  struct statx attributes;
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &attributes) == 0 &&
      (attributes.stx_mask & STATX_DIOALIGN) != 0) {
    if (attributes.stx_dio_offset_align == 0) return 0;
    return std::max(attributes.stx_dio_offset_align, attributes.stx_dio_mem_align);
  }
#endif
  return kPageBytes;
}

bool same_file(int a, int b) {
  struct stat first;
  struct stat second;
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

int open_flags(OpenMode mode) {
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY | O_CLOEXEC;
    case OpenMode::kReadWrite:
      return O_RDWR | O_CLOEXEC;
    case OpenMode::kOpenOrCreate:
      return O_RDWR | O_CREAT | O_CLOEXEC;
    case OpenMode::kCreate:
      return O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  }
  return O_RDONLY | O_CLOEXEC;
}

Result<size_t> PosixFile::pread(uint64_t offset, MutableBytes out) {
  size_t got = 0;
  while (got < out.size()) {
    const size_t missing = out.size() - got;
    const Route way = route(Access::kRead, offset + got, out.data() + got, missing);
    const ssize_t n = continued(
        [&] { return ::pread(way.fd, out.data() + got, missing, static_cast<off_t>(offset + got)); });
    if (n < 0 && way.direct && gives_up_direct(errno)) continue;
    if (n < 0) return failure(Access::kRead, errno, offset, out.size());
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

bool PosixFile::read_resident(uint64_t offset, MutableBytes out) {
  if (tells_resident_.load(std::memory_order_relaxed) == false) return false;
  if (route(Access::kRead, offset, out.data(), out.size()).direct) return false;
  const iovec range{out.data(), out.size()};
  const ssize_t got =
      continued([&] { return ::preadv2(fd_.get(), &range, 1, static_cast<off_t>(offset), RWF_NOWAIT); });
  if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)) tells_resident_ = false;
  return got >= 0 && static_cast<size_t>(got) == out.size();
}

// A file system that ignores the advice reads one range after the other, as without it.
void PosixFile::announce(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;  // which the system takes for all that follow
  static_cast<void>(
      ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED));
}

void PosixFile::read_many(std::span<ReadRequest> requests) {
  if (requests.size() > 1) {
    for (const ReadRequest& request : requests) {
      if (route(Access::kRead, request.offset, request.out.data(), request.out.size()).direct) continue;
      announce(request.offset, request.out.size());
    }
  }
  File::read_many(requests);
}

Status PosixFile::pwrite(uint64_t offset, Bytes data) {
  size_t done = 0;
  bool made_space = false;
  while (done < data.size()) {
    const size_t missing = data.size() - done;
    const Route way = route(Access::kWrite, offset + done, data.data() + done, missing);
    const ssize_t n = continued(
        [&] { return ::pwrite(way.fd, data.data() + done, missing, static_cast<off_t>(offset + done)); });
    if (n < 0 && way.direct && gives_up_direct(errno)) continue;
    if (n < 0 && !made_space && makes_space(errno)) {
      made_space = true;
      continue;
    }
    if (n < 0) return failure(Access::kWrite, errno, offset, data.size());
    done += static_cast<size_t>(n);
  }
  return {};
}

Status PosixFile::sync() {
  // One of the two descriptors is enough: fdatasync makes the file durable.
  if (continued([&] { return ::fdatasync(fd_.get()); }) == 0) return {};
  return sync_failure(errno);
}

Result<uint64_t> PosixFile::size() {
  struct stat attributes;
  if (::fstat(fd_.get(), &attributes) != 0) return errno_status(errno, path_ + ": asking for the size");
  return static_cast<uint64_t>(attributes.st_size);
}

Status PosixFile::truncate(uint64_t size) {
  if (continued([&] { return ::ftruncate(fd_.get(), static_cast<off_t>(size)); }) != 0)
    return errno_status(errno, fmt::format("{}: setting the size to {}", path_, size));
  rooms_->truncated(room_, size);
  return {};
}

// A file system that cannot make holes keeps the bytes, which is allowed: the call is advice.
void PosixFile::discard(uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || offset > static_cast<uint64_t>(INT64_MAX) ||
      bytes > static_cast<uint64_t>(INT64_MAX) - offset)
    return;
  static_cast<void>(continued([&] {
    return ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes));
  }));
}

uint64_t PosixFile::next_data(uint64_t offset) {
  if (offset > static_cast<uint64_t>(INT64_MAX)) return offset;
  // Moves the descriptor's own position, which nothing uses.
  const off_t next = ::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (next >= 0) return static_cast<uint64_t>(next);
  return errno == ENXIO ? static_cast<uint64_t>(INT64_MAX) : offset;
}

void PosixFile::prefer_direct() {
  if (policy_ != PosixOptions::Direct::kAuto) return;
  const Status opened = open_direct();
  if (!opened.ok()) log_debug("{}", opened.message());
}

Status PosixFile::open_direct() {
  if (direct_.valid()) return {};
  const int flags = open_flags(mode_) & ~(O_CREAT | O_EXCL);
  // A link can only lead to another file by now.
  Descriptor direct(continued([&] {
    return ::openat(directory_of(place_), place_.rest.c_str(), flags | O_DIRECT | O_NONBLOCK | O_NOFOLLOW);
  }));
  if (!direct.valid()) return errno_status(errno, path_ + ": opening it past the page cache (O_DIRECT)");
  // By name, as /proc may be missing. So check that the name still leads to this file.
  if (!same_file(fd_.get(), direct.get())) {
    return errno_status(ESTALE, path_ + ": opening it a second time, past the page cache");
  }
  if (::fcntl(direct.get(), F_SETFL, flags | O_DIRECT) != 0)
    return errno_status(errno, path_ + ": opening it past the page cache (O_DIRECT)");
  const size_t alignment = kernel_alignment(direct.get());
  if (alignment == 0) {
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: this file cannot be read or written past the page cache", path_);
  }
  direct_ = std::move(direct);
  read_alignment_ = alignment;
  write_alignment_ = std::max(alignment, kPageBytes);
  direct_usable_.store(true);
  return {};
}

size_t PosixFile::direct_alignment() const { return direct_usable_.load() ? read_alignment_ : 0; }

PosixFile::Route PosixFile::route(Access access, uint64_t offset, const char* memory, size_t bytes) const {
  if (!direct_usable_.load(std::memory_order_relaxed)) return {fd_.get(), false};
  const size_t alignment = access == Access::kRead ? read_alignment_ : write_alignment_;
  const bool aligned = (offset | bytes | reinterpret_cast<uintptr_t>(memory)) % alignment == 0;
  return {aligned ? direct_.get() : fd_.get(), aligned};
}

bool PosixFile::gives_up_direct(int error_number) {
  if (error_number != EINVAL || policy_ == PosixOptions::Direct::kAlways) return false;
  if (direct_usable_.exchange(false)) {
    log_info("{}: its file system refuses aligned direct transfers; using the page cache", path_);
  }
  return true;
}

Status PosixFile::failure(Access access, int error_number, uint64_t offset, size_t bytes) const {
  return errno_status(error_number,
                      fmt::format("{}: {} {} bytes at offset {}", path_,
                                  access == Access::kRead ? "reading" : "writing", bytes, offset));
}

Status PosixFile::sync_failure(int error_number) const {
  return errno_status(error_number, path_ + ": syncing");
}

}  // namespace swale::io
