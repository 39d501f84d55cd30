// JSON of files that anybody may have written: parsed within a limit of nesting, and places in it for messages about
// hand-edited or damaged files: "line 7, offset 412". Places are for what has gone wrong: they read the text again.
// Threads: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace swale::imd {

// What this library writes is 5 deep. The parser keeps its own stack, but copying, printing and comparing recurse.
inline constexpr size_t kJsonDepthMax = 32;

// Where the text first opens more than kJsonDepthMax arrays and objects; nothing if it never does.
std::optional<uint64_t> json_too_deep(Bytes json);

// nlohmann's json or ordered_json of the text; discarded (is_discarded) if it is not JSON or nested too deeply. Use it
// for every text that comes from a file.
template <class Json>
Json parse_json(Bytes text) {
  if (json_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

struct JsonPlace {
  uint64_t line = 1;
  uint64_t offset = 0;

  std::string text() const;  // "line 7, offset 412"
};

// The names (of members) and numbers (of elements, from 0) that lead to a value. Answers its place; that of what it would
// be in, if it is not there.
JsonPlace find_in_json(Bytes json, const std::vector<std::string>& way);

// Where the text stops being JSON, or is nested too deeply; nothing if parse_json takes it.
std::optional<JsonPlace> json_mistake(Bytes json);

}  // namespace swale::imd
