// PosixRooms: the room that the files of one PosixDevice have made ahead of their writes (File::reserve), and how
// they give it back when the disk is full.
//
// Room is made by fallocate with mode 0, which moves the file's size. KEEP_SIZE would leave the size alone, but then
// each direct write extends the file and waits for the one before it: 0.35 instead of 1.64 GB/s beside a computing
// application (docs/design/storage-io.md). So a job that dies leaves a tail of zeros behind its data. The tail is at
// most a quarter of what the file holds, or kStepBytesMin.
//
//   step = clamp(end / 4, 1 MiB, 256 MiB), and at most 1/256 of the free space; none below 256 KiB
//
// With 16 ranks on one disk at most 1/16 of what was free is room that nobody has written to. Each fallocate waits for
// the direct writes in flight (3 to 5 ms), so steps grow with the file: 24 of them for the first GiB.
//
// Threads: thread-safe. One mutex for all files of the device: room must not be given back between another thread's
// announcement of a write and the write.
// Errors: none. A file system that cannot make room is not asked again; a full one is, at the next step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace swale::io {

// What one file has made. Belongs to the file; guarded by the mutex of its PosixRooms.
struct PosixRoom {
  int fd = -1;
  uint64_t written_end = 0;   // writes up to here were announced, or bytes were there before
  uint64_t reserved_end = 0;  // 0: nothing yet
  bool never = false;         // the file system cannot
};

class PosixRooms {
 public:
  static constexpr uint64_t kStepBytesMin = 1 << 20;
  static constexpr uint64_t kStepBytesMax = 256 << 20;

  // Makes room for writes up to `end` and a step more. `path` is for the log.
  void reserve(PosixRoom& room, uint64_t end, const std::string& path);

  // Cuts off what no announced write needs, of all files. False: there was nothing, now and earlier. (True for an earlier
  // time, too: a write may have failed just before another one made space.)
  bool give_back();

  void truncated(PosixRoom& room, uint64_t size);  // the file's size was set
  void forget(PosixRoom& room);                    // the file is being closed

 private:
  Mutex mutex_;                                       // guards also the rooms
  std::vector<PosixRoom*> rooms_ GUARDED_BY(mutex_);  // those that may have something to give back
  bool given_back_ GUARDED_BY(mutex_) = false;
};

}  // namespace swale::io
