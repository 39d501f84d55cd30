// Buffer: an owned block of memory for I/O and for pools, allocated once at setup.
//
// Page-aligned from one page upwards (O_DIRECT needs it), cache-line-aligned below. Its content is undefined.
//
// Threads: none of its own; the bytes are the owner's business.
// Invariants: size() == 0 exactly if data() == nullptr.
// Limits: kBytesMax; a larger request is an arithmetic mistake and is refused without asking the system.
#pragma once

#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"

namespace swale {

// Whether to ask the kernel for huge pages (for blocks of at least one): fewer TLB misses for random access,
// but the first touch of any byte of a huge page takes the memory of the whole page.
enum class HugePages { kNo, kAdvise };

class Buffer {
 public:
  static constexpr size_t kPageBytes = 4 * kKiB;
  static constexpr size_t kHugePageBytes = 2 * kMiB;
  static constexpr size_t kBytesMax = 512 * kGiB;

  Buffer() = default;
  // kResourceExhausted if the operating system cannot provide it. Reserve in a MemoryBudget first.
  static Result<Buffer> allocate(size_t bytes, HugePages huge_pages = HugePages::kNo);
  ~Buffer();

  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  MutableBytes span() { return {data_, size_}; }
  Bytes bytes() const { return {data_, size_}; }

  // Makes the kernel back every page now, so that no page fault occurs later in a hot path. Keeps the
  // content.
  void touch();

 private:
  Buffer(char* data, size_t size) : data_(data), size_(size) {}

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace swale
