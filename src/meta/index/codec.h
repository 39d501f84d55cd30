// The comparison codecs of blocks: columns of 64-bit numbers as bytes, without random access (codecs of bytes are in
// base/codec.h). kFrame, which has it, is in column.h.
//
// Threads: pure functions.
// Errors: decoders answer false for bytes that are not exactly `count` numbers; nothing outside of the buffers is touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/coding.h"

namespace swale::meta {

// Second differences as varints: a regular column takes a byte a row.
void append_second_differences(std::span<const uint64_t> values, std::string* out);
bool read_second_differences(Decoder* decoder, std::span<uint64_t> out);

// First differences as 8-byte words, for LZ4.
void append_differences(std::span<const uint64_t> values, std::string* out);
bool read_differences(Decoder* decoder, std::span<uint64_t> out);

// LZ77 over the column's differences, a whole number at a time (the paper's choice, metakv III-A):
//   token := varint(count * 2) varint(zigzag(difference)){count}     literals
//          | varint(count * 2 + 1) varint(distance)                  a repetition of `count` from `distance` before
void append_lz77(std::span<const uint64_t> values, std::string* out);
bool read_lz77(Decoder* decoder, std::span<uint64_t> out);

}  // namespace swale::meta
