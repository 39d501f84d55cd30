// Presets of disks. Input: the text without its seal, which is put on, and the text as it is. What decodes
// has usable numbers and encodes to something that decodes to the same.
#include "base/sealed_document.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/disk_preset.h"

namespace swale::disk_preset_fuzz {
namespace {

using fuzz::require;

void check(const io::DiskModel& model) {
  require(model.read_bytes_per_s >= 1 && model.write_bytes_per_s >= 1 && model.channels >= 1 &&
          model.slots >= 1);
  require(model.positioning(0, 1) >= 0 && model.positioning(uint64_t{1} << 48, 0) >= 0);
  require(model.transfer(kGiB, true) >= 0);
}

void run(Bytes text) {
  const auto preset = io::decode_disk_preset(text, "preset");
  if (!preset.ok()) return;
  check(preset->bed.disk);
  check(preset->bed.flash);
  const std::string again = io::encode_disk_preset(*preset);
  const auto same = io::decode_disk_preset(again, "preset");
  require(same.ok() && io::encode_disk_preset(*same) == again);
}

}  // namespace

SWALE_FUZZ_TARGET(disk_preset_fuzz) {
  const Bytes text = swale::fuzz::as_bytes(data, size);
  run(text);
  run(std::string(text) + swale::seal_of(text));
  return 0;
}

}  // namespace swale::disk_preset_fuzz
