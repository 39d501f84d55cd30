#include "base/plain_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace swale {
namespace {

// A character at the front of a text, or one byte that is none.
struct Character {
  size_t bytes = 1;
  uint32_t point = 0;
  bool valid = false;
};

Character front_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(i < text.size() ? text[i] : 0); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, first, true};
  const size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (bytes == 0) return {};
  uint32_t point = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    point = point << 6 | (byte(i) & 0x3fu);
  }
  const bool too_long = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  const bool beyond = (point >= 0xd800 && point < 0xe000) || point > 0x10ffff;
  if (too_long || beyond) return {};
  return {bytes, point, true};
}

bool is_obeyed(uint32_t point) {
  const auto within = [point](uint32_t first, uint32_t last) { return point >= first && point <= last; };
  return point < 0x20 || within(0x7f, 0x9f) || point == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x2069);
}

bool stays(const Character& character, TextUse use) {
  if (!character.valid) return false;
  const bool layout = character.point == '\n' || character.point == '\t';
  return !is_obeyed(character.point) || (layout && use != TextUse::kLine);
}

// Without a branch per byte, so that it compiles to vector instructions.
bool is_ascii_without_controls(std::string_view text, TextUse use) {
  const bool keeps_layout = use != TextUse::kLine;
  unsigned found = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const unsigned layout =
        keeps_layout ? static_cast<unsigned>(byte == '\n') | static_cast<unsigned>(byte == '\t') : 0;
    found |= (static_cast<unsigned>(byte < 0x20) & ~layout) | static_cast<unsigned>(byte >= 0x7f);
  }
  return found == 0;
}

void append_escaped(const Character& character, char byte, TextUse use, std::string* out) {
  const auto to = std::back_inserter(*out);
  if (use == TextUse::kJson) {
    *out += character.valid ? fmt::format("\\u{:04x}", character.point) : "\\ufffd";
  } else if (!character.valid || character.point < 0x80) {
    switch (byte) {
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        fmt::format_to(to, "\\x{:02x}", static_cast<uint8_t>(byte));
    }
  } else {
    fmt::format_to(to, "\\u{:04x}", character.point);
  }
}

}  // namespace

bool is_plain(std::string_view text, TextUse use) {
  if (is_ascii_without_controls(text, use)) return true;
  while (!text.empty()) {
    const Character character = front_of(text);
    if (!stays(character, use)) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string plain_text(std::string_view text, TextUse use) {
  if (is_plain(text, use)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  while (!text.empty()) {
    const Character character = front_of(text);
    if (stays(character, use)) {
      out.append(text.substr(0, character.bytes));
    } else {
      append_escaped(character, text.front(), use, &out);
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character character = front_of(text);
    if (!character.valid) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace swale
