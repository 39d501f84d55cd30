// SyncJournal: what fsyncs of a node have made durable before its chunk was complete: one file on node-local
// storage, whose bytes were all written before, so that a record costs one write and one sync that
// changes no metadata (docs/design/node-files.md).
//
//   FOLDER/journal := head head record* anything
//   head    := magic u64, version u32, crc u32 (of the rest), generation u64, 0...       a page
//   record  := rhead entry* payload 0*                                                   pages
//   rhead   := magic u64, crc u32 (of all after it, up to the end of the payload), version u32,
//              generation u64, sequence u64, log u32, chunk_bytes u32, number u64, from u32, end u32,
//              entries u32, entries_end u32, file (high u64, low u64), modified_ns u64, 0 u64   96 bytes
//   entry   := as in a spilled chunk (spill_file.h); payload: bytes `from` to `end` of the chunk
//
// The whole head with the higher generation counts, and records of that generation, which have the numbers
// 0, 1, 2... in this order. The last one may be torn. begin_anew() writes the other head. A record may say
// when `file` was modified, and then need not have bytes.
//
// Threads: one at a time. Invariants: a record that append() has acknowledged is found until begin_anew(). A
// file whose write or sync has failed takes no more before it is opened anew.
// Errors: kCorruption names file and offset. Limits: kJournalRecordsMax bytes of records at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "fs/log/log_format.h"
#include "fs/log/spill_file.h"
#include "io/device.h"

namespace swale::fs {

inline constexpr uint32_t kJournalVersion = 1;
inline constexpr char kJournalName[] = "journal";
inline constexpr uint64_t kJournalMagic = 0x6c6e726a6c617773;  // "swaljrnl"
inline constexpr uint64_t kJournalBytes = 8 << 20;
inline constexpr uint64_t kJournalBytesMax = 64 << 20;
inline constexpr uint64_t kJournalHeadBytes = 2 * kPageBytes;
inline constexpr uint64_t kJournalRecordsMax = 1 << 20;

struct FileTime {
  meta::FileId file;
  int64_t modified_ns = 0;  // 0: nothing is said
};

struct JournalRecord {
  uint32_t log = 0;
  uint32_t chunk_bytes = 0;  // 0: of no chunk
  uint64_t number = 0;
  uint32_t from = 0, end = 0;
  uint32_t entries_end = 0;  // how many of the chunk's entries are in this record or before it
  std::vector<SpilledEntry> entries;
  Bytes payload;
  FileTime time;

  uint64_t bytes() const;  // in the file
};

class SyncJournal {
 public:
  // `bytes`: of a new file, in pages. `syncs` false, for tests: what it acknowledges is not durable.
  SyncJournal(io::Device& device, const std::string& folder, uint64_t bytes = kJournalBytes,
              bool syncs = true)
      : device_(device), folder_(folder), path_(folder + "/" + kJournalName), syncs_(syncs), bytes_(bytes) {}

  // A payload is there until it returns.
  using Visit = std::function<Status(const JournalRecord&)>;
  // Hands out what is there. Damage is told, and what is whole behind it is handed out. Call it once, before
  // the first append.
  Status find(const Visit& visit, std::vector<Status>* problems);
  // The same for somebody who changes nothing; its server may live.
  static Status look(io::Device& device, const std::string& folder, const Visit& visit,
                     std::vector<Status>* problems);

  bool usable() const { return usable_; }
  bool has_space(uint64_t bytes) const { return bytes <= bytes_ - end_; }
  // Makes the file if there is none. All are durable when it returns OK.
  Status append(std::span<const JournalRecord> records);
  // Nothing that it has is needed any more.
  Status begin_anew();
  // The lowest order of its entries.
  uint64_t oldest_order() const { return oldest_order_; }

 private:
  static uint64_t generation_of(Bytes all);
  static Result<std::string> read_all(io::File& file);
  Status read(Bytes all, const Visit& visit, std::vector<Status>* problems);
  Result<bool> look(io::File& file, const Visit& visit, std::vector<Status>* problems);  // false: unfinished
  Status make();
  Status need_buffer();
  Status put_head();
  Status sync();
  void note(const JournalRecord& record) noexcept;

  io::Device& device_;
  const std::string folder_, path_;
  const bool syncs_;
  uint64_t bytes_;                  // of the file
  std::unique_ptr<io::File> file_;  // null: none yet
  Buffer buffer_;
  uint64_t generation_ = 0, sequence_ = 0;
  uint64_t end_ = kJournalHeadBytes;
  uint64_t oldest_order_ = kOrderMax;
  bool usable_ = true;
};

}  // namespace swale::fs
