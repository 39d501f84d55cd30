// swale.json: the input with a right checksum behind it, so that what stands behind the seal is reached too.
// What decodes encodes to a file that decodes to the same; what does not says where.
#include <fmt/format.h>

#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/manifest.h"

namespace swale::manifest_fuzz {

SWALE_FUZZ_TARGET(manifest_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  static_cast<void>(imd::Manifest::decode(input, "raw"));
  std::string file(input);
  file += fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(input));
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
