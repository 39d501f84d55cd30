// DirectLog: the fastest plain way to append to a file, as the measure for all others: O_DIRECT writes of 2
// MiB from touched buffers, four in flight, into space reserved ahead. With `Cache::kBuffered` one write()
// after the other.
//
// Threads: one appends; four write. Errors: die().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace swale::bench {

class DirectLog {
 public:
  enum class Cache { kDirect, kBuffered };

  DirectLog(const std::string& path, Cache cache, uint64_t bytes_expected);
  ~DirectLog();

  // False if the file system knows no O_DIRECT; everything else works all the same.
  bool direct() const { return direct_; }

  // Appends the bytes; larger than any buffer is fine.
  void append(const void* data, size_t bytes) {
    if (bytes <= kBufferBytes - fill_) {
      __builtin_memcpy(current_ + fill_, data, bytes);
      fill_ += bytes;
    } else {
      append_across(static_cast<const char*>(data), bytes);
    }
  }
  // Appends a full buffer of whatever it holds; requires that nothing else was appended.
  void append_buffer();
  void sync();   // everything appended is durable; only full pages before the end (direct)
  void close();  // sync, and the file's exact length

 private:
  static constexpr size_t kBufferBytes = size_t{2} << 20;
  static constexpr size_t kBuffers = 8;
  static constexpr size_t kWriters = 4;
  static constexpr uint64_t kReserveBytes = uint64_t{64} << 20;

  struct Job {
    char* buffer = nullptr;
    size_t bytes = 0;
    uint64_t offset = 0;
  };

  void append_across(const char* data, size_t bytes);
  void hand_over(size_t bytes);
  void write_jobs();
  void write_fully(const Job& job);
  void drain();

  const std::string path_;
  const Cache cache_;
  bool direct_ = false;
  int fd_ = -1;
  char* arena_ = nullptr;
  char* current_ = nullptr;
  size_t fill_ = 0;
  uint64_t offset_ = 0;
  uint64_t reserved_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<char*> free_;
  size_t writing_ = 0;
  bool stop_ = false;
  std::vector<std::thread> writers_;
};

}  // namespace swale::bench
