// Columns of 64-bit numbers as bytes, without random access, for blocks that are compressed
// (BlockCodec::kDeltaZstd; codecs of bytes are in base/codec.h). kFrame, which has random access, is in
// column.h.
//
// Threads: pure functions.
// Errors: the decoder answers false for bytes that are not exactly `count` numbers; nothing outside of the
// buffers is touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/coding.h"

namespace swale::meta {

// Second differences as varints: a regular column takes a byte a row.
void append_second_differences(std::span<const uint64_t> values, std::string* out);
bool read_second_differences(Decoder* decoder, std::span<uint64_t> out);

}  // namespace swale::meta
