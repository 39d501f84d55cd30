// map_log: a log's file in memory, so that a large page of the file is one of the mapping: one fault, and one
// word of the processor's tables, in the place of 512.
//
// Threads: any. Errors: nullptr, with errno. Needs: libc only (the client's half goes into a preload
// library).
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "fs/log/log_format.h"

namespace swale::fs {

inline void* map_log(int fd, uint64_t bytes, int protection) {
  // Addresses for it and a large page more, of which the ends go back.
  const uint64_t wanted = bytes + kLargePageBytes;
  void* const found = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(found);
  const uint64_t beyond = reinterpret_cast<uint64_t>(begin) % kLargePageBytes;
  char* const at = beyond == 0 ? begin : begin + (kLargePageBytes - beyond);
  void* const log = ::mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (log == MAP_FAILED) {
    ::munmap(begin, wanted);
    return nullptr;
  }
  const uint64_t end = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (at != begin) ::munmap(begin, static_cast<uint64_t>(at - begin));
  ::munmap(at + end, wanted - static_cast<uint64_t>(at - begin) - end);
  return log;
}

}  // namespace swale::fs
