// What the targets that play a member of the job with the right key share: numbers and texts of an input, the
// odd ones among them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/coding.h"

namespace swale::fuzz {

// Takes numbers and bytes off an input; zeros after its end.
class HostileInput {
 public:
  explicit HostileInput(Bytes input) : rest_(input) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto first = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return first;
  }
  // Mostly small, else at or next to an end of what 64 bits can be, or any.
  uint64_t number() {
    const uint8_t first = byte();
    if (first < 192) return first;
    const uint64_t near = first % 4;
    switch (first / 4 % 12) {
      case 0:
        return uint64_t{1} << 63;
      case 1:
        return (uint64_t{1} << 63) - near;
      case 2:
        return ~uint64_t{0} - near;
      case 3:
        return (uint64_t{1} << 32) - near;
      case 4:
        return uint64_t{byte()} * 4096 + near;
      case 5:
        return (uint64_t{1} << 48) + near;
      case 6:
        return uint64_t{1} << byte() % 64;
      case 7:
        return uint64_t{byte()} << 20 | near;
      default: {
        uint64_t any = 0;
        for (int i = 0; i < 8; ++i) any = any << 8 | byte();
        return any;
      }
    }
  }
  Bytes bytes(size_t length) {
    const Bytes taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  Bytes text() { return bytes(byte()); }

 private:
  Bytes rest_;
};

// Whether `message` has the bytes of `secret` anywhere: what an honest client alone uses.
inline bool names_secret(Bytes message, uint64_t secret) {
  char bytes[8];
  put_u64(bytes, secret);
  return message.find(Bytes(bytes, sizeof(bytes))) != Bytes::npos;
}

}  // namespace swale::fuzz
