// Heads of values and pointers to them: whatever decodes is what encodes to it again.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "run/value_format.h"

namespace swale::run::fuzz {
namespace {

std::string make_head() {
  ValueHead head;
  head.offset = 4096;
  head.epoch_id = 77;
  head.key_hash = 99;
  head.writer = kPartition;
  head.value_bytes = 200'000;
  for (uint32_t i = 0; i < value_pieces(head.value_bytes); ++i) head.pieces.push_back(i);
  return encode_value_head(&head);
}

void fuzz_head(Bytes input) {
  static const std::string good = make_head();
  std::string bytes = good;
  apply_edits(input, 0, &bytes);
  const uint32_t seed = epoch_seed(get_u32(bytes.data() + 36), get_u64(bytes.data() + 16));
  put_u32(bytes.data() + 4, crc32c_extend(seed, Bytes(bytes).substr(8)));
  auto head = decode_value_head(bytes, kPartition, 4096, "fuzz");
  if (!head.ok()) return;
  require(head->value_bytes > kValueBytesMax && head->value_bytes <= kLargeValueBytesMax);
  put_u32(bytes.data() + 44, 0);  // reserved
  require(encode_value_head(&*head).substr(8) == bytes.substr(8));
}

void fuzz_pointer(Bytes input) {
  const auto value = decode_large_value(input, "fuzz");
  if (!value.ok()) return;
  require(value->prefix.size() + kPointerBytes == input.size() &&
          value->prefix.size() <= value->pointer.value_bytes);
  const std::string again = encode_large_value(*value);
  require(again.size() == input.size() &&
          Bytes(again).substr(0, input.size() - 4) == input.substr(0, input.size() - 4));
}

}  // namespace
}  // namespace swale::run::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const swale::Bytes input(reinterpret_cast<const char*>(data), size);
  swale::run::fuzz::fuzz_head(input);
  swale::run::fuzz::fuzz_pointer(input);
  return 0;
}
