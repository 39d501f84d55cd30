// What a checkpoint keeps besides blocks: files, runs, relocations and retry windows, as one file; and the
// manifest that names everything a shard consists of.
//
//   snapshot := magic u32 | crc u32 | version u16 | 0 u16 | shard u32 | owner u64 | sequence u64 | payload
//   payload  := counts and items as varints (docs/formats/meta-shard.md)
//
// The manifest is a sealed document with the format "swale-meta-shard". The one with the highest job number
// is the truth.
// Threads: pure functions and values. Errors: kCorruption and kUnsupported as for every document.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/device.h"
#include "meta/index/log.h"
#include "meta/index/removed_files.h"
#include "meta/index/run_layers.h"
#include "meta/index/shard.h"
#include "store/job_claim.h"

namespace swale::meta {

inline constexpr uint32_t kSnapshotMagic = 0x534d7753;  // "SwMS"
inline constexpr uint16_t kSnapshotVersion = 3;
inline constexpr size_t kSnapshotHeaderBytes = 32;

// Which requests of a client are done: all up to `highest` - kRetryWindow count as done; bit i of `recent`:
// number highest - i.
struct ClientWindow {
  uint64_t highest = 0;
  uint64_t recent = 0;

  bool done(uint64_t number) const {
    if (number > highest) return false;
    const uint64_t age = highest - number;
    return age >= kRetryWindow || (recent >> age & 1) != 0;
  }
  void mark(uint64_t number) {
    if (number > highest) {
      const uint64_t step = number - highest;
      recent = step >= kRetryWindow ? 1 : recent << step | 1;
      highest = number;
    } else if (highest - number < kRetryWindow) {
      recent |= uint64_t{1} << (highest - number);
    }
  }
};

struct SnapshotFile {
  FileId id;
  bool known = false;
  uint64_t generation = 0;
  uint64_t size = 0;
  Sequence irregular_max = 0;
  uint64_t rows = 0;            // extents and holes that were put
  std::vector<StoredRun> runs;  // by sequence
};

struct SnapshotClient {
  uint64_t client = 0;
  ClientWindow window;
};

class SnapshotBuilder {
 public:
  SnapshotBuilder(uint32_t shard, uint64_t owner, Sequence sequence);
  void add(const SnapshotFile& file);
  void add(const SequencedRelocation& relocation);
  void add(const SnapshotClient& client);
  void add(const RemovedRange& range);
  void add_records(uint64_t group, Bytes records);  // of the table beside the index (table_records.h)
  std::string finish();

 private:
  std::string bytes_;
};

class SnapshotVisitor {
 public:
  virtual ~SnapshotVisitor() = default;
  virtual Status file(const SnapshotFile& file) = 0;
  virtual Status relocation(const SequencedRelocation& relocation) = 0;
  virtual Status client(const SnapshotClient& client) = 0;
  virtual Status removed(const RemovedRange& range) = 0;
  // The table beside the index is as of this group, with the file that the manifest names and these records.
  virtual Status records(uint64_t group, Bytes records) = 0;
};
// Returns the sequence up to which the snapshot knows everything but extents.
Result<Sequence> visit_snapshot(Bytes bytes, const std::string& path, uint32_t shard, uint64_t owner,
                                SnapshotVisitor* visitor);

// A file of a shard: its kind and the numbers in its name.
enum class ShardFileKind { kManifest, kLog, kSorted, kSnapshot, kAttributes };
std::string shard_file_name(uint32_t shard, uint32_t job, ShardFileKind kind, uint32_t number);
// False if the name is none of this shard's.
bool parse_shard_file_name(const std::string& name, uint32_t shard, uint32_t* job, ShardFileKind* kind,
                           uint32_t* number);
// How the jobs that open a shard claim their numbers: in a folder of the shard, so that nobody else lists
// what stays for ever. `number_min`: above those of all jobs that have left files.
store::ClaimNames claims_of(const std::string& directory, uint32_t shard, uint64_t number_min);
// What stands inside of the file as its owner.
inline uint64_t owner_of(uint32_t job, uint32_t number) { return uint64_t{job} << 32 | number; }

struct ManifestFile {
  uint32_t job = 0;
  uint32_t number = 0;
};
struct ManifestTable {
  Sequence sequence_min = 0, sequence_max = 0;
  uint64_t entries = 0;
  std::vector<ManifestFile> files;
};
struct ManifestLog {
  uint32_t job = 0;
  uint32_t number = 0;
  uint64_t bytes = 0;  // what counts of it: later bytes were written by a job that had lost the shard
};
struct ShardManifest {
  uint32_t shard = 0;
  uint32_t job = 0;
  uint64_t group = 0;                 // the first log begins after it
  Sequence sequence = 0;              // at least this one comes next
  std::vector<ManifestTable> tables;  // newest first
  ManifestFile snapshot;              // number 0: none
  ManifestLog attributes;             // the file of the table beside the index; number 0: none
  std::vector<ManifestLog> earlier_logs;
  uint32_t first_log = 1;        // of this job
  uint64_t first_log_bytes = 0;  // of it were durable at that time: a shorter or missing one is damaged

  std::string encode() const;
  static Result<ShardManifest> decode(Bytes text, const std::string& path);

  // The files that it names, but for the logs of its own job, each with how many of its bytes count
  // (UINT64_MAX:
  // all). A job that was stopped and wakes may make other files, and make its logs longer.
  std::map<std::string, uint64_t> named_files() const;
};

// kCorruption if the log that the manifest of `job` names is missing. A job that writes meanwhile does no
// harm.
Status check_first_log(io::Device& device, const std::string& directory, uint32_t shard, uint32_t job);
// Replays the logs that count by the manifest, in order. `numbers`: logs of its job that are there. `group`
// counts on. Calls
// each(log, scan) after each log; log.bytes are then those that count.
Status replay_logs(io::Device& device, const std::string& directory, const ShardManifest& manifest,
                   const std::set<uint32_t>& numbers, uint64_t* group, LogVisitor* visitor,
                   const std::function<void(const ManifestLog& log, const store::LogScan& scan)>& each);

}  // namespace swale::meta
