// Any bytes as a JSON text: nlohmann's parser accepts the same ones (within our limits), and what is accepted
// can be walked.
#include <nlohmann/json.hpp>

#include "base/json_writer.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"

namespace swale::json_fuzz {
namespace {

// Writes the value again; says whether all of its numbers fit a double.
bool write_again(JsonValue value, JsonWriter* out) {
  bool fits = true;
  if (value.is_object() || value.is_array()) {
    value.is_object() ? out->object() : out->array();
    for (const JsonValue child : value) {
      fuzz::require(child.offset() < child.offset() + child.source().size());
      if (value.is_object()) out->name(child.name());
      fits &= write_again(child, out);
    }
    out->end();
  } else if (const auto text = value.string()) {
    out->value(*text);
    fuzz::require(value.equals(*text));
  } else if (const auto flag = value.boolean()) {
    out->value(*flag);
  } else if (const auto integer = value.integer()) {
    out->value(*integer);
  } else if (const auto number = value.number()) {
    out->value(*number);
  } else {
    fits = value.source() == "null";
    out->value(0);
  }
  return fits;
}

// As a depth of nesting: brackets outside of strings.
bool is_deep(Bytes text) {
  size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;
    if (quoted) continue;
    if (text[i] == '[' || text[i] == '{') deepest = std::max(deepest, ++depth);
    if ((text[i] == ']' || text[i] == '}') && depth > 0) --depth;
  }
  return deepest > kJsonDepthMax;
}

}  // namespace

SWALE_FUZZ_TARGET(json_fuzz) {
  const Bytes text = fuzz::as_bytes(data, size);
  const Result<JsonTree> json = JsonTree::parse(text);
  if (is_deep(text)) {
    fuzz::require(!json.ok());
    return 0;
  }
  const bool peer = nlohmann::json::accept(text);
  JsonWriter again;
  const bool fits = json.ok() && write_again(json->root(), &again);
  if (fits) fuzz::require(peer);
  if (peer) fuzz::require(json.ok());
  if (json.ok()) fuzz::require(JsonTree::parse(again.text()).ok());
  return 0;
}

}  // namespace swale::json_fuzz
