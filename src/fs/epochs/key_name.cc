#include "fs/epochs/key_name.h"

#include <climits>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace swale::fs {
namespace {

constexpr std::string_view kHexPrefix = "0x";
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_plain(Bytes key, bool is_text) {
  if (key.empty() || key.size() > NAME_MAX || key == "." || key == ".." || key.starts_with(kHexPrefix))
    return false;
  return std::all_of(key.begin(), key.end(), [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= ' ' && byte != 0x7f && c != '/' && (is_text || byte < 0x80);
  });
}

template <class Number>
std::string decimal(Bytes key) {
  Number number;
  std::memcpy(&number, key.data(), sizeof number);
  return std::to_string(number);
}

template <class Number>
std::string bytes_of_decimal(std::string_view name) {
  Number number = 0;
  const auto [stop, failure] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failure != std::errc() || stop != name.data() + name.size()) return "";
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string bytes_of_hex(std::string_view digits) {
  std::string key;
  for (size_t at = 0; at + 2 <= digits.size(); at += 2) {
    const size_t high = kHexDigits.find(digits[at]), low = kHexDigits.find(digits[at + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return "";
    key.push_back(static_cast<char>(high * 16 + low));
  }
  return key;
}

}  // namespace

std::optional<std::string> name_of_key(Bytes key, std::optional<run::KeyType> type) {
  if (type == run::KeyType::kU64 && key.size() == sizeof(uint64_t)) return decimal<uint64_t>(key);
  if (type == run::KeyType::kI64 && key.size() == sizeof(int64_t)) return decimal<int64_t>(key);
  const bool is_number = type == run::KeyType::kU64 || type == run::KeyType::kI64;
  if (!is_number && is_plain(key, type == run::KeyType::kText)) return std::string(key);
  if (kHexPrefix.size() + 2 * key.size() > NAME_MAX) return std::nullopt;
  std::string name(kHexPrefix);
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    name.push_back(kHexDigits[byte >> 4]);
    name.push_back(kHexDigits[byte & 15]);
  }
  return name;
}

std::optional<std::string> key_of_name(std::string_view name, std::optional<run::KeyType> type) {
  std::string key;
  if (name.starts_with(kHexPrefix)) {
    key = bytes_of_hex(name.substr(kHexPrefix.size()));
  } else if (type == run::KeyType::kU64) {
    key = bytes_of_decimal<uint64_t>(name);
  } else if (type == run::KeyType::kI64) {
    key = bytes_of_decimal<int64_t>(name);
  } else {
    key = name;
  }
  // What would be a second name of the key is none: 007, 0x41, 0X41.
  if (key.empty() || name_of_key(key, type) != name) return std::nullopt;
  return key;
}

}  // namespace swale::fs
