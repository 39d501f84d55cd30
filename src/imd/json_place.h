// Where a member of a JSON text stands, for messages about hand-edited or damaged files: "line 7, offset 412".
// Only for what has gone wrong: it reads the text again. Threads: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace swale::imd {

struct JsonPlace {
  uint64_t line = 1;
  uint64_t offset = 0;

  std::string text() const;  // "line 7, offset 412"
};

// The names (of members) and numbers (of elements, from 0) that lead to a value. Answers its place; that of what it would
// be in, if it is not there.
JsonPlace find_in_json(Bytes json, const std::vector<std::string>& way);

// Where the text stops being JSON; nothing if it is.
std::optional<JsonPlace> json_mistake(Bytes json);

}  // namespace swale::imd
