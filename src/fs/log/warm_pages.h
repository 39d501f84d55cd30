// WarmPages: large pages that no log has yet, so that a slot gets large ones at the price of their zeros.
//
// Where a virtual machine's host has to find the memory first, a large page costs ten times as much. So the
// server finds some when nobody writes, and keeps them in a file without a name. Who wants one for a log
// gives one back, and asks the kernel, which hands out first what it got last.
//
// Threads: one at a time. Errors: none: without large pages there are none here. Memory: bytes(); it goes
// with the process, also when that is killed.
#pragma once

#include <memory>
#include <string>

#include "fs/log/log_format.h"
#include "io/device.h"

namespace swale::fs {

inline constexpr char kWarmName[] = "warm";  // in the folder of logs; it has no name while it is used

// That begin in a slot and end before its last page.
constexpr uint64_t large_pages_of(uint64_t chunk_bytes) {
  return (chunk_bytes - kPageBytes) / kLargePageBytes;
}

class WarmPages {
 public:
  // In a folder of the node's memory file system, at most so many bytes. The device must outlive it.
  WarmPages(io::Device& folder, std::string path, uint64_t bytes_max)
      : folder_(folder), path_(std::move(path)), pages_max_(bytes_max / kLargePageBytes) {}
  ~WarmPages();
  WarmPages(const WarmPages&) = delete;
  WarmPages& operator=(const WarmPages&) = delete;

  // Its file: with the server, not when descriptors have become few. Without it there are no pages.
  void open() noexcept;
  // One more: 0.4 to 4 ms. False: there is none, or there are enough; nothing has changed.
  bool add() noexcept;
  // One less. False: there is none.
  bool give_back() noexcept;
  uint64_t count() const { return pages_; }
  uint64_t bytes() const { return pages_ * kLargePageBytes; }

 private:
  io::Device& folder_;
  const std::string path_;
  const uint64_t pages_max_;
  std::unique_ptr<io::File> file_;
  char* memory_ = nullptr;
  uint64_t pages_ = 0;
  bool fails_ = false;  // there was none: no more questions until one was given back
};

// From a place in a file that is mapped there and has no memory on: makes it a large page, if the kernel has
// one, whatever is set for all files of the system.
bool ask_for_large_pages(const io::File& file, char* memory, uint64_t begin, uint64_t bytes) noexcept;

}  // namespace swale::fs
