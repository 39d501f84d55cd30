// measure_disk: what a disk costs, as a DiskModel (docs/design/virtual-device.md, "Measured presets").
//
//   fill a file in order ─► read it in order ─► reads at rising distances ─► small writes and syncs ─► reads
//   at rising queue depths
//
// The file has no name while it is measured, so it is gone however the process ends. Transfers go past the
// page cache where the file system can do so; otherwise the numbers are those of the page cache, and `direct`
// says so.
//
// Threads: those of the device's queue; returns when all is done. Limits: about `duration` in all,
// `file_bytes` on the disk; the least is a file of 4 MiB and three reads of a kind. Errors: kNoSpace if the
// disk is full; those of the device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "io/device.h"
#include "io/disk_model.h"

namespace swale::io {

struct MeasureOptions {
  std::string directory = {};
  uint64_t file_bytes = kGiB;
  Nanos duration = seconds(20);
  uint64_t capacity_bytes = 0;  // of the whole disk; 0: the file's bytes
};

struct DiskMeasurement {
  struct Gap {
    uint64_t bytes = 0;  // between the end of one read and the begin of the next
    Nanos latency = 0;   // of 4 KiB: the median
    uint32_t reads = 0;
  };
  struct Depth {
    uint32_t depth = 0;
    double reads_per_s = 0;  // of 4 KiB, anywhere in the file
  };
  DiskModel model;          // without name and source
  uint64_t file_bytes = 0;  // of the file that was measured
  bool direct = false;      // past the page cache
  std::vector<Gap> gaps;
  std::vector<Depth> depths;
  uint32_t saturating_depth = 1;  // the least that gives 90 % of the most reads a second
};

// `what` is under way, after `spent` of about `total`.
using MeasureProgress = std::function<void(std::string_view what, Nanos spent, Nanos total)>;

// The directory must be there. `clock`: that of the device.
Result<DiskMeasurement> measure_disk(Device& device, const Clock& clock, const MeasureOptions& options,
                                     const MeasureProgress& progress = {});

}  // namespace swale::io
