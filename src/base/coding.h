// Coding: integers as bytes and back. Every format of ours, on disk and on the wire, is little-endian.
//
// put_*/get_* work on memory that the caller knows to be large enough (hot paths); append_* grow a
// std::string; Decoder reads untrusted bytes and never reads past their end.
//
// Threads: free functions; a Decoder belongs to one thread.
// Format: varint = LEB128: seven bits a byte, lowest first, the top bit set on all bytes but the last.
// The shortest encoding is written; longer ones that fit the type are read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace swale {

static_assert(std::endian::native == std::endian::little,
              "the fast paths copy integers as they stand in memory");

inline constexpr size_t kVarint32BytesMax = 5;
inline constexpr size_t kVarint64BytesMax = 10;

template <class T>
void put_fixed(char* out, T value) {
  std::memcpy(out, &value, sizeof(value));
}
template <class T>
T get_fixed(const char* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

inline void put_u16(char* out, uint16_t value) { put_fixed(out, value); }
inline void put_u32(char* out, uint32_t value) { put_fixed(out, value); }
inline void put_u64(char* out, uint64_t value) { put_fixed(out, value); }

inline uint16_t get_u16(const char* in) { return get_fixed<uint16_t>(in); }
inline uint32_t get_u32(const char* in) { return get_fixed<uint32_t>(in); }
inline uint64_t get_u64(const char* in) { return get_fixed<uint64_t>(in); }

constexpr size_t varint_bytes(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Returns the end of what was written: at most kVarint64BytesMax bytes (kVarint32BytesMax for a uint32_t
// value).
inline char* put_varint(char* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// Returns the end of what was read, or nullptr if the varint is cut off by `end` or does not fit the type.
inline const char* get_varint64(const char* in, const char* end, uint64_t* value) {
  uint64_t result = 0;
  for (unsigned shift = 0; shift <= 63 && in < end; shift += 7) {
    const auto byte = static_cast<uint8_t>(*in++);
    if (shift == 63 && byte > 1) return nullptr;
    result |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      *value = result;
      return in;
    }
  }
  return nullptr;
}
inline const char* get_varint32(const char* in, const char* end, uint32_t* value) {
  uint64_t wide = 0;
  const char* after = get_varint64(in, end, &wide);
  if (after == nullptr || wide > UINT32_MAX) return nullptr;
  *value = static_cast<uint32_t>(wide);
  return after;
}

template <class T>
void append_fixed(std::string* out, T value) {
  char bytes[sizeof(T)];
  put_fixed(bytes, value);
  out->append(bytes, sizeof(bytes));
}
inline void append_u8(std::string* out, uint8_t value) { out->push_back(static_cast<char>(value)); }
inline void append_u16(std::string* out, uint16_t value) { append_fixed(out, value); }
inline void append_u32(std::string* out, uint32_t value) { append_fixed(out, value); }
inline void append_u64(std::string* out, uint64_t value) { append_fixed(out, value); }
inline void append_i64(std::string* out, int64_t value) { append_fixed(out, value); }
inline void append_double(std::string* out, double value) { append_fixed(out, value); }
inline void append_varint(std::string* out, uint64_t value) {
  char bytes[kVarint64BytesMax];
  out->append(bytes, static_cast<size_t>(put_varint(bytes, value) - bytes));
}
// varint length, then the bytes.
inline void append_sized(std::string* out, Bytes bytes) {
  append_varint(out, bytes.size());
  out->append(bytes);
}

// A cursor over untrusted bytes. The first read that does not fit makes the decoder fail for good: that read
// and all later ones return zero or empty. So a caller reads a whole structure and then checks once, with
// status().
class Decoder {
 public:
  explicit Decoder(Bytes bytes) : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()) {}

  uint8_t u8() { return fixed<uint8_t>(); }
  uint16_t u16() { return fixed<uint16_t>(); }
  uint32_t u32() { return fixed<uint32_t>(); }
  uint64_t u64() { return fixed<uint64_t>(); }
  int64_t i64() { return fixed<int64_t>(); }
  double f64() { return fixed<double>(); }

  uint32_t varint32() { return varint<uint32_t>(get_varint32); }
  uint64_t varint64() { return varint<uint64_t>(get_varint64); }

  Bytes bytes(uint64_t count) {
    if (!ok_ || count > remaining()) return fail(), Bytes();
    const char* start = at_;
    at_ += count;
    return {start, static_cast<size_t>(count)};
  }
  Bytes sized() { return bytes(varint64()); }  // as append_sized writes
  Bytes rest() { return bytes(remaining()); }

  size_t remaining() const { return static_cast<size_t>(end_ - at_); }
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && at_ == end_; }

  // kCorruption if a read did not fit; `what` names the structure and the file or peer.
  Status status(std::string_view what) const {
    if (ok_) return {};
    return corruption("{}: cut off or malformed at byte {} of {}", what, offset(), end_ - begin_);
  }
  // The same, and kCorruption also if bytes are left over.
  Status finish(std::string_view what) const {
    if (!ok_ || at_ == end_) return status(what);
    return corruption("{}: expected {} bytes, found {}", what, offset(), end_ - begin_);
  }

 private:
  template <class T>
  T fixed() {
    if (!ok_ || remaining() < sizeof(T)) return fail(), T{};
    const T value = get_fixed<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  template <class T>
  T varint(const char* (*get)(const char*, const char*, T*)) {
    T value = 0;
    const char* after = ok_ ? get(at_, end_, &value) : nullptr;
    if (after == nullptr) return fail(), T{};
    at_ = after;
    return value;
  }
  void fail() { ok_ = false; }

  const char* begin_;
  const char* at_;  // stays at the place of the first failure
  const char* end_;
  bool ok_ = true;
};

}  // namespace swale
