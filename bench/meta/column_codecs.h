// Codecs of columns that blocks of the metadata store do not have, and what blocks would cost with them: the
// paper's LZ77 (metakv, III-A), second differences without compression, and differences with LZ4. For
// comparison only.
//
// Threads: pure functions. Errors: a wrong answer ends the program.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "base/coding.h"
#include "meta/index/entries.h"

namespace swale::bench {

// First differences as 8-byte words, for LZ4.
void append_differences(std::span<const uint64_t> values, std::string* out);
bool read_differences(Decoder* decoder, std::span<uint64_t> out);

// LZ77 over the column's differences, a whole number at a time:
//   token := varint(count * 2) varint(zigzag(difference)){count}     literals
//          | varint(count * 2 + 1) varint(distance)                  a repetition of `count` from `distance`
//                                                                    before
void append_lz77(std::span<const uint64_t> values, std::string* out);
bool read_lz77(Decoder* decoder, std::span<uint64_t> out);

// Bytes an entry, ns a put and a get, of each codec, in blocks of at most meta::kBlockBytes. `entries` ascend
// by offset.
nlohmann::json column_codecs(std::span<const meta::Entry> entries);

}  // namespace swale::bench
