// Heads of values, pages of values and pointers to both: whatever decodes is what encodes to it again.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/value_format.h"
#include "run/value_pages.h"

namespace swale::run::fuzz::run_value_fuzz {
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
  const uint32_t seed = epoch_seed(PartitionNumber(get_u32(bytes.data() + 36)), get_u64(bytes.data() + 16));
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

void fuzz_page(Bytes input) {
  std::string page(kValuePageBytes, 'v');
  const ValuePageTrailer trailer{
      .epoch_id = 77, .epoch = EpochNumber(3), .page = 9, .values = 4, .first_start = 30, .crc32c = 0};
  seal_value_page(page.data(), kPartition, trailer);
  apply_edits(input, 0, &page);
  if (page.size() != kValuePageBytes) return;
  const uint32_t fitting =
      crc32c_extend(partition_seed(kPartition), Bytes(page).substr(0, kValuePageBytes - sizeof(uint32_t)));
  put_u32(page.data() + kValuePageBytes - sizeof(uint32_t), fitting);
  const auto decoded = verify_value_page(page, kPartition, 9, "fuzz");
  if (!decoded.ok()) return;
  require(decoded->page == 9 && (decoded->values > 0) == (decoded->first_start < kValuePagePayloadBytes));
  std::string again = page;
  seal_value_page(again.data(), kPartition, *decoded);
  require(again == page);
}

void fuzz_page_pointer(Bytes input) {
  const auto value = decode_paged_value(input, "fuzz");
  if (!value.ok()) return;
  require(value->prefix.size() + kPagePointerBytes == input.size());
  char again[kPagePointerBytes];
  put_page_pointer(again, value->pointer);
  require(Bytes(again, sizeof(again)) == input.substr(value->prefix.size()));
}

}  // namespace

SWALE_FUZZ_TARGET(run_value_fuzz) {
  const swale::Bytes input(reinterpret_cast<const char*>(data), size);
  fuzz_head(input);
  fuzz_pointer(input);
  fuzz_page(input);
  fuzz_page_pointer(input);
  return 0;
}

}  // namespace swale::run::fuzz::run_value_fuzz
