// Keys as people write them, in conditions and on the command line.
//
// Notation: text stands for its bytes; "0x" and an even number of hex digits for any bytes; "u64:" or "u32:"
// and a number for its 8 or 4 bytes, little-endian. A directory may declare the type of its keys (option
// imd.key). Then numbers (u64, i64) may also be written plainly, "4711"; text stands for itself, even if it
// looks like another notation.
// Threads: a free function.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "run/schema.h"

namespace swale::query {

// kInvalidArgument says what is wrong with the text.
Result<std::string> parse_key(const std::string& text, std::optional<run::KeyType> type = {});

}  // namespace swale::query
