#include "base/json_writer.h"

#include <utility>

namespace swale {

void JsonWriter::separate() {
  if (!std::exchange(named_, false) && !first_) out_ += ',';
  if (std::exchange(line_, false)) out_ += '\n';
  first_ = false;
}

JsonWriter& JsonWriter::open(char opening, char closing) {
  assert(open_.size() < kJsonDepthMax);
  separate();
  out_ += opening;
  open_ += closing;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::end() {
  assert(!open_.empty() && !named_);
  if (std::exchange(line_, false)) out_ += '\n';
  out_ += open_.back();
  open_.pop_back();
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::name(std::string_view member) {
  assert(!open_.empty() && open_.back() == '}' && !named_);
  separate();
  append_json_string(member, &out_);
  out_ += ':';
  named_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_json_string(text, &out_);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view item) {
  separate();
  out_ += item;
  return *this;
}

std::string JsonWriter::take_separated() {
  separate();
  return std::move(out_);
}

}  // namespace swale
