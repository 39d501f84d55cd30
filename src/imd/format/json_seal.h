// Seal: the end of a JSON object that carries its own checksum: `"crc32c":"0123abcd"}` and a line feed, where the
// checksum (CRC-32C) covers every byte before it. swale.json ends like this, and each line of stats.jsonl.
// Threads: free functions.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace swale::imd {

inline constexpr std::string_view kSealHead = "\"crc32c\":\"";
inline constexpr std::string_view kSealTail = "\"}\n";
inline constexpr size_t kSealBytes = kSealHead.size() + 8 + kSealTail.size();

std::string seal_of(Bytes covered);
// Whether the text ends with the right seal.
bool is_sealed(Bytes text);

}  // namespace swale::imd
