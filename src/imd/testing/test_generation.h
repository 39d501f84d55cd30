// Jobs of one rank, for tests of generations: they claim, write their generation, commit epochs and close,
// without logs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "imd/format/generation.h"

namespace swale::imd {

inline const std::string kDirectory = "/d";

inline EpochEntry some_epoch(const Manifest& manifest, EpochNumber number, uint64_t epoch_id) {
  EpochEntry epoch;
  epoch.epoch = number;
  epoch.job = static_cast<uint32_t>(manifest.jobs.size() - 1);
  epoch.epoch_id = epoch_id;
  epoch.step = int64_t{10} * number;
  return epoch;
}

inline Status make_directory(io::Device& device) { return make_first_generation(device, kDirectory, {}); }

// The generation that the job `number` makes of what is there.
inline Manifest next_of(const Manifest& base, uint32_t number) {
  return next_generation(base, {number, fmt::format("{:016x}", 0xA00u + number), 1, 1, "hash"});
}

// A job that opens the directory, commits epochs and closes it.
struct TestJob {
  Manifest manifest;
  EpochLog log;

  static Result<TestJob> open(io::Device& device) {
    SWALE_ASSIGN_OR_RETURN(const uint32_t number, claim_job(device, kDirectory));
    SWALE_ASSIGN_OR_RETURN(const Manifest base, load_manifest(device, kDirectory));
    Manifest manifest = next_of(base, number);
    SWALE_ASSIGN_OR_RETURN(EpochLog log, write_generation(device, kDirectory, manifest, base.continues));
    return TestJob{std::move(manifest), std::move(log)};
  }
  Status commit() {
    const auto number = static_cast<uint32_t>(log.epochs());
    return log.append(some_epoch(manifest, EpochNumber(number), 100 * manifest.generation + number),
                      manifest);
  }
  Status close(io::Device& device) {
    manifest.closed = true;
    manifest.epochs_promised = log.epochs();
    return rewrite_document(device, kDirectory, manifest);
  }
};

}  // namespace swale::imd
