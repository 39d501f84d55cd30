// Manifest: what exists in a massive directory: its schema and layout, the jobs that wrote to it, its epochs.
//
// On disk it is a generation (generation.h): a JSON document, which changes only when a job opens or closes
// the directory, and an epoch log (epoch_log.h), to which a commit appends one record.
//
// Format of the document: docs/formats/manifest.md. JSON for people and other tools; its last member "crc32c"
// covers every byte before it. A format version or an incompatible feature that this build does not know is
// kUnsupported.
// Limits: jobs <= 65,535, ranks <= 2^24, document <= 256 MiB.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "imd/format/log_names.h"
#include "run/layout.h"
#include "run/schema.h"

namespace swale::imd {

inline constexpr size_t kManifestBytesMax = 256 * kMiB;

// One parallel job that opened the directory for writing. Partition p of its epochs was written by its rank
// p.
struct JobEntry {
  uint32_t number = 0;  // part of the names of its files (log_names.h); ascending in Manifest::jobs
  std::string id;       // 16 hex digits, drawn at random
  uint32_t ranks = 1;   // and so partitions
  uint32_t ways = 1;    // indexers per partition, hash sub-ranges
  std::string partitioner = "hash";
};

// What `swale repair` knew of an epoch that it put into the manifest. Of both, step and time are unknown.
enum class Recovered : uint8_t {
  kNo,
  kPartial,  // whole runs of an epoch that its job never ended: some of its records
  kWhole,    // a manifest that was lost has been made anew from the logs
};
const char* recovered_name(Recovered recovered);  // "", "partial" or "whole", as in the file
inline constexpr int64_t kStepUnknown = std::numeric_limits<int64_t>::min();

// Values that are too large for records.
struct LargeTally {
  uint64_t values = 0;
  uint64_t bytes = 0;

  void add(const LargeTally& other) {
    values += other.values;
    bytes += other.bytes;
  }
  bool operator==(const LargeTally&) const = default;
};

// Where something of an epoch lies in a file of jobs/NNNN. Nothing if `bytes` is 0.
struct JobFilePlace {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t job = 0;  // the number in NNNN

  bool operator==(const JobFilePlace&) const = default;
};

struct EpochEntry {
  EpochNumber epoch = {};  // 0, 1, 2, ... without gaps
  uint32_t job = 0;        // index into jobs: whose logs hold it
  // The number of the job that wrote it, if `swale optimize --free` has moved it to `job`: values that lie
  // elsewhere are still in files of this one. 0: `job` wrote it.
  uint32_t origin = 0;
  bool freed = false;  // no log holds it any more, only a cluster; its job has one rank and one way
  // As in the index logs: tells this epoch from one of the same number that was never committed.
  uint64_t epoch_id = 0;
  int64_t step = 0;
  double time = 0;
  uint64_t records = 0;
  uint64_t data_bytes = 0;       // keys and values; of large values what stands in their places
  uint64_t digest = 0;           // sum of record_digest over all records, modulo 2^64
  LargeTally large = {};         // of its records those whose values lie in value logs
  JobFilePlace summary = {};     // in jobs/NNNN/extrema
  JobFilePlace attributes = {};  // in jobs/NNNN/attributes.jsonl: what this epoch has brought
  // The epoch, this one or an earlier one, that has brought the directory's attributes as of this one.
  std::optional<EpochNumber> described_by = {};
  Recovered recovered = Recovered::kNo;

  bool step_known() const { return recovered == Recovered::kNo; }
};

// What `swale repair` had to give up: records of an epoch in one partition. Readers report it; nothing is
// passed over.
struct LostPart {
  uint64_t epoch_id = 0;
  PartitionNumber partition = {};
  std::string what;  // for people: what was lost and why

  bool operator==(const LostPart&) const = default;
};

struct Manifest {
  run::Schema schema;  // empty: none was given when the directory was made
  run::Layout layout;  // of blocks and indexes; like the schema, fixed when the directory is made
  LogPlace log_place = LogPlace::kInFolders;  // likewise
  uint32_t generation = 0;  // the number of the job that wrote it; 0: made with the directory
  // The generation that this one continues; this one if there is none. Older ones may be gone.
  uint32_t continues = 0;
  bool has_attributes = false;   // an epoch may have brought some
  bool has_moved = false;        // an epoch may have an origin, or be freed
  bool closed = false;           // its job has ended: the epoch log has epochs_promised epochs, no more
  uint64_t epochs_promised = 0;  // in the epoch log, at least
  std::vector<JobEntry> jobs;
  std::vector<EpochEntry> epochs;  // of the epoch log; no part of the document
  std::vector<LostPart> lost;

  const JobEntry& job_of(const EpochEntry& epoch) const { return jobs[epoch.job]; }
  // The number of the job whose value logs and statistics have what belongs to the epoch.
  uint32_t origin_of(const EpochEntry& epoch) const {
    return epoch.origin != 0 ? epoch.origin : job_of(epoch).number;
  }
  // The logs of one of the epoch's partitions.
  LogId log_of(const EpochEntry& epoch, PartitionNumber partition) const {
    return {job_of(epoch).number, partition, log_place};
  }
  std::optional<size_t> job_index(uint32_t number) const;
  // The committed epoch of this number and id; nullptr if there is none: another one was, or none at all.
  const EpochEntry* find_epoch(EpochNumber number, uint64_t epoch_id) const;
  const EpochEntry* find_epoch(const LostPart& part) const;
  // The first epoch of this manifest that `now`, a later one of the directory, does not have; nullptr: it has
  // them all.
  const EpochEntry* first_dropped(const Manifest& now) const;
  // The first one that is elsewhere in `now`: in another job's logs, or only in a cluster. nullptr: none.
  const EpochEntry* first_moved(const Manifest& now) const;
  // The logs that hold committed epochs, in order.
  std::vector<LogId> logs() const;
  // What was lost of this part; nullptr: nothing.
  const LostPart* lost_part(const EpochEntry& epoch, PartitionNumber partition) const;
  // Whether something of the epoch was lost in any partition.
  bool has_lost(const EpochEntry& epoch) const;

  // Takes away the first epoch whose step is greater than `step` and all after it, and partial ones directly
  // in front, which may lie after `step` too. Returns how many epochs these were. Partial ones further in
  // front stay. kInvalidArgument, and nothing changed, if one that is kWhole would stay.
  Result<size_t> drop_after(int64_t step);
  // The step of the last epoch whose step is known.
  std::optional<int64_t> last_step() const;

  // The document.
  std::string encode() const;
  // `epochs` is left empty.
  static Result<Manifest> decode(Bytes json, const std::string& path);
};

}  // namespace swale::imd
