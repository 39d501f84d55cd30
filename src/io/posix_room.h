// PosixRooms: the space ("room") that the files of one PosixDevice have allocated ahead of their writes
// (File::reserve). Frees it when the disk is full.
//
// Room is allocated by fallocate with mode 0, which moves the file's size. KEEP_SIZE would keep the size, but
// then each direct write extends the file and waits for the one before it: 0.35 instead of 1.64 GB/s while
// the application computes (docs/design/storage-io.md). So a job that dies leaves a tail of zeros after its
// data. The tail is at most a quarter of the file's data, or kStepBytesMin.
//
//   step = clamp(end / 4, 1 MiB, 256 MiB), and at most 1/256 of the free space; none below 256 KiB
//
// With 16 ranks on one disk, unused room is at most 1/16 of the free space. Each fallocate waits for the
// direct writes in flight (3 to 5 ms), so steps grow with the file: 24 of them for the first GiB.
//
// Threads: thread-safe. One mutex for all files of the device: room must not be freed between another
// thread's announcement of a write and the write.
// Errors: none. A file system that cannot allocate room is not asked again; a full one is asked at the next
// step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace swale::io {

// The room of one file. Belongs to the file; guarded by the mutex of its PosixRooms.
struct PosixRoom {
  int fd = -1;
  uint64_t written_end = 0;   // the end of announced writes and of earlier content
  uint64_t reserved_end = 0;  // 0: nothing yet
  bool never = false;         // the file system cannot
};

class PosixRooms {
 public:
  static constexpr uint64_t kStepBytesMin = 1 << 20;
  static constexpr uint64_t kStepBytesMax = 256 << 20;

  // Allocates room for writes up to `end` and one step more. `path` is for the log.
  void reserve(PosixRoom& room, uint64_t end, const std::string& path);

  // Cuts off, in all files, the room that no announced write needs. False: neither this call nor an earlier
  // one freed any. (Earlier ones count, as a write may have failed just before another thread's call freed
  // space.)
  bool give_back();

  void truncated(PosixRoom& room, uint64_t size);  // the file's size was set
  void forget(PosixRoom& room);                    // the file is being closed

 private:
  Mutex mutex_;                                       // guards also the rooms
  std::vector<PosixRoom*> rooms_ GUARDED_BY(mutex_);  // those that may have room to free
  bool given_back_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::io
