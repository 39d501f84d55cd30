// Keys and values as people write and read them on the command line, and back.
//
// Notation: text stands for its bytes; "0x" and an even number of hex digits for any bytes; "u64:" and "u32:" and a
// number for its 8 or 4 bytes, little-endian. What show() prints, parse_key() reads as the same bytes.
//
// A directory may say what its keys are (option imd.key). Numbers (u64, i64) are then written as such, "4711", besides
// the notations above; text stands for itself, also where it looks like another notation. A key of another length than
// its type's is shown in hex.
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "run/schema.h"

namespace swale::tools {

enum class Notation {
  kAuto,  // text where it is printable and cannot be taken for another notation, else hex
  kHex,
  kU64,  // keys of 8 bytes as "u64:17"; other keys, and values, as kAuto
  kRaw,  // the bytes as they are
};

// kInvalidArgument says what is wrong with it.
Result<std::string> parse_key(const std::string& text, std::optional<run::KeyType> type = {});

// Any bytes.
std::string show(Bytes bytes, Notation notation);
// A value: kU64 is not for it.
inline std::string show_value(Bytes value, Notation notation) {
  return show(value, notation == Notation::kU64 ? Notation::kAuto : notation);
}

std::string show_key(Bytes key, Notation notation, std::optional<run::KeyType> type);
// Whether show_key gives a decimal number: JSON has it without quotes.
bool shows_number(Bytes key, Notation notation, std::optional<run::KeyType> type);

}  // namespace swale::tools
