#include "meta/index/codec.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "meta/index/zigzag.h"

namespace swale::meta {
namespace {

constexpr size_t kMatchMin = 3;
constexpr size_t kSlots = 1024;
size_t slot_of(uint64_t value, uint64_t next) {
  return ((value * 0x9e3779b97f4a7c15) ^ (next * 0xd1b54a32d192ed03)) >> 54;
}

void append_literals(std::span<const uint64_t> literals, std::string* out) {
  if (literals.empty()) return;
  append_varint(out, literals.size() * 2);
  for (const uint64_t literal : literals) append_varint(out, zigzag(literal));
}

}  // namespace

void append_second_differences(std::span<const uint64_t> values, std::string* out) {
  const size_t begin = out->size();
  out->resize(begin + values.size() * kVarint64BytesMax);
  char* at = out->data() + begin;
  uint64_t before = 0, step = 0;
  for (const uint64_t value : values) {
    const uint64_t difference = value - before;
    at = put_varint(at, zigzag(difference - step));
    step = difference;
    before = value;
  }
  out->resize(static_cast<size_t>(at - out->data()));
}

bool read_second_differences(Decoder* decoder, std::span<uint64_t> out) {
  uint64_t value = 0, step = 0;
  for (uint64_t& to : out) {
    step += unzigzag(decoder->varint64());
    value += step;
    to = value;
  }
  return decoder->ok();
}

void append_differences(std::span<const uint64_t> values, std::string* out) {
  uint64_t before = 0;
  for (const uint64_t value : values) append_u64(out, value - std::exchange(before, value));
}

bool read_differences(Decoder* decoder, std::span<uint64_t> out) {
  uint64_t value = 0;
  for (uint64_t& to : out) to = value += decoder->u64();
  return decoder->ok();
}

void append_lz77(std::span<const uint64_t> values, std::string* out) {
  std::vector<uint64_t> words(values.size());
  for (size_t i = 0; i < values.size(); ++i) words[i] = values[i] - (i == 0 ? 0 : values[i - 1]);
  std::array<uint32_t, kSlots> last{};  // position + 1 of the pair that hashed here
  const std::span<const uint64_t> all(words);
  size_t at = 0, literals = 0;
  while (at < words.size()) {
    size_t length = 0, distance = 0;
    if (at + 1 < words.size()) {
      uint32_t& slot = last[slot_of(words[at], words[at + 1])];
      if (slot != 0) {
        const size_t from = slot - 1;
        distance = at - from;
        while (at + length < words.size() && words[from + length] == words[at + length]) ++length;
      }
      slot = static_cast<uint32_t>(at + 1);
    }
    if (length >= kMatchMin) {
      append_literals(all.subspan(literals, at - literals), out);
      append_varint(out, length * 2 + 1);
      append_varint(out, distance);
      at += length;
      literals = at;
    } else {
      ++at;
    }
  }
  append_literals(all.subspan(literals), out);
}

bool read_lz77(Decoder* decoder, std::span<uint64_t> out) {
  size_t at = 0;
  while (at < out.size()) {
    const uint64_t token = decoder->varint64();
    const uint64_t count = token / 2;
    if (!decoder->ok() || count == 0 || count > out.size() - at) return false;
    if (token % 2 == 0) {
      for (uint64_t i = 0; i < count; ++i) out[at++] = unzigzag(decoder->varint64());
    } else {
      const uint64_t distance = decoder->varint64();
      if (distance == 0 || distance > at) return false;
      for (uint64_t i = 0; i < count; ++i, ++at) out[at] = out[at - distance];
    }
  }
  uint64_t value = 0;
  for (uint64_t& word : out) word = value += word;
  return decoder->ok();
}

}  // namespace swale::meta
