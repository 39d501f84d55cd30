// RecordLog: a file of records. One record is what becomes true at once: one write, one sync, then the fence,
// then its writer answers. docs/design/record-log.md has the argument why nothing that was answered is lost.
//
//   log    := header record*
//   header := magic u32 | crc u32 | version u16 | kind u16 | part u32 | owner u64 | 0 u64    32 bytes
//   record := magic u32 | crc u32 | payload_bytes u32 | kind u16 | later u16 | sequence u64 | payload
//   head of 24; later := 1 bit: its sync comes later | 15 bits: of how many records before it, too
//
// A record's crc begins with that of its log's header and covers everything after itself, so that bytes of
// another log never pass for a record. Sequences count on by one.
//
// Invariants: (1) a record says which records before it were not durable when it was written: only they, and
//   the last record, can be torn, and only in the last log; (2) a failed record is taken back before another
//   one is written, or the log takes no more.
// Threads: a RecordLog belongs to one thread at a time; the others are free functions.
// Errors: kCorruption names the log, the offset and the record; kUnsupported the version.
// Limits: a payload of kPayloadBytesMax; a reader takes the memory of the longest record.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"

namespace swale::store {

// DO NOT CHANGE THESE VALUES: they stand in logs.
inline constexpr uint32_t kLogMagic = 0x4c527753;     // "SwRL"
inline constexpr uint32_t kRecordMagic = 0x52527753;  // "SwRR"
inline constexpr uint16_t kLogVersion = 1;
inline constexpr size_t kLogHeaderBytes = 32;
inline constexpr size_t kRecordHeadBytes = 24;
inline constexpr size_t kPayloadBytesMax = kGiB;
inline constexpr uint16_t kSyncLater = 1 << 15;  // of `later`
inline constexpr uint16_t kUnsyncedMax = kSyncLater - 1;

// What a log is. A reader that expects another identity refuses the file.
struct LogIdentity {
  uint16_t kind = 0;   // what its records say: one value a user of this class
  uint32_t part = 0;   // which part of the user's data: the number of a server
  uint64_t owner = 0;  // which log of that kind and part; in no two of them the same
};

std::string log_header(const LogIdentity& log);
// What the crc of each record of a log begins with.
uint32_t record_seed(const LogIdentity& log);
// Fills the head in front of the payload: `record` begins with kRecordHeadBytes bytes of anything.
void seal_record(uint32_t seed, uint16_t kind, uint64_t sequence, std::string* record, uint16_t later = 0);

// Whether an append is durable when it is done, or after the next sync: then it survives the process, and not
// the machine.
enum class AppendSync : uint8_t { kNow, kLater };

// The log that is being written.
class RecordLog {
 public:
  using Fence = std::function<Status()>;  // whether the log is still its writer's; none: always

  // Makes nothing: create() makes the file, or else the first append. `synced` false: a record counts when it
  // is written (for comparison only).
  RecordLog(io::Device& device, std::string path, const LogIdentity& identity, bool synced = true)
      : device_(device),
        path_(std::move(path)),
        identity_(identity),
        seed_(record_seed(identity)),
        synced_(synced) {}

  // Makes the file, if it is not there yet; all that it has is durable then, whatever `synced` says. Fails as
  // append
  // does, but for a sync of the new file that finds no space: the file is removed, and the log usable().
  Status create() noexcept;
  // `record` as of seal_record. OK: the record is durable, and the fence stood after that. After a failure
  // the record counts for nothing; if it failed for want of space or memory before the sync, it is taken
  // back, and the log is usable() again. Refused if the log is not usable(). Does not throw.
  Status append(uint16_t kind, uint64_t sequence, std::string* record, const Fence& fence,
                AppendSync sync = AppendSync::kNow) noexcept;
  bool usable() const { return usable_; }

  const std::string& path() const { return path_; }
  const LogIdentity& identity() const { return identity_; }

 private:
  template <class Act>
  Status change(const Act& act) noexcept;
  Status write(Bytes bytes, bool sync, bool* sync_tried);
  Status take_back();

  io::Device& device_;
  const std::string path_;
  const LogIdentity identity_;
  const uint32_t seed_;
  const bool synced_;
  std::unique_ptr<io::File> file_;  // none before the first append
  uint64_t bytes_ = 0;              // written
  uint16_t unsynced_ = 0;           // records that are not durable
  bool usable_ = true;
};

struct Record {
  uint64_t offset = 0;
  uint16_t kind = 0;
  uint64_t sequence = 0;
  Bytes payload;  // kWindowSlackBytes (log_window.h) may be read after it
};

// How the end of a log may look.
enum class LogTail {
  kMayBeTorn,  // of the last log: its last record may be half there, and was never answered
  kWhole,
};

struct LogScan {
  uint64_t records = 0;
  uint64_t bytes = 0;  // of the header and whole records
  uint64_t torn_bytes = 0;
};

// Reads the first `end` bytes of a log from its front. The sequences must follow *sequence, which counts on.
// Returned failures of `visit` stop it. kCorruption, whatever `tail` says: a whole header of another log; a
// whole record after a damaged one; a damaged record whose head is whole and says that the log goes on after
// it.
Result<LogScan> read_log(io::Device& device, const std::string& path, const LogIdentity& identity,
                         uint64_t end, LogTail tail, uint64_t* sequence,
                         const std::function<Status(const Record& record)>& visit);

}  // namespace swale::store
