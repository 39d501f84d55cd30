// A model of the metadata store for tests: each byte of small files on its own, beside a shard on a device
// that crashes.
// Threads: one.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/index/shard.h"

namespace swale::meta::model {

inline constexpr size_t kFiles = 3;
inline constexpr uint64_t kBytes = 768;

struct Byte {
  LogId log = kHoleLog;
  uint64_t address = 0;
  friend bool operator==(const Byte&, const Byte&) = default;
};

struct FileModel {
  std::array<Byte, kBytes> bytes;
  FileSize size;
  uint64_t removals = 0;  // each gives the file a new id
};

struct Operation {
  enum class Kind { kPut, kTruncate, kRemove, kRelocate } kind = Kind::kPut;
  size_t file = 0;
  std::vector<Extent> extents;
  std::vector<Run> runs;
  std::vector<uint64_t> run_at;
  uint64_t size = 0, generation = 0;
  Relocation relocation;
};

// What the store must answer.
class Oracle {
 public:
  void apply(const Operation& operation);
  const FileModel& file(size_t i) const { return files_[i]; }

 private:
  void write(FileModel* file, const Extent& extent);
  std::array<FileModel, kFiles> files_;
};

struct Faults {
  unsigned crash_percent = 0;  // of the steps in 10,000
  bool lying_sync = false;     // canary: syncs do nothing
  bool wrong_oracle = false;   // canary: the oracle loses a byte
  uint64_t failing_call = 0;   // the n-th call of the device fails, and all after it until the next opening
  bool full_disk = false;      // now and then writes and new files find no space for a while
  bool forgets_void = false;   // canary: takes groups that found no space for acknowledged
};

struct Report {
  std::string problem;  // empty: all answers were right
  uint64_t steps = 0, crashes = 0, torn = 0, checks = 0, calls = 0;
  uint64_t retired = 0;              // how often rules of relocation were
  uint64_t voided = 0, refused = 0;  // commits and puts that found no space
  ShardCounters counters;            // summed over openings, as far as the test looks at them
};

ShardOptions small_options(Rng* rng);
Report run(uint64_t seed, uint64_t steps, const Faults& faults);

}  // namespace swale::meta::model
