// Keys and values as people write and read them on the command line, and back.
//
// Notation: text stands for its bytes; "0x" and an even number of hex digits for any bytes; "u64:" and "u32:" and a
// number for its 8 or 4 bytes, little-endian. What show() prints, parse_key() reads as the same bytes.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::tools {

enum class Notation {
  kAuto,  // text where it is printable and cannot be taken for another notation, else hex
  kHex,
  kU64,  // 8 bytes as a number, others as kAuto
  kRaw,  // the bytes as they are
};

// kInvalidArgument says what is wrong with it.
Result<std::string> parse_key(const std::string& text);

std::string show(Bytes bytes, Notation notation);

}  // namespace swale::tools
