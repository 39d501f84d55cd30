#include "query/key_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/coding.h"

namespace swale::query {
namespace {

constexpr std::string_view kHexPrefix = "0x";
constexpr std::string_view kU64Prefix = "u64:";
constexpr std::string_view kU32Prefix = "u32:";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Result<std::string> parse_hex(std::string_view digits, const std::string& text) {
  const bool all_hex = std::all_of(digits.begin(), digits.end(), [](char c) { return hex_digit(c) >= 0; });
  if (!all_hex || digits.size() % 2 != 0 || digits.empty()) {
    return invalid_argument("key \"{}\": expected an even number of hex digits after 0x", text);
  }
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(hex_digit(digits[i]) * 16 + hex_digit(digits[i + 1])));
  }
  return bytes;
}

template <class T>
Result<std::string> parse_number(std::string_view digits, const std::string& text) {
  T number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, number);
  if (failure != std::errc() || stop != end) {
    return invalid_argument("key \"{}\": expected a number from {} to {}", text,
                            std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  std::string bytes;
  append_fixed(&bytes, number);
  return bytes;
}

}  // namespace

Result<std::string> parse_key(const std::string& text, std::optional<run::KeyType> type) {
  const std::string_view view = text;
  if (type == run::KeyType::kText && !text.empty()) return text;
  if (view.starts_with(kHexPrefix)) return parse_hex(view.substr(kHexPrefix.size()), text);
  if (view.starts_with(kU64Prefix)) return parse_number<uint64_t>(view.substr(kU64Prefix.size()), text);
  if (view.starts_with(kU32Prefix)) return parse_number<uint32_t>(view.substr(kU32Prefix.size()), text);
  if (text.empty()) return invalid_argument("an empty key: keys have 1 to 255 bytes");
  if (type == run::KeyType::kU64) return parse_number<uint64_t>(view, text);
  if (type == run::KeyType::kI64) return parse_number<int64_t>(view, text);
  return text;
}

}  // namespace swale::query
