#include "tools/bytes_text.h"

#include <algorithm>
#include <cstdint>

#include "base/coding.h"
#include "base/plain_text.h"

namespace swale::tools {
namespace {

constexpr std::string_view kHexPrefix = "0x";
constexpr std::string_view kU64Prefix = "u64:";
constexpr std::string_view kU32Prefix = "u32:";

bool is_number(std::optional<run::KeyType> type) {
  return type == run::KeyType::kU64 || type == run::KeyType::kI64;
}

bool stands_for_itself(Bytes bytes) {
  const bool printable = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return printable && !bytes.starts_with(kHexPrefix) && !bytes.starts_with(kU64Prefix) &&
         !bytes.starts_with(kU32Prefix);
}

std::string hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kHexPrefix);
  text.reserve(2 + bytes.size() * 2);
  for (const char c : bytes) {
    text.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    text.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return text;
}

}  // namespace

std::string hex16(uint64_t id) { return fmt::format("{:016x}", id); }

std::string show(Bytes bytes, Notation notation) {
  if (notation == Notation::kRaw) return std::string(bytes);
  if (notation == Notation::kU64 && bytes.size() == 8) return fmt::format("u64:{}", get_u64(bytes.data()));
  if (notation == Notation::kHex || !stands_for_itself(bytes)) return hex(bytes);
  return std::string(bytes);
}

bool shows_number(Bytes key, Notation notation, std::optional<run::KeyType> type) {
  return is_number(type) && key.size() == sizeof(uint64_t) &&
         (notation == Notation::kAuto || notation == Notation::kU64);
}

std::string show_key(Bytes key, Notation notation, std::optional<run::KeyType> type) {
  if (shows_number(key, notation, type)) {
    const uint64_t number = get_u64(key.data());
    return type == run::KeyType::kU64 ? fmt::format("{}", number)
                                      : fmt::format("{}", static_cast<int64_t>(number));
  }
  const bool as_bytes = notation == Notation::kHex || notation == Notation::kRaw;
  if (is_number(type) && !as_bytes) return hex(key);  // text could look like a number
  if (notation == Notation::kAuto && type == run::KeyType::kText && is_plain(key)) return std::string(key);
  return show(key, notation);
}

}  // namespace swale::tools
