// Mapping: a file's pages as memory, to read what is in the page cache without a system call.
//
//   resident(offset, bytes) ─► the bytes, if all their pages are in memory; else nullptr: then read them
//
// Touching a page that is not in memory would stop the thread until the device has delivered it, one page at
// a time. So Mapping queries residency (mincore) by regions of kRegionBytes and trusts the result for
// kFreshNanos: a busy reader makes one system call per region and second. The kernel mostly evicts many pages
// together. So if no region was queried for kCheckNanos, the requested region is queried again, and if pages
// are gone, all earlier results become invalid. An eviction that goes unnoticed costs a page fault, nothing
// worse.
//
// Only files of local file systems are mapped, and only if the kernel tells this process what is resident (it
// does for owners and for processes that may write the file). If the device cannot deliver a page, or another
// program truncates it away after resident() has found it, the access raises SIGBUS: no call can return such
// an error. Swale never truncates what it has committed. Programs that must survive failing devices should
// switch mapping off.
//
// Threads: all calls are thread-safe. The file may be closed, grown or renamed while it is mapped.
// Limits: the range given to map; 8 bytes of memory per region.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "io/device.h"

namespace swale::io {

// True for ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs and overlays; false also if the file system is
// unknown.
bool on_local_file_system(const File& file);

class Mapping {
 public:
  static constexpr size_t kRegionBytes = 128 * kKiB;
  static constexpr Nanos kFreshNanos = 1'000'000'000;
  static constexpr Nanos kCheckNanos = 1'000'000;

  // Maps the first `bytes` bytes of the file. Null if it cannot or should not be mapped: then read instead.
  static std::unique_ptr<Mapping> map(const File& file, uint64_t bytes);

  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // `now`: the time of a monotonic clock, the same clock in all calls.
  const char* resident(uint64_t offset, size_t bytes, Nanos now) const {
    if (bytes == 0 || offset > bytes_ || bytes > bytes_ - offset) return nullptr;
    const uint64_t last = offset + bytes - 1;
    for (uint64_t region = offset / kRegionBytes; region <= last / kRegionBytes; ++region) {
      const uint64_t begin = region * kRegionBytes;
      const uint64_t first_page = offset > begin ? (offset - begin) / kPageBytes : 0;
      const uint64_t last_page = last - begin < kRegionBytes ? (last - begin) / kPageBytes : kRegionPages - 1;
      const uint32_t wanted = ~uint32_t{0} >> (kRegionPages - 1 - last_page) & ~uint32_t{0} << first_page;
      if ((pages_of(region, now) & wanted) != wanted) return nullptr;
    }
    const bool due = now - looked_at_.load(std::memory_order_relaxed) >= kCheckNanos;
    return !due || still_there(offset / kRegionBytes, now) ? data_ + offset : nullptr;
  }

  uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }  // system calls, for tests

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kRegionPages = kRegionBytes / kPageBytes;
  static_assert(kRegionPages == 32, "one bit per page");

  // From the top: 8 bits, the generation of results; 24 bits, the time of the query in units of 2^kStampShift
  // ns, shifted so that 0 (never queried) is not fresh; a bit per page.
  using Region = std::atomic<uint64_t>;
  static constexpr int kStampShift = 26;  // 67 ms
  static constexpr Nanos kFreshUnits = kFreshNanos >> kStampShift;

  Mapping(const char* data, uint64_t bytes, Region* regions, size_t region_count, File::Residency residency)
      : data_(data),
        bytes_(bytes),
        regions_(regions),
        region_count_(region_count),
        residency_(std::move(residency)) {}

  static constexpr uint32_t kStampMask = 0xffffff;

  uint32_t stamp_of(Nanos now) const {
    const auto units = static_cast<uint32_t>((now >> kStampShift) + kFreshUnits) & kStampMask;
    return generation_.load(std::memory_order_relaxed) << 24 | units;
  }
  uint32_t pages_of(uint64_t region, Nanos now) const {
    const uint64_t seen = regions_[region].load(std::memory_order_relaxed);
    const uint32_t age = stamp_of(now) - static_cast<uint32_t>(seen >> 32);
    if (age < kFreshUnits) [[likely]]
      return static_cast<uint32_t>(seen);
    return look(region, now);
  }
  uint32_t look(uint64_t region, Nanos now) const;
  bool still_there(uint64_t region, Nanos now) const;

  const char* const data_;
  const uint64_t bytes_;
  Region* const regions_;  // zero pages until they are used
  const size_t region_count_;
  const File::Residency residency_;  // set by tests; empty: ask the kernel
  mutable std::atomic<uint32_t> generation_{0};
  mutable std::atomic<Nanos> looked_at_{0};
  mutable std::atomic<uint64_t> looks_{0};
};

}  // namespace swale::io
