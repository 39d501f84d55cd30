#include "imd/format/json_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

namespace swale::imd {
namespace {

using Json = nlohmann::ordered_json;

// Characters of a text that tell how many of them the parser has taken.
class CountedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedText(const char* at, uint64_t* taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountedText& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountedText operator++(int) {
    CountedText before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedText& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  uint64_t* taken_;
};

// Follows the way through the events of nlohmann's parser; an event that answers false ends the parse.
class Finder {
 public:
  Finder(Bytes json, const std::vector<std::string>& way, const uint64_t* taken)
      : json_(json), way_(way), taken_(taken) {}

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(Json::number_integer_t) { return value(); }
  bool number_unsigned(Json::number_unsigned_t) { return value(); }
  bool number_float(Json::number_float_t, const std::string&) { return value(); }
  bool string(std::string&) { return value(); }
  bool binary(Json::binary_t&) { return value(); }
  bool start_object(size_t) { return open(-1); }
  bool start_array(size_t) { return open(0); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    const uint64_t quoted = name.size() + 2;
    const bool plain = *taken_ >= quoted && json_[*taken_ - quoted] == '"';  // nothing escaped
    return meet(name, plain ? *taken_ - quoted : *taken_ - 1);
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    mistake_ = position > 0 ? position - 1 : 0;
    return false;
  }

  uint64_t found() const { return found_; }
  std::optional<uint64_t> mistake() const { return mistake_; }

 private:
  // A value, or the start of one: the next element, if it is in an array.
  bool value() {
    if (elements_.empty() || elements_.back() < 0) return true;
    return meet(std::to_string(elements_.back()++), *taken_ - 1);
  }
  bool open(int64_t first_element) {
    const bool go_on = value();
    elements_.push_back(first_element);
    return go_on;
  }
  bool close() {
    elements_.pop_back();
    return matched_ == 0 || elements_.size() > matched_;  // what we are looking for was not in there
  }
  bool meet(const std::string& name, uint64_t offset) {
    if (matched_ + 1 != elements_.size() || matched_ == way_.size() || name != way_[matched_]) return true;
    found_ = offset;
    return ++matched_ < way_.size();
  }

  const Bytes json_;
  const std::vector<std::string>& way_;
  const uint64_t* const taken_;
  std::vector<int64_t> elements_;  // of each open array, how many it has had; -1 for an object
  size_t matched_ = 0;             // steps of the way that were found
  uint64_t found_ = 0;
  std::optional<uint64_t> mistake_;
};

JsonPlace place_of(Bytes json, uint64_t offset) {
  offset = std::min<uint64_t>(offset, json.size());
  const auto lines = std::count(json.begin(), json.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
  return {static_cast<uint64_t>(lines) + 1, offset};
}

}  // namespace

std::optional<uint64_t> json_too_deep(Bytes json) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      at += c == '\\' ? 1 : 0;
      continue;
    }
    if ((c == '[' || c == '{') && ++depth > kJsonDepthMax) return at;
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return std::nullopt;
}

std::string JsonPlace::text() const { return fmt::format("line {}, offset {}", line, offset); }

JsonPlace find_in_json(Bytes json, const std::vector<std::string>& way) {
  uint64_t taken = 0;
  Finder finder(json, way, &taken);
  const char* const end = json.data() + json.size();
  static_cast<void>(Json::sax_parse(CountedText(json.data(), &taken), CountedText(end, &taken), &finder));
  return place_of(json, finder.found());
}

std::optional<JsonPlace> json_mistake(Bytes json) {
  uint64_t taken = 0;
  const std::vector<std::string> nowhere;
  Finder finder(json, nowhere, &taken);
  const char* const end = json.data() + json.size();
  static_cast<void>(Json::sax_parse(CountedText(json.data(), &taken), CountedText(end, &taken), &finder));
  const std::optional<uint64_t> deep = json_too_deep(json);
  if (!finder.mistake() && !deep) return std::nullopt;
  return place_of(json, std::min(finder.mistake().value_or(UINT64_MAX), deep.value_or(UINT64_MAX)));
}

}  // namespace swale::imd
