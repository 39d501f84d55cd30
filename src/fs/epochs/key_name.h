// Names of files for keys, and the keys of names: each key has at most one name, each name at most one key.
//
//   numbers (imd.key=u64, i64)  decimal digits: 4711, -3
//   other keys                  their own bytes, if these make a name that a terminal can show and that does
//                               not begin with 0x; of keys without a type also no bytes above 127
//   all else                    0x and two hex digits a byte
//
// A key that would need more than 255 bytes has no name. Threads: free functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "run/schema.h"

namespace swale::fs {

std::optional<std::string> name_of_key(Bytes key, std::optional<run::KeyType> type);
std::optional<std::string> key_of_name(std::string_view name, std::optional<run::KeyType> type);

}  // namespace swale::fs
