// The write-ahead log of a shard: one record a group, written and synced before the group is acknowledged.
//
//   log     := header record*
//   header  := magic u32 | crc u32 | version u16 | 0 u16 | shard u32 | owner u64 | 0 u64          32 bytes
//   record  := magic u32 | crc u32 | payload_bytes u64 | group u64 | sequence_end u64 | payload
//                 head of 32 bytes
//   payload := operation*                                          docs/formats/meta-shard.md
//
// A record's crc begins with the log's owner and covers everything after itself: bytes of another log are
// never taken for a record. The next record is written after the one before it was synced, so that only the
// last one of the last log can be torn; anything else that fails its checksum is damage.
//
// Threads: a LogFile is written by one commit at a time. Errors: kCorruption names the log, the offset and
// the group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/device.h"
#include "meta/index/block.h"
#include "meta/index/shard.h"

namespace swale::meta {

inline constexpr uint32_t kLogMagic = 0x4c4d7753;     // "SwML"
inline constexpr uint32_t kRecordMagic = 0x524d7753;  // "SwMR"
inline constexpr uint16_t kLogVersion = 1;
inline constexpr size_t kLogHeaderBytes = 32;
inline constexpr size_t kRecordHeadBytes = 32;

// DO NOT CHANGE THESE VALUES: they stand in logs.
enum class LogOperation : uint8_t {
  kRequest = 1,   // client, number: what follows was asked for by them
  kExtents = 2,   // a block of entries in order of arrival
  kRun = 3,       // file, sequence, run
  kTruncate = 4,  // file, sequence, size, generation; the hole is among the extents
  kRemove = 5,    // the same
  kRelocate = 6,  // sequence, relocation
};

struct SequencedRelocation {
  Relocation rule;
  Sequence sequence = 0;
};

void append_file_id(const FileId& id, std::string* out);
void append_run(const Run& run, std::string* out);
void append_relocation(const Relocation& relocation, std::string* out);
FileId read_file_id(Decoder* decoder);
bool read_run(Decoder* decoder, Run* out);  // valid() holds if true
Relocation read_relocation(Decoder* decoder);

std::string log_header(uint32_t shard, uint64_t owner);
// Fills the head in front of the payload: `record` begins with kRecordHeadBytes bytes of anything.
void seal_record(uint64_t owner, uint64_t group, Sequence sequence_end, std::string* record);

// What a log says, in its order. Returned failures stop the replay.
class LogVisitor {
 public:
  virtual ~LogVisitor() = default;
  virtual Status request(const RequestKey& key) = 0;
  virtual Status extents(const BlockView& block) = 0;
  virtual Status run(const FileId& file, Sequence sequence, const Run& run) = 0;
  virtual Status truncate(const FileId& file, Sequence sequence, uint64_t size, uint64_t generation,
                          bool remove) = 0;
  virtual Status relocate(Sequence sequence, const Relocation& relocation) = 0;
  virtual Status end_group(uint64_t group, Sequence sequence_end) = 0;
};

struct LogScan {
  uint64_t groups = 0;
  uint64_t bytes = 0;  // of the header and whole records
  uint64_t torn_bytes = 0;
};

// Decodes one payload. `where` names it in messages.
Status visit_payload(Bytes payload, const std::string& where, LogVisitor* visitor);

// Replays a log of at most `end` bytes; its groups must follow `group`, which counts on. may_be_torn: of the
// last log.
Result<LogScan> replay_log(io::Device& device, const std::string& path, uint32_t shard, uint64_t owner,
                           uint64_t end, bool may_be_torn, uint64_t* group, LogVisitor* visitor);

}  // namespace swale::meta
