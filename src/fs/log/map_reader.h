// MapReader: reads files where the logs of this node have them, by the maps of one server (map_format.h).
//
//   read() ─► map whole? ─► epoch and marks as they were? ─► bytes, checked ─► map and epoch still? ─► done
//                 └ no: the caller asks for a map, or reads through the mount
//
// The logs' bytes are copied by calls of the system: what the server takes away meanwhile is an error or
// zeros, and another epoch; never a signal. process_vm_readv needs no descriptor, which a program could
// close, or have other files at; pread is faster, and needs one for each log (Means). Words of logs are
// looked at where they are mapped: their pages stay as long as the log does.
//
// Threads: any, and signal handlers: no locks, no allocation, and nobody waits: what another thread is about
// to map is the mount's. A child of fork or vfork may go on with all of it.
// Invariants: (1) A write that had returned when read() was called is seen by it. (2) What it returns has the
// checksums that the server has taken: each block is checked once for each map.
// Errors: none: kNothing means that the mount is to be asked, which tells what is wrong.
// Needs: libc only, as LogWriter. Stack: 4 KiB. Memory: 140 KiB.
// Limits: logs of kLogsMax processes at a time, of one shape; each is mapped as a whole, which takes
// addresses, no memory. Others take their place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/log/map_format.h"

namespace swale::fs {

class MapReader {
 public:
  // For tests, which must notice. (A static reader without any takes no space in a library's file.)
  struct Rules {
    bool ignores_marks = false;
    bool ignores_epoch = false;
    bool looks_once = false;  // not at the map and the epoch again, after the bytes were taken
    bool skips_checks = false;
    void (*between)(void*) = nullptr;  // is called after the first looks
    void* of_between = nullptr;
  };
  // What a caller may use that is not a library in a strange program.
  struct Means {
    bool keeps_descriptors = false;  // of logs, to read them by pread
    // Of a block, as plain_crc32c; or null: that one.
    uint32_t (*crc32c)(uint32_t crc, const char* bytes, size_t count) = nullptr;
  };
  constexpr MapReader() = default;
  constexpr explicit MapReader(const Means& means) : means_(means) {}
  constexpr MapReader(const Means& means, const Rules& rules) : means_(means), rules_(rules) {}

  // Maps what the answer of kAskMap names. Once. False: this process cannot see it.
  bool open(const MapRequest& answer) noexcept;
  uint64_t server() const { return server_; }
  // Call when nobody reads.
  void close() noexcept;
  // In a child of fork: a thread that is not there any more was in the middle of something.
  void settle_after_fork() noexcept;

  enum class How : uint8_t {
    kNoMap,    // the slot has none that counts and speaks of `offset`
    kNothing,  // the logs do not have the first byte
    kPart,     // the mount has the next byte
    kAll,      // all, or up to the end of the file
  };
  struct Outcome {
    How how = How::kNoMap;
    size_t bytes = 0;
  };
  Outcome read(uint32_t slot, uint64_t ticket, uint64_t offset, void* out, size_t bytes) noexcept;

 private:
  static constexpr uint32_t kSets = 32, kWays = 4;
  static constexpr uint32_t kLogsMax = kSets * kWays;
  static constexpr uint32_t kCheckWords = (kToldChecksMax + 63) / 64;

  struct Log {
    std::atomic<uint64_t> state;  // version << 32 | number of the log; an odd version: it changes
    std::atomic<const char*> memory;
    std::atomic<uint64_t> bytes;  // that are mapped
    std::atomic<uint32_t> chunk_bytes;
    std::atomic<uint32_t> slots;
    std::atomic<int> file;  // its descriptor + 1, which stays this one's; 0: none
  };
  // A log as it was when `state` was looked at.
  struct Seen {
    const Log* log = nullptr;
    uint64_t state = 0;
    const char* memory = nullptr;
    uint32_t chunk_bytes = 0, slots = 0;
    int file = 0;
    bool copy(uint64_t at, char* out, size_t bytes) const;
    bool is_still_there() const {
      std::atomic_thread_fence(std::memory_order_acquire);
      return log->state.load(std::memory_order_relaxed) == state;
    }
    bool has_slot_at(uint64_t begin) const;
    bool has_word(uint64_t at, uint64_t expected) const;
  };
  // Blocks of a map that were found whole.
  struct Checked {
    std::atomic<uint64_t> sequence;  // of that map
    std::atomic<uint64_t> blocks[kCheckWords];
  };
  struct Look {
    const MapSlot* slot = nullptr;
    uint32_t number = 0;
    uint64_t sequence = 0;
    MapState state = {};
  };

  bool look(uint32_t slot, uint64_t ticket, uint64_t offset, Look* out) const noexcept;
  bool still_counts(const Look& look) const noexcept;
  bool has_epoch(uint64_t epoch) const noexcept;
  bool has_marks(const Look& look) noexcept;
  bool place_at(const Look& look, uint32_t index, MapPlace* out) const noexcept;
  uint32_t first_place(const Look& look, uint64_t offset) const noexcept;
  size_t copy(const Look& look, uint64_t offset, char* out, size_t bytes) noexcept;
  bool copy_place(const Look& look, const MapPlace& place, uint32_t skip, char* out, uint32_t bytes) noexcept;
  uint32_t copy_blocks(const Look& look, const MapPlace& place, const Seen& seen, uint32_t block, char* out,
                       uint32_t bytes) noexcept;
  static uint32_t expected_check(const Look& look, const MapPlace& place, uint32_t block) noexcept;
  bool find_log(uint32_t number, Seen* out) noexcept;
  bool map_log_into(Log& log, uint64_t before, uint32_t number) noexcept;
  bool keep_file(Log& log, int fd) noexcept;
  bool is_whole(const Seen& seen, uint64_t at, uint32_t bytes, uint32_t check) const noexcept;
  uint32_t crc32c(uint32_t crc, const char* bytes, size_t count) const noexcept;
  bool is_checked(const Look& look, uint32_t block) noexcept;
  void note_checked(const Look& look, uint32_t block) noexcept;

  const Means means_ = {};
  const Rules rules_ = {};
  uint64_t server_ = 0;
  const NodePage* node_ = nullptr;
  const char* maps_ = nullptr;
  uint64_t maps_bytes_ = 0;
  uint32_t slots_ = 0;
  char folder_[264] = "";
  std::atomic<uint32_t> next_way_ = 0;
  Log logs_[kLogsMax] = {};
  Checked checked_[kMapSlotsMax] = {};
};

}  // namespace swale::fs
