// swale.json: the input with a right checksum behind it, so that what stands behind the seal is reached too.
// What decodes encodes to a file that decodes to the same; what does not says where. Lines of attributes
// (attributes.jsonl) are sealed likewise.
#include <fmt/format.h>

#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/attributes.h"
#include "imd/format/manifest.h"

namespace swale::manifest_fuzz {

namespace {

void read_attributes_line(Bytes text) {
  const auto line = imd::decode_attributes_line(text, "line", 0);
  if (!line.ok()) return fuzz::require(line.status().message().find("line") == 0);
  const std::string once = imd::encode_attributes_line(line->epoch_id, EpochNumber(0), line->attributes);
  const auto again = imd::decode_attributes_line(once, "again", 0);
  fuzz::require(again.ok() && again->epoch_id == line->epoch_id &&
                again->attributes.directory == line->attributes.directory &&
                again->attributes.epoch == line->attributes.epoch);
}

}  // namespace

SWALE_FUZZ_TARGET(manifest_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  static_cast<void>(imd::Manifest::decode(input, "raw"));
  std::string file(input);
  file += fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(input));
  read_attributes_line(file);
  const auto manifest = imd::Manifest::decode(file, "sealed");
  if (!manifest.ok()) {
    fuzz::require(manifest.status().message().find("sealed") == 0);
    return 0;
  }
  const std::string once = manifest->encode();
  auto again = imd::Manifest::decode(once, "again");
  fuzz::require(again.ok() && again->encode() == once);
  static_cast<void>(again->drop_after(7));
  return 0;
}

}  // namespace swale::manifest_fuzz
