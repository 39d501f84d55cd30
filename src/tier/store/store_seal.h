// The seal of the log (tier/log/log_seal.h) as two files of the SSD directory, and the generation that the
// backing directory's mark has beside it.
//
// Order of writing, at an opening: both copies of the seal as open, with the next generation; then the mark,
// with the same; then the first request. At a clean end: the log is synced; then both copies of the seal as
// closed. So the seal's generation is the mark's, or the next one if the process stopped between the two.
//
// Threads: one at a time per pair of directories, which are locked. Errors: kCorruption, scope fatal, says
// what does not belong together, and what to do.
#pragma once

#include <optional>
#include <string>

#include "io/device.h"
#include "tier/log/log_seal.h"
#include "tier/store/store_core.h"

namespace swale::tier {

// The newest copy that is whole. None: there is no copy. kCorruption: there are only damaged ones.
Result<std::optional<LogSeal>> read_seal(io::Device& device, const std::string& ssd_directory);
Status write_seal(io::Device& device, const std::string& ssd_directory, const LogSeal& seal);
void remove_seal(io::Device& device, const std::string& ssd_directory);

// Reads the seal into *opened, and checks that it is that of the log, and neither it nor the mark is older
// than the other.
Status take_seal(io::Device& device, const SegmentHeader& geometry, OpenedStore* opened);
// What the seal says of a segment; null: there is no seal.
std::optional<KnownGeneration> known_generation(const std::optional<LogSeal>& seal, uint32_t segment);
// That everything is there which the clean end has sealed. With accept_loss it only tells.
Status check_sealed_records(const io::File& log, OpenedStore* opened);
Status check_sealed_queues(OpenedStore* opened);
// That what is counted on from here is within its range.
Status check_counters(const OpenedStore& opened);
// The next generation: no older copy of either directory passes for the newest from now on, and the backing
// directory belongs to the log.
Status raise_generation(io::Device& device, OpenedStore* opened);

}  // namespace swale::tier
