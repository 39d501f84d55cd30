#include "meta/index/codec.h"

#include "meta/index/zigzag.h"

namespace swale::meta {

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

}  // namespace swale::meta
