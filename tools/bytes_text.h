// Keys and values as people read them on the command line. query/key_text.h has the notation, and reads what
// show() returns as the same bytes. A key whose length does not fit the type that the directory declares is
// shown in hex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "query/key_text.h"
#include "run/schema.h"

namespace swale::tools {

enum class Notation {
  kAuto,  // text if it is printable and does not look like another notation, else hex
  kHex,
  kU64,  // keys of 8 bytes as "u64:17"; other keys, and values, as kAuto
  kRaw,  // the bytes as they are
};

using query::parse_key;

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
