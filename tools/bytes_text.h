// Keys and values as people write and read them on the command line, and back.
//
// Notation: text stands for its bytes; "0x" and an even number of hex digits for any bytes; "u64:" or "u32:" and a
// number for its 8 or 4 bytes, little-endian. parse_key() reads the output of show() as the same bytes.
//
// A directory may declare the type of its keys (option imd.key). Then numbers (u64, i64) may also be written plainly,
// "4711"; text stands for itself, even if it looks like another notation. A key whose length does not fit its type is
// shown in hex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "run/schema.h"

namespace swale::tools {

enum class Notation {
  kAuto,  // text if it is printable and does not look like another notation, else hex
  kHex,
  kU64,  // keys of 8 bytes as "u64:17"; other keys, and values, as kAuto
  kRaw,  // the bytes as they are
};

// kInvalidArgument says what is wrong with the text.
Result<std::string> parse_key(const std::string& text, std::optional<run::KeyType> type = {});

// An id, as its 16 hex digits.
std::string hex16(uint64_t id);

// Any bytes.
std::string show(Bytes bytes, Notation notation);
// Shows a value; kU64 does not apply to values.
inline std::string show_value(Bytes value, Notation notation) {
  return show(value, notation == Notation::kU64 ? Notation::kAuto : notation);
}

std::string show_key(Bytes key, Notation notation, std::optional<run::KeyType> type);
// Whether show_key returns a decimal number, which JSON writes without quotes.
bool shows_number(Bytes key, Notation notation, std::optional<run::KeyType> type);

}  // namespace swale::tools
