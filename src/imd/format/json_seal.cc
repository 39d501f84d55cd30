#include "imd/format/json_seal.h"

#include "base/crc32c.h"
#include "base/status.h"

namespace swale::imd {

std::string seal_of(Bytes covered) {
  return fmt::format("{}{:08x}{}", kSealHead, crc32c(covered), kSealTail);
}

bool is_sealed(Bytes text) {
  if (text.size() < kSealBytes) return false;
  const Bytes covered = text.substr(0, text.size() - kSealBytes);
  return text.substr(covered.size()) == seal_of(covered);
}

}  // namespace swale::imd
