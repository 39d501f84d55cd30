// Epoch logs (jobs/NNNN/epochs). The first byte: how many epochs the manifest promises (lower six bits),
// whether the log is closed (0x40), and whether the checksums of all copies are made right (0x80), so that
// what stands behind them is reached too. The rest is the log. What is read has all promised epochs, in
// order, and comes back from a copy.
#include <algorithm>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/epoch_log.h"
#include "imd/format/generation.h"
#include "io/memory_device.h"

namespace swale::epoch_log_fuzz {
namespace {

constexpr uint32_t kJob = 3;

std::string with_checksums(Bytes log) {
  std::string out;
  for (size_t at = 0; at < log.size(); at += imd::kEpochRecordBytes) {
    std::string copy(log.substr(at, imd::kEpochRecordBytes));
    if (copy.size() == imd::kEpochRecordBytes) {
      copy.resize(imd::kEpochRecordBytes - sizeof(uint32_t));
      append_u32(&copy, crc32c(copy));
    }
    out += copy;
  }
  return out;
}

void inspect(Bytes log) {
  for (size_t at = 0; at < log.size(); at += imd::kEpochSlotBytes) {
    const imd::EpochSlot slot =
        imd::inspect_epoch_slot(log.substr(at, imd::kEpochSlotBytes), at / imd::kEpochSlotBytes);
    const bool known = slot.kind != imd::EpochSlot::Kind::kUnknown;
    fuzz::require(!known || slot.whole[0] || slot.whole[1]);
  }
}

}  // namespace

SWALE_FUZZ_TARGET(epoch_log_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  if (input.empty()) return 0;
  const auto how = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  const std::string log = (how & 0x80) != 0 ? with_checksums(input) : std::string(input);
  inspect(log);
  imd::Manifest manifest;
  manifest.jobs = {{1, "0000000000000001", 4, 1, "hash"}, {kJob, "0000000000000003", 2, 1, "hash"}};
  manifest.generation = kJob;
  manifest.epochs_promised = how & 0x3f;
  manifest.closed = (how & 0x40) != 0;
  io::MemoryDevice device;
  const std::string path = imd::epoch_log_path("/d", kJob);
  fuzz::require(io::make_directories(device, imd::job_folder("/d", kJob)).ok());
  fuzz::require(device.open(path, io::OpenMode::kCreate).value()->pwrite(0, log).ok());
  const auto content = imd::read_epoch_log(device, "/d", manifest);
  if (!content.ok()) {
    fuzz::require(content.status().message().find(path) == 0);
    return 0;
  }
  fuzz::require(content->epochs.size() >= manifest.epochs_promised);
  fuzz::require(!manifest.closed || content->epochs.size() == manifest.epochs_promised);
  for (size_t i = 0; i < content->epochs.size(); ++i) fuzz::require(content->epochs[i].epoch == i);
  // A copy of it, as the next job makes one.
  manifest.epochs = content->epochs;
  manifest.epochs_promised = content->epochs.size();
  manifest.closed = false;
  fuzz::require(device.remove(path).ok());
  fuzz::require(imd::EpochLog::create(device, "/d", kJob, manifest).ok());
  const auto again = imd::read_epoch_log(device, "/d", manifest);
  fuzz::require(again.ok() && again->epochs.size() == content->epochs.size() && again->torn_bytes == 0);
  for (size_t i = 0; i < content->epochs.size(); ++i) {
    fuzz::require(again->epochs[i].epoch_id == content->epochs[i].epoch_id &&
                  again->epochs[i].digest == content->epochs[i].digest &&
                  again->epochs[i].summary == content->epochs[i].summary &&
                  again->epochs[i].attributes == content->epochs[i].attributes &&
                  again->epochs[i].described_by == content->epochs[i].described_by);
    fuzz::require(!content->epochs[i].described_by || *content->epochs[i].described_by <= i);
  }
  return 0;
}

}  // namespace swale::epoch_log_fuzz
