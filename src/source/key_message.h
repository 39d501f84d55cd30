// KeyMessage: keys of one source for one home, as a message of the three-hop route. The route says who has
// sent it and in which epoch, so that a message of one key takes six bytes.
//
// Format (never stored in a directory):
//   message := count varint | codes       Rice codes as in a batch (batch.h)
//   Their parameter follows from the count: the bits of m - m / 4, less one, where m = 2^34 / count.
// Threads: values. Errors: decoding never trusts a length. Limits: 1..kKeyMessageKeysMax keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"
#include "source/bit_stream.h"
#include "source/pair.h"

namespace swale::source {

inline constexpr uint32_t kKeyMessageKeysMax = 4'096;
// A message has at most so many bytes: five a key, and its count.
constexpr size_t key_message_bytes_max(size_t keys) { return keys * 5 + kVarint32BytesMax; }

// Appends the message of these kept hashes, which ascend without doubles. Requires 1..kKeyMessageKeysMax of
// them.
void encode_key_message(std::span<const uint64_t> hashes, std::string* out);

// Decodes the first `bytes` bytes at `message`, which has kSlackBytes readable bytes after them, and appends
// a pair of this source for each hash. kCorruption (scope peer), and *out is as before.
Status decode_key_message(const char* message, size_t bytes, uint32_t source, std::vector<Pair>* out);

}  // namespace swale::source
