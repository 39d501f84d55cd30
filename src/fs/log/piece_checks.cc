#include "fs/log/piece_checks.h"

#include <algorithm>
#include <array>

#include "base/copy_past_caches.h"
#include "base/crc32c.h"
#include "base/crc32c_join.h"

namespace swale::fs {
namespace {

// Joining one costs as much as a checksum of so many bytes from memory. Longer than 1: no word of one is 0.
constexpr uint32_t kPartBytesMin = 2048;
static_assert(kBlockBytes == 1 << 16);  // Part's places have 16 bits

constexpr uint64_t blocks_of(uint32_t chunk_bytes) { return (chunk_bytes - 1) / kBlockBytes + uint64_t{1}; }

}  // namespace

PieceChecks::PieceChecks(uint32_t slots, uint32_t chunk_bytes)
    : blocks_(blocks_of(chunk_bytes)), parts_(new std::atomic<uint64_t>[slots * blocks_ * kPartsMax]()) {}

PieceCopy PieceChecks::copier() noexcept {
  return {[](void* self, uint32_t slot, uint32_t place, char* to, const char* from, uint32_t bytes) {
            static_cast<PieceChecks*>(self)->copy(slot, place, to, from, bytes);
          },
          this};
}

void PieceChecks::copy(uint32_t slot, uint32_t place, char* to, const char* from, uint32_t bytes) noexcept {
  while (bytes > 0) {
    const uint32_t index = place / kBlockBytes, begin = place % kBlockBytes;
    const uint32_t length = std::min(bytes, kBlockBytes - begin);
    if (length >= kPartBytesMin) note(slot, index, {begin, length, crc32c(Bytes(from, length))});
    copy_past_caches(to, from, length);
    place += length, to += length, from += length, bytes -= length;
  }
}

void PieceChecks::note(uint32_t slot, uint32_t index, const Part& part) noexcept {
  std::atomic<uint64_t>* const parts = parts_of(slot, index);
  for (uint32_t i = 0; i < kPartsMax; ++i) {
    uint64_t none = 0;
    if (parts[i].compare_exchange_strong(none, part.packed(), std::memory_order_relaxed)) return;
  }
}

uint32_t PieceChecks::of_block(uint32_t slot, uint64_t index, Bytes block) const {
  const std::atomic<uint64_t>* const words = parts_of(slot, index);
  std::array<Part, kPartsMax> parts;
  uint32_t count = 0;
  for (uint64_t word = 0; count < kPartsMax && (word = words[count].load(std::memory_order_relaxed)) != 0;)
    parts[count++] = Part::of(word);
  std::sort(parts.begin(), parts.begin() + count,
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  uint32_t crc = 0;
  size_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Part& part = parts[i];
    if (part.begin < at || part.length > block.size() - part.begin) return crc32c(block);  // garbage
    crc = crc32c_extend(crc, block.substr(at, part.begin - at));
    crc = crc32c_join(crc, part.crc, part.length);
    at = part.begin + part.length;
  }
  return crc32c_extend(crc, block.substr(at));
}

void PieceChecks::forget(uint32_t slot) noexcept {
  std::atomic<uint64_t>* const parts = parts_of(slot, 0);
  for (uint64_t i = 0; i < blocks_ * kPartsMax; ++i)
    if (parts[i].load(std::memory_order_relaxed) != 0) parts[i].store(0, std::memory_order_relaxed);
}

}  // namespace swale::fs
