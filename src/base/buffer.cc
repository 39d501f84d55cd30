#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>

namespace swale {

Result<Buffer> Buffer::allocate(size_t bytes, HugePages huge_pages) {
  constexpr size_t kCacheLineBytes = 64;
  if (bytes == 0) return Buffer();

  const bool huge = huge_pages == HugePages::kAdvise && bytes >= kHugePageBytes;
  const size_t alignment = huge ? kHugePageBytes : bytes >= kPageBytes ? kPageBytes : kCacheLineBytes;
  void* data = nullptr;
  if (bytes > kBytesMax || posix_memalign(&data, alignment, bytes) != 0) {
    return error(
        Code::kResourceExhausted, Scope::kOperation,
        "allocating {} bytes: the operating system has no such block left; reduce the memory options, or "
        "run fewer processes per node",
        bytes);
  }
#ifdef MADV_HUGEPAGE
  // Only advice: kernels without huge pages refuse it, and the buffer works all the same. A tail smaller than
  // a huge page is left out, as other allocations may share its page.
  if (huge) madvise(data, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
#endif
  return Buffer(static_cast<char*>(data), bytes);
}

Buffer::~Buffer() { std::free(data_); }

void Buffer::touch() {
#ifdef MADV_POPULATE_WRITE
  // One system call; and no page is first mapped to the zero page and then replaced.
  const size_t whole = size_ / kPageBytes * kPageBytes;
  if (whole != 0 && madvise(data_, whole, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (size_t offset = 0; offset < size_; offset += kPageBytes) {
    volatile char* byte = data_ + offset;
    *byte = *byte;
  }
}

}  // namespace swale
