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
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"
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

struct EpochEntry {
  uint32_t epoch = 0;  // 0, 1, 2, ... without gaps
  uint32_t job = 0;    // index into jobs
  uint64_t epoch_id =
      0;  // as in the index logs: tells this epoch from one of the same number that was never committed
  int64_t step = 0;
  double time = 0;
  uint64_t records = 0;
  uint64_t data_bytes = 0;  // keys and values
  uint64_t digest = 0;      // sum of record_digest over all records, modulo 2^64
};

struct Manifest {
  run::Schema schema;  // empty: none was given when the directory was made
  std::vector<JobEntry> jobs;
  std::vector<EpochEntry> epochs;

  std::string encode() const;
  static Result<Manifest> decode(Bytes json, const std::string& path);
};

std::string manifest_path(const std::string& directory);

// DIR/p000/part-000123.data and .index: 1,024 partitions a sub-folder.
std::string part_folder(const std::string& directory, uint32_t partition);
std::string data_log_path(const std::string& directory, uint32_t partition);
std::string index_log_path(const std::string& directory, uint32_t partition);

}  // namespace swale::imd
