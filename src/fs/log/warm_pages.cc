#include "fs/log/warm_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "base/contain.h"
#include "base/log.h"
#include "fs/log/map_log.h"

namespace swale::fs {
namespace {

#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;  // Linux 6.1; not in older headers
#endif

// For other programs' files.
bool leaves_space(const io::File& file) {
  struct statvfs space = {};
  return ::fstatvfs(file.descriptor(), &space) == 0 && space.f_bavail >= space.f_blocks / 4;
}

bool punch(const io::File& file, uint64_t begin, uint64_t bytes) {
  return ::fallocate(file.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                     static_cast<off_t>(bytes)) == 0;
}

}  // namespace

// The kernel makes a large page of a small one and the hole behind it.
bool ask_for_large_pages(const io::File& file, char* memory, uint64_t begin, uint64_t bytes) noexcept {
  for (uint64_t at = begin; at < begin + bytes; at += kLargePageBytes)
    if (::fallocate(file.descriptor(), 0, static_cast<off_t>(at), kPageBytes) != 0) return false;
  return ::madvise(memory + begin, bytes, kCollapse) == 0;
}

WarmPages::~WarmPages() {
  if (memory_ != nullptr) ::munmap(memory_, pages_max_ * kLargePageBytes);
}

// Without its name no process comes to it, and no successor has to remove it.
void WarmPages::open() noexcept {
  const Status opened = contain([&]() -> Status {
    static_cast<void>(folder_.remove(path_));  // of a server that was killed in between
    SWALE_ASSIGN_OR_RETURN(auto file, folder_.open(path_, io::OpenMode::kCreate));
    SWALE_RETURN_IF_ERROR(folder_.remove(path_));
    const uint64_t bytes = pages_max_ * kLargePageBytes;
    SWALE_RETURN_IF_ERROR(file->truncate(bytes));
    void* const memory = map_log(file->descriptor(), bytes, PROT_READ | PROT_WRITE);
    if (memory == nullptr) return errno_status(errno, path_ + ": mmap");
    memory_ = static_cast<char*>(memory);
    file_ = std::move(file);
    return {};
  });
  if (!opened.ok()) log_debug("no memory is made ready in large pages: {}", opened.message());
}

bool WarmPages::add() noexcept {
  if (file_ == nullptr || fails_ || pages_ == pages_max_ || !leaves_space(*file_)) return false;
  const uint64_t begin = pages_ * kLargePageBytes;
  fails_ = !ask_for_large_pages(*file_, memory_, begin, kLargePageBytes);
  if (fails_)
    static_cast<void>(punch(*file_, begin, kLargePageBytes));
  else
    ++pages_;
  return !fails_;
}

bool WarmPages::give_back() noexcept {
  if (pages_ == 0 || !punch(*file_, (pages_ - 1) * kLargePageBytes, kLargePageBytes)) return false;
  --pages_;
  fails_ = false;
  return true;
}

}  // namespace swale::fs
