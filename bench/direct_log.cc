#include "bench/direct_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/arguments.h"

namespace swale::bench {

DirectLog::DirectLog(const std::string& path, Cache cache, uint64_t bytes_expected)
    : path_(path), cache_(cache), reserved_(bytes_expected == 0 ? UINT64_MAX : 0) {
  const int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  if (cache == Cache::kDirect) fd_ = ::open(path.c_str(), flags | O_DIRECT, 0644);
  direct_ = fd_ >= 0;
  if (fd_ < 0) fd_ = ::open(path.c_str(), flags, 0644);
  if (fd_ < 0) die(fmt::format("open {}: {}", path, std::strerror(errno)));
  void* arena =
      ::mmap(nullptr, kBufferBytes * kBuffers, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (arena == MAP_FAILED) die("no memory");
  ::madvise(arena, kBufferBytes * kBuffers, MADV_HUGEPAGE);
  arena_ = static_cast<char*>(arena);
  for (size_t i = 0; i < kBuffers; ++i) {
    std::memset(arena_ + i * kBufferBytes, static_cast<int>(i * 37 + 1), kBufferBytes);
    free_.push_back(arena_ + i * kBufferBytes);
  }
  current_ = free_.back();
  free_.pop_back();
  const size_t writers = cache == Cache::kDirect ? kWriters : 1;
  for (size_t i = 0; i < writers; ++i) writers_.emplace_back([this] { write_jobs(); });
}

DirectLog::~DirectLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& writer : writers_) writer.join();
  ::munmap(arena_, kBufferBytes * kBuffers);
  if (fd_ >= 0) ::close(fd_);
}

void DirectLog::append_across(const char* data, size_t bytes) {
  while (bytes > 0) {
    const size_t part = std::min(bytes, kBufferBytes - fill_);
    std::memcpy(current_ + fill_, data, part);
    fill_ += part;
    data += part;
    bytes -= part;
    if (fill_ == kBufferBytes) hand_over(kBufferBytes);
  }
}

void DirectLog::append_buffer() { hand_over(kBufferBytes); }

void DirectLog::hand_over(size_t bytes) {
  if (cache_ == Cache::kDirect && offset_ + bytes > reserved_) {
    ::posix_fallocate(fd_, static_cast<off_t>(reserved_), static_cast<off_t>(kReserveBytes));
    reserved_ += kReserveBytes;
  }
  std::unique_lock lock(mutex_);
  jobs_.push_back({current_, bytes, offset_});
  offset_ += bytes;
  fill_ = 0;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !free_.empty(); });
  current_ = free_.back();
  free_.pop_back();
}

void DirectLog::write_jobs() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    ++writing_;
    lock.unlock();
    write_fully(job);
    lock.lock();
    --writing_;
    free_.push_back(job.buffer);
    changed_.notify_all();
  }
}

void DirectLog::write_fully(const Job& job) {
  for (size_t done = 0; done < job.bytes;) {
    const ssize_t wrote =
        ::pwrite(fd_, job.buffer + done, job.bytes - done, static_cast<off_t>(job.offset + done));
    if (wrote <= 0) die(fmt::format("write {}: {}", path_, std::strerror(errno)));
    done += static_cast<size_t>(wrote);
  }
}

void DirectLog::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && writing_ == 0; });
}

void DirectLog::sync() {
  drain();
  if (::fdatasync(fd_) != 0) die(fmt::format("fdatasync {}: {}", path_, std::strerror(errno)));
}

void DirectLog::close() {
  const uint64_t length = offset_ + fill_;
  if (fill_ > 0) hand_over((fill_ + 4095) / 4096 * 4096);
  drain();
  if (::ftruncate(fd_, static_cast<off_t>(length)) != 0) die(fmt::format("ftruncate {}", path_));
  sync();
  ::close(fd_);
  fd_ = -1;
}

}  // namespace swale::bench
