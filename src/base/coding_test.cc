#include "base/coding.h"

#include <gmock/gmock.h>

#include <limits>

#include "base/rng.h"

namespace swale::coding_test {
namespace {

using ::testing::HasSubstr;

TEST(Coding, FixedIntegersAreLittleEndian) {
  std::string bytes;
  append_u16(&bytes, 0x0102);
  append_u32(&bytes, 0x03040506);
  append_u64(&bytes, 0x0708090a0b0c0d0e);
  EXPECT_EQ(bytes, std::string("\x02\x01\x06\x05\x04\x03\x0e\x0d\x0c\x0b\x0a\x09\x08\x07"));
}

TEST(Coding, FixedValuesReadAsWritten) {
  char bytes[9];
  put_fixed(bytes + 1, int64_t{-5});  // unaligned
  EXPECT_EQ(get_fixed<int64_t>(bytes + 1), -5);
  put_fixed(bytes + 1, -0.25);
  EXPECT_EQ(get_fixed<double>(bytes + 1), -0.25);
}

TEST(Coding, VarintsHaveTheirKnownBytes) {
  std::string bytes;
  append_varint(&bytes, 0);
  append_varint(&bytes, 127);
  append_varint(&bytes, 128);
  append_varint(&bytes, 300);
  EXPECT_EQ(bytes, std::string("\x00\x7f\x80\x01\xac\x02", 6));
}

TEST(Coding, VarintsReadAsWrittenAtEveryBitLength) {
  Rng rng(1);
  for (unsigned bits = 0; bits <= 64; ++bits) {
    for (int i = 0; i < 20; ++i) {
      const uint64_t value = bits == 0 ? 0 : (rng.next() >> (64 - bits)) | (uint64_t{1} << (bits - 1));
      std::string bytes;
      append_varint(&bytes, value);
      EXPECT_EQ(bytes.size(), varint_bytes(value));
      Decoder decoder(bytes);
      EXPECT_EQ(decoder.varint64(), value);
      EXPECT_TRUE(decoder.finished());

      Decoder narrow(bytes);
      const uint32_t low = narrow.varint32();
      EXPECT_EQ(narrow.ok(), value <= std::numeric_limits<uint32_t>::max());
      EXPECT_EQ(low, narrow.ok() ? value : 0);
    }
  }
}

TEST(Coding, VarintThatDoesNotFit64BitsIsRefused) {
  const std::string most = std::string(9, '\xff') + '\x01';
  Decoder good(most);
  EXPECT_EQ(good.varint64(), UINT64_MAX);
  EXPECT_TRUE(good.finished());
  Decoder too_large(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"));
  too_large.varint64();
  EXPECT_FALSE(too_large.ok());
  Decoder endless(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  endless.varint64();
  EXPECT_FALSE(endless.ok());
}

std::string sample() {
  std::string bytes;
  append_u8(&bytes, 1);
  append_u16(&bytes, 2);
  append_u32(&bytes, 3);
  append_u64(&bytes, 4);
  append_i64(&bytes, -5);
  append_double(&bytes, 0.5);
  append_sized(&bytes, "text");
  append_varint(&bytes, 1u << 20);
  bytes += "tail";
  return bytes;
}

bool read_sample(Decoder& decoder) {
  return decoder.u8() == 1 && decoder.u16() == 2 && decoder.u32() == 3 && decoder.u64() == 4 &&
         decoder.i64() == -5 && decoder.f64() == 0.5 && decoder.sized() == "text" &&
         decoder.varint32() == 1u << 20 && decoder.bytes(4) == "tail";
}

TEST(Decoder, ReadsAWholeStructure) {
  const std::string bytes = sample();
  Decoder decoder(bytes);
  EXPECT_TRUE(read_sample(decoder));
  EXPECT_TRUE(decoder.finished());
  EXPECT_TRUE(decoder.finish("sample").ok());
}

TEST(Decoder, EveryTruncationFailsAndNothingIsReadBeyondIt) {
  const std::string bytes = sample();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut(bytes, 0, length);  // its own allocation: a sanitizer sees reads beyond
    Decoder decoder(cut);
    EXPECT_FALSE(read_sample(decoder));
    EXPECT_EQ(decoder.status("sample").code(), Code::kCorruption) << length;
  }
}

TEST(Decoder, StaysFailedAndNamesWhere) {
  Decoder decoder(std::string_view("\x01\x02\x03"));
  decoder.u8();
  EXPECT_EQ(decoder.u32(), 0u);
  EXPECT_EQ(decoder.u8(), 0u);
  EXPECT_EQ(decoder.rest(), "");
  EXPECT_THAT(std::string(decoder.status("/a: header").message()), HasSubstr("/a: header"));
  EXPECT_THAT(std::string(decoder.status("/a: header").message()), HasSubstr("byte 1 of 3"));
}

TEST(Decoder, HugeLengthIsRefused) {
  std::string bytes;
  append_varint(&bytes, UINT64_MAX);
  bytes += "x";
  Decoder decoder(bytes);
  EXPECT_EQ(decoder.sized(), "");
  EXPECT_FALSE(decoder.ok());
}

TEST(Decoder, FinishRefusesLeftovers) {
  Decoder decoder(std::string_view("\x01\x02"));
  decoder.u8();
  EXPECT_TRUE(decoder.status("x").ok());
  EXPECT_EQ(decoder.finish("x").code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::coding_test
