// What stands in the log of a shard (store/record_log.h): one record a group, durable before the group is
// acknowledged.
//
//   record  := kind kGroupRecord, its sequence is the group's number
//   payload := sequence_end u64 | operation*                       docs/formats/meta-shard.md
//
// Threads: free functions. Errors: kCorruption names the log, the offset and the group.
#pragma once

#include <cstdint>
#include <string>

#include "meta/index/block.h"
#include "meta/index/shard.h"
#include "store/record_log.h"

namespace swale::meta {

// DO NOT CHANGE THESE VALUES: they stand in logs.
inline constexpr uint16_t kShardLogKind = 1;
inline constexpr uint16_t kGroupRecord = 1;

// DO NOT CHANGE THESE VALUES: they stand in logs.
enum class LogOperation : uint8_t {
  kRequest = 1,   // client, number: what follows was asked for by them
  kExtents = 2,   // a block of entries in order of arrival
  kRun = 3,       // file, sequence, run
  kTruncate = 4,  // file, sequence, size, generation; the hole is among the extents
  kRemove = 5,    // the same
  kRelocate = 6,  // sequence, relocation
  kRecords = 7,   // of the table beside the index, each sized (table_records.h)
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
  virtual Status records(Bytes records) = 0;
  virtual Status end_group(uint64_t group, Sequence sequence_end) = 0;
};

// Decodes the operations of one payload. `where` names it in messages.
Status visit_payload(Bytes payload, const std::string& where, LogVisitor* visitor);

// Whether a log has no group. Its job may have ended before its manifest was there.
Result<bool> is_unused_log(io::Device& device, const std::string& path);
// Replays the first `end` bytes of a log; its groups must follow `group`, which counts on.
Result<store::LogScan> replay_log(io::Device& device, const std::string& path, uint32_t shard, uint64_t owner,
                                  uint64_t end, store::LogTail tail, uint64_t* group, LogVisitor* visitor);

}  // namespace swale::meta
