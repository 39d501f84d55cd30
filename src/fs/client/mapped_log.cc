#include "fs/client/mapped_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

namespace swale::fs {

std::shared_ptr<const MappedLog> MappedLog::open(const std::string& path) {
  std::shared_ptr<MappedLog> made(new MappedLog());
  made->file_ = io::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat found;
  if (!made->file_.valid() || ::fstat(made->file_.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & 077) != 0 || found.st_size <= 0)
    return nullptr;
  const auto bytes = static_cast<uint64_t>(found.st_size);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, made->file_.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  made->memory_ = memory;
  made->bytes_ = bytes;
  return made;
}

MappedLog::~MappedLog() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

bool MappedLog::is_at(const std::string& path) const {
  struct stat mine, there;
  return ::fstat(file_.get(), &mine) == 0 && ::stat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

bool MappedLog::has_word(uint64_t at, uint64_t expected) const {
  if (at % sizeof(uint64_t) != 0 || at >= bytes_ || bytes_ - at < sizeof(uint64_t)) return false;
  const auto* const word =
      reinterpret_cast<const std::atomic<uint64_t>*>(static_cast<const char*>(memory_) + at);
  return word->load(std::memory_order_seq_cst) == expected;
}

bool MappedLog::read(uint64_t at, MutableBytes out) const {
  while (!out.empty()) {
    const ssize_t got =
        io::continued([&] { return ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at)); });
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    at += static_cast<uint64_t>(got);
  }
  return true;
}

}  // namespace swale::fs
