// What JobFs alone knows of the ids and modes of a tree.
// Threads: pure functions.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "meta/names/tree.h"

namespace swale::fs {

// In TreeNode::mode of a file: the backing has it. One that has the mark, no bytes in the logs and no file on
// the backing was removed there by others.
inline constexpr uint32_t kOnBacking = 1u << 24;

// The same of a file that is sealed: its bytes do not change. DO NOT CHANGE THESE VALUES: they are on disk.
inline constexpr uint32_t kSealed = 1u << 25;
// It is being sealed or unsealed, by whoever has the turn; nobody: its server was killed meanwhile.
inline constexpr uint32_t kSealChanges = 1u << 26;
// It was unsealed: kernels may read it into their pages, for programs that have it open since it was sealed.
inline constexpr uint32_t kPagesLeft = 1u << 27;
// Times of it were set, and the backing has older ones: of several nodes.
inline constexpr uint32_t kRetimed = 1u << 28;
inline constexpr uint32_t kMayWrite = 0222;

inline constexpr uint32_t kEntriesAsked = 1000;  // of a directory, in one message

// Ids are (server, opening << 40 | number).
inline ino_t inode_of(const meta::FileId& id) { return id.high << 52 ^ id.low; }

inline mode_t mode_of(meta::NodeType type) {
  switch (type) {
    case meta::NodeType::kDirectory:
      return S_IFDIR;
    case meta::NodeType::kLink:
      return S_IFLNK;
    default:
      return S_IFREG;
  }
}

inline constexpr int64_t kSecondNanos = 1'000'000'000;
// Years before 1677 and after 2262 become the first and the last that there are.
inline int64_t nanos_of(const timespec& time) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / kSecondNanos - 1;
  return std::clamp<int64_t>(time.tv_sec, -kMost, kMost) * kSecondNanos + time.tv_nsec;
}
inline timespec timespec_of(int64_t nanos) {
  const int64_t rest = nanos % kSecondNanos;
  const int64_t before = rest < 0 ? 1 : 0;
  return {nanos / kSecondNanos - before, rest + before * kSecondNanos};
}
inline int64_t now_nanos() {
  timespec time = {};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return nanos_of(time);
}

}  // namespace swale::fs
