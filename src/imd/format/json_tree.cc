#include "imd/format/json_tree.h"

#include <string>

#include "imd/format/json_place.h"

namespace swale::imd {
namespace {

using Json = nlohmann::json;

void empty(Json& json) noexcept {
  if (json.is_array()) {
    for (Json& child : json.get_ref<Json::array_t&>()) empty(child);
    json.get_ref<Json::array_t&>().clear();
  } else if (json.is_object()) {
    for (auto& [name, child] : json.get_ref<Json::object_t&>()) empty(child);
    json.get_ref<Json::object_t&>().clear();
  }
}

}  // namespace

JsonTree::Holder::~Holder() { empty(root); }

JsonTree::JsonTree(Bytes text) {
  if (json_too_deep(text)) {
    holder_.root = Json(Json::value_t::discarded);
    return;
  }
  // What Json::parse does, into a root that is ours from the beginning.
  nlohmann::detail::json_sax_dom_parser<Json> parser(holder_.root, /*allow_exceptions=*/false);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &parser);
  if (whole && !parser.is_errored()) return;
  empty(holder_.root);
  holder_.root = Json(Json::value_t::discarded);
}

bool is_text(const nlohmann::json& json, std::string_view text) {
  return json.is_string() && json.get_ref<const std::string&>() == text;
}

}  // namespace swale::imd
