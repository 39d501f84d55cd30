// LogWriter: appends a process's writes to its log (log_format.h). Plain memory operations: a write makes no
// system call, takes no lock and allocates nothing, but for one futex call for each chunk.
//
// Threads: write() by any thread, and by signal handlers that interrupt a write(). A handler that leaves a
// write() by longjmp, or a thread cancelled in one, pins that chunk until the process ends.
// A child of fork has no log: its writes fail with ECHILD until it attaches to its own. (A child of vfork
// shares its parent's memory, and its log.)
// What a kill leaves: pieces of up to kPieceBytesMax are there as a whole or not at all; a longer write is
// several pieces, in order.
// Errors: negative errno. EIO: the server of the node is gone or silent (LogTrouble says which); ECHILD;
// EFBIG beyond 2^63; EUCLEAN: the log's head is not one; else what the server has refused writes with
// (ENOSPC, EDQUOT). Nothing waits for longer than the server has set.
// Needs: libc only: no C++ run time, exceptions, threads or UCX (the target swale_fs_log_alone links it
// without any).
// Limits: the server's. Addresses: the whole log is mapped, reserved or not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/log/log_format.h"

namespace swale::fs {

// Why a call failed: one line, cut off if it is too long.
struct LogTrouble {
  char text[384] = "";
};

// A log by descriptors, which stay the caller's. `folder`: where its server can be looked for; if this
// process sees no such folder, a server that is gone is noticed as a silent one.
struct LogFiles {
  int log = -1;
  int bell = -1;
  const char* folder = "";
};

// Copies a piece of kCopierMin bytes and more to its place in a chunk, and may note what it copies
// (PieceChecks).
struct PieceCopy {
  void (*copy)(void* self, uint32_t slot, uint32_t place, char* to, const char* from,
               uint32_t bytes) = nullptr;
  void* self = nullptr;
};

class LogWriter {
 public:
  // Pieces of so many bytes are the copier's, if there is one.
  static constexpr uint32_t kCopierMin = 16 << 10;

  constexpr LogWriter() = default;

  // Maps log `log` in the node's folder. Not in a signal handler. 0 or a negative errno.
  int attach(const char* folder, uint32_t log, LogTrouble* trouble = nullptr) noexcept;
  int attach(const LogFiles& files, uint32_t log, LogTrouble* trouble = nullptr) noexcept;
  // Call when no write runs. An object that goes without it leaves the log mapped.
  void detach() noexcept;
  bool attached() const { return own_ != nullptr && own_->load(std::memory_order_relaxed) != 0; }
  // Call before the first write. What `copier` has must outlive them.
  void copy_by(const PieceCopy& copier) { copier_ = copier; }
  const char* node() const { return head_ != nullptr ? head_->node : "?"; }  // the host's name

  // Returns `bytes`, or less if a later piece failed, or a negative errno. When it returns, every process of
  // the node sees the bytes.
  int64_t write(const meta::FileId& file, uint64_t offset, const void* data, uint64_t bytes,
                LogTrouble* trouble = nullptr) noexcept;
  // After a write: processes that have mapped the file may still see what was there. Ask the server by
  // kAskShow, of the file's open, before the write returns.
  bool must_show() const noexcept { return head_->mapped.load(std::memory_order_seq_cst) != 0; }

 private:
  // Where a piece goes.
  struct Space {
    char* chunk = nullptr;
    uint32_t slot = 0;
    uint64_t number = 0;
    Reservation at;
  };
  struct Request {
    const meta::FileId& file;
    uint64_t offset;
    LogTrouble* trouble;
  };
  int append(const Request& request, const char* data, uint32_t length) noexcept;
  int reserve(const Request& request, uint32_t length, Space* space) noexcept;
  void copy(const Space& space, const char* data, uint32_t length) noexcept;
  int wait_for_chunk(const Request& request, uint64_t number) noexcept;
  bool server_is_gone() const noexcept;
  void ring() noexcept;
  void prepare(uint32_t slot, char* chunk) noexcept;
  int say(const Request& request, int error, const char* what) const noexcept;

  LogHead* head_ = nullptr;
  Bell* bell_ = nullptr;
  std::atomic<uint32_t>* own_ = nullptr;  // a page that the kernel empties in a child of fork
  uint32_t chunk_bytes_ = 0;
  uint32_t slots_ = 0;
  uint32_t piece_bytes_ = 0;
  uint32_t log_ = 0;
  PieceCopy copier_;
  char node_path_[256] = "";
  std::atomic<uint64_t> prepared_[kSlotsMax / 64] = {};  // slots whose pages are mapped
};

}  // namespace swale::fs
