// Manifest: the content of DIR/swale.json, which alone says what exists in a massive directory.
//
// Only epochs named here exist. Rank 0 of the writing job replaces the file at each commit (io::replace_file), so a
// reader sees the state before or after, never between. Part files may be longer than the manifest promises: the
// tail belongs to an epoch that was never committed, and is ignored.
//
// Format: docs/formats/manifest.md. JSON for people and other tools; its last member "crc32c" covers every byte
// before it. A format version or an incompatible feature that this build does not know is kUnsupported.
// Limits: jobs <= 65,535, ranks <= 2^24, file <= 256 MiB.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
#include "run/layout.h"
#include "run/schema.h"

namespace swale::imd {

inline constexpr char kManifestName[] = "swale.json";
inline constexpr size_t kManifestBytesMax = 256 * kMiB;

// One parallel job that wrote epochs. Partition p of its epochs was written by its rank p.
struct JobEntry {
  std::string id;     // 16 hex digits, drawn at random
  int32_t ranks = 1;  // and so partitions
  uint32_t ways = 1;  // indexers per partition, hash sub-ranges
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

struct EpochEntry {
  uint32_t epoch = 0;  // 0, 1, 2, ... without gaps
  uint32_t job = 0;    // index into jobs
  uint64_t epoch_id =
      0;  // as in the index logs: tells this epoch from one of the same number that was never committed
  int64_t step = 0;
  double time = 0;
  uint64_t records = 0;
  uint64_t data_bytes = 0;  // keys and values; of large values what stands in their places
  uint64_t digest = 0;      // sum of record_digest over all records, modulo 2^64
  LargeTally large = {};    // of its records those whose values lie in value logs
  Recovered recovered = Recovered::kNo;
};

struct Manifest {
  run::Schema schema;  // empty: none was given when the directory was made
  run::Layout layout;  // of blocks and indexes; like the schema, fixed when the directory is made
  std::vector<JobEntry> jobs;
  std::vector<EpochEntry> epochs;
  std::vector<uint64_t> dropped;  // ids of epochs that drop_after took away: repair must not bring them back

  // Takes away the first epoch whose step is greater than `step`, all behind it, and jobs that have none left. Returns
  // how many epochs these were. kInvalidArgument, and nothing changed, if an epoch that would stay has an unknown step.
  Result<size_t> drop_after(int64_t step);

  std::string encode() const;
  static Result<Manifest> decode(Bytes json, const std::string& path);
};

std::string manifest_path(const std::string& directory);

// DIR/p000/part-000123.data, .index and .values: 1,024 partitions a sub-folder.
std::string part_folder(const std::string& directory, uint32_t partition);
std::string data_log_path(const std::string& directory, uint32_t partition);
std::string index_log_path(const std::string& directory, uint32_t partition);
std::string value_log_path(const std::string& directory, uint32_t writer);

}  // namespace swale::imd
