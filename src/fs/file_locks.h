// FileLocks: what a mount asks for locks of programs (fcntl, OFD and flock) where the kernel's own do not
// suffice, because processes of other nodes use the same files.
//
// The kernel says who an owner is by a number: a process's table of descriptors for fcntl, an open file for
// OFD and flock; it does not say which of the two. Locks of fcntl and OFD exclude each other, and those of
// flock among themselves, as in Linux.
//
// A lock ends when its owner unlocks it, at a close by its owner (end_owner), with the open file through
// which it was taken (FileSystem::release), and with its node.
//
// Threads: any. `answered` is called once, by any thread, also before set() returns; it may not call back.
// Errors: errnos: EAGAIN (taken by others), EDEADLK (the waits for one file's ranges make a cycle), ENOLCK
// (too many), EINTR, EIO (the node that keeps the file's locks does not answer: the range is not locked).
#pragma once

#include <cstdint>
#include <functional>

namespace swale::fs {

class OpenFile;

enum class LockKind : uint8_t { kRange = 1, kWhole = 2 };  // of fcntl and OFD; of flock
enum class LockType : uint8_t { kNone = 0, kRead = 1, kWrite = 2 };

inline constexpr uint64_t kLockEnd = uint64_t{1} << 63;

struct FileLock {
  LockKind kind = LockKind::kRange;
  LockType type = LockType::kNone;  // kNone: it is unlocked
  uint64_t begin = 0;
  uint64_t end = kLockEnd;  // of kWhole: all
  uint64_t owner = 0;
  uint32_t pid = 0;  // 0: a process of another node
  friend bool operator==(const FileLock&, const FileLock&) = default;
};

class FileLocks {
 public:
  using Answered = std::function<void(int)>;

  virtual ~FileLocks() = default;

  // A number for one call of set(), which must follow, and for interrupt() before, during or after that.
  virtual uint64_t begin(Answered answered) = 0;
  // `waits`: until others have unlocked it. Unlocking commits what this node has written first.
  virtual void set(OpenFile& file, const FileLock& wanted, bool waits, uint64_t request) = 0;
  // The request is answered soon: by EINTR, if it still waits.
  virtual void interrupt(uint64_t request) = 0;
  // A lock that is in the way of this one; its type is kNone if there is none.
  virtual int get(OpenFile& file, const FileLock& wanted, FileLock* in_the_way) = 0;
  // Locks of fcntl end at each close of a descriptor of the file by their owner.
  virtual int end_owner(OpenFile& file, uint64_t owner) = 0;
  // Answers what waits, by ENOTCONN; when it returns, nothing is answered any more.
  virtual void end_waits() = 0;
};

}  // namespace swale::fs
