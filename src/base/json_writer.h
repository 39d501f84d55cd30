// JsonWriter: writes a JSON text item by item; it adds the commas, quotation marks and brackets.
//
//   JsonWriter json;
//   json.object().member("ranks", 4).name("jobs").array().line().value("a").line().end().end();
//   json.text();  // {"ranks":4,"jobs":[
//                 // "a"
//                 // ]}
//
// Strings that are not UTF-8 are written with U+FFFD in place of the wrong bytes. Numbers are written as
// json.h reads them.
// Threads: a value. Limits: kJsonDepthMax open arrays and objects (asserted). Errors: std::bad_alloc.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <concepts>
#include <string>
#include <string_view>

#include "base/json.h"

namespace swale {

class JsonWriter {
 public:
  JsonWriter& object() { return open('{', '}'); }
  JsonWriter& array() { return open('[', ']'); }
  JsonWriter& end();                          // closes the innermost array or object
  JsonWriter& name(std::string_view member);  // the next item is this member's value

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::integral auto number) {
    return raw(fmt::format("{}", number));
  }  // true and false too
  JsonWriter& value(double number) { return raw(json_number(number)); }

  template <class T>
  JsonWriter& member(std::string_view member_name, const T& member_value) {
    return name(member_name).value(member_value);
  }

  // The next item or closing bracket begins on a new line.
  JsonWriter& line() {
    line_ = true;
    return *this;
  }

  const std::string& text() const { return out_; }
  // Moves the text out, with the comma and line feed that another item would need: a seal covers them, too.
  std::string take_separated();

 private:
  JsonWriter& open(char opening, char closing);
  JsonWriter& raw(std::string_view item);
  void separate();

  std::string out_;
  std::string open_;    // the closing brackets still to write, innermost last
  bool first_ = true;   // no item precedes the next one in its array or object
  bool named_ = false;  // the next item is the value of a member
  bool line_ = false;
};

}  // namespace swale
