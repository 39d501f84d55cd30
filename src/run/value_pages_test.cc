#include "run/value_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/coding.h"
#include "base/rng.h"

namespace swale::run::value_pages_test {
namespace {

using testing::HasSubstr;

constexpr PartitionNumber kWriter(9);
constexpr uint64_t kPage = 77;

std::string page_with(ValuePageTrailer trailer) {
  std::string page(kValuePageBytes, 'p');
  seal_value_page(page.data(), kWriter, trailer);
  return page;
}
std::string page() {
  return page_with({.epoch_id = 0xe0c,
                    .epoch = EpochNumber(3),
                    .page = kPage,
                    .values = 5,
                    .first_start = 17,
                    .crc32c = 0});
}

TEST(PagePointer, HoldsTheLimitsOfEachOfItsNumbers) {
  Rng rng(1);
  for (int i = 0; i < 10'000; ++i) {
    const auto some = [&](uint64_t least, uint64_t most) {
      return rng.chance(1, 3) ? least : rng.chance(1, 2) ? most : least + rng.below(most - least + 1);
    };
    const ValuePointer pointer{some(0, kValuePositionMax),
                               static_cast<uint32_t>(some(kPagePointerBytes, kLargeValueBytesMax)),
                               PartitionNumber(static_cast<uint32_t>(some(0, kRanksMax - 1))), 0};
    std::string stored = rng.chance(1, 2) ? "prefix" : "";
    stored.resize(stored.size() + kPagePointerBytes);
    put_page_pointer(stored.data() + stored.size() - kPagePointerBytes, pointer);
    const auto decoded = decode_paged_value(stored, "test");
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->pointer, pointer);
    EXPECT_EQ(decoded->prefix.size(), stored.size() - kPagePointerBytes);
  }
}

TEST(PagePointer, OfImpossibleNumbersIsDamage) {
  std::string stored(kPagePointerBytes, '\0');
  EXPECT_EQ(decode_paged_value(stored, "test").status().code(), Code::kCorruption) << "a value of one byte";
  EXPECT_FALSE(decode_paged_value(stored.substr(1), "test").ok());
  put_page_pointer(stored.data(),
                   {.offset = 5, .value_bytes = 20, .writer = PartitionNumber(1), .checksum = 0});
  EXPECT_TRUE(decode_paged_value(stored, "test").ok());
  const auto longer = decode_paged_value(std::string(21, 'p') + stored, "test");
  EXPECT_THAT(longer.status().to_string(), HasSubstr("test")) << "a prefix longer than the value";
}

TEST(PagePointer, ItsRecordIsAPlainOne) {
  for (const size_t prefix_bytes : {size_t{0}, size_t{1}, size_t{115}, size_t{116}, size_t{16'372}}) {
    const std::string prefix(prefix_bytes, 'f');
    std::string encoded(encoded_record_bytes(3, prefix_bytes + kPagePointerBytes), '\0');
    encode_paged_record("key", prefix,
                        {.offset = 1, .value_bytes = 20'000, .writer = PartitionNumber(2), .checksum = 0},
                        encoded.data());
    RecordView record;
    ASSERT_EQ(parse_record(encoded, &record), RecordParse::kOk);
    EXPECT_EQ(record.encoded.size(), encoded.size());
    EXPECT_FALSE(is_large(record));
    EXPECT_TRUE(points(ValueRule::kPaged, record));
    EXPECT_FALSE(points(ValueRule::kLarge, record));
    EXPECT_EQ(stored_fields(ValueRule::kPaged, record), prefix);
  }
  const RecordView inline_value{.key = "key", .value = "eleven byte", .encoded = {}};
  EXPECT_FALSE(points(ValueRule::kPaged, inline_value));
  EXPECT_EQ(stored_fields(ValueRule::kPaged, inline_value), "eleven byte");
}

TEST(ValuePage, IsTakenAtItsPlaceOnly) {
  const std::string good = page();
  const auto trailer = verify_value_page(good, kWriter, kPage, "/log");
  ASSERT_TRUE(trailer.ok()) << trailer.status().to_string();
  EXPECT_EQ(trailer->epoch_id, 0xe0cu);
  EXPECT_EQ(trailer->epoch, 3u);
  EXPECT_EQ(trailer->values, 5u);
  EXPECT_EQ(trailer->first_start, 17u);
  EXPECT_FALSE(verify_value_page(good, kWriter + 1, kPage, "/log").ok());
  EXPECT_THAT(verify_value_page(good, kWriter, kPage + 1, "/log").status().to_string(),
              HasSubstr("/log: offset 319488: expected page 78 of rank 9, found page 77"));
  EXPECT_FALSE(verify_value_page(Bytes(good).substr(1), kWriter, kPage, "/log").ok());
  EXPECT_FALSE(verify_value_page(std::string(kValuePageBytes, '\0'), kWriter, kPage, "/log").ok());
}

TEST(ValuePage, EveryFlippedBitIsDamage) {
  std::string bytes = page();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(verify_value_page(bytes, kWriter, kPage, "/log").status().code(), Code::kCorruption) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_TRUE(verify_value_page(bytes, kWriter, kPage, "/log").ok());
}

TEST(ValuePage, OfImpossibleNumbersIsDamageThoughItsChecksumFits) {
  const auto with = [](uint16_t values, uint16_t first_start) {
    const std::string bytes = page_with({.epoch_id = 1,
                                         .epoch = EpochNumber(1),
                                         .page = kPage,
                                         .values = values,
                                         .first_start = first_start,
                                         .crc32c = 0});
    return verify_value_page(bytes, kWriter, kPage, "/log").ok();
  };
  EXPECT_TRUE(with(0, kNoValueStarts));
  EXPECT_TRUE(with(1, kValuePagePayloadBytes - 1));
  EXPECT_FALSE(with(1, kValuePagePayloadBytes));
  EXPECT_FALSE(with(1, kNoValueStarts));
  EXPECT_FALSE(with(0, 0));
}

}  // namespace
}  // namespace swale::run::value_pages_test
