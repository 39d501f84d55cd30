#include "run/schema.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/coding.h"

namespace swale::run::schema_test {
namespace {

template <class T>
OrderKey key_of(FieldType type, T number) {
  std::string bytes(sizeof(T), '\0');
  put_fixed(bytes.data(), number);
  const FieldValue value = read_field({"x", type, 0}, bytes);
  EXPECT_EQ(value.kind, FieldValue::Kind::kNumber);
  return value.key;
}

template <class T>
void expect_ascending(FieldType type, std::initializer_list<T> numbers) {
  const T* before = nullptr;
  for (const T& number : numbers) {
    if (before != nullptr) {
      EXPECT_LT(key_of(type, *before), key_of(type, number)) << *before << " " << number;
    }
    EXPECT_EQ(number_of(type, key_of(type, number)), static_cast<double>(number));
    before = &number;
  }
}

TEST(Schema, KeysAreInTheOrderOfTheNumbers) {
  using D = std::numeric_limits<double>;
  using F = std::numeric_limits<float>;
  expect_ascending<double>(
      FieldType::kF8, {-D::infinity(), D::lowest(), -1.5, -D::min(), -D::denorm_min(), 0.0, D::denorm_min(),
                       D::min(), 1.0, std::nextafter(1.0, 2.0), D::max(), D::infinity()});
  expect_ascending<float>(FieldType::kF4,
                          {-F::infinity(), F::lowest(), -1.5f, -F::denorm_min(), 0.0f, F::denorm_min(), 1.0f,
                           std::nextafter(1.0f, 2.0f), F::max(), F::infinity()});
  expect_ascending<int64_t>(FieldType::kI8,
                            {INT64_MIN, -(int64_t{1} << 53), -1, 0, 1, int64_t{1} << 53, INT64_MAX});
  expect_ascending<uint64_t>(FieldType::kU8, {0, 1, uint64_t{1} << 53, (uint64_t{1} << 53) + 1, UINT64_MAX});
  expect_ascending<int8_t>(FieldType::kI1, {-128, -1, 0, 1, 127});
  expect_ascending<int16_t>(FieldType::kI2, {INT16_MIN, -1, 0, 1, INT16_MAX});
  expect_ascending<int32_t>(FieldType::kI4, {INT32_MIN, -1, 0, 1, INT32_MAX});
  expect_ascending<uint8_t>(FieldType::kU1, {0, 1, 255});
  expect_ascending<uint16_t>(FieldType::kU2, {0, 1, 65535});
  expect_ascending<uint32_t>(FieldType::kU4, {0, 1, UINT32_MAX});
  EXPECT_EQ(key_of(FieldType::kF8, -0.0), key_of(FieldType::kF8, 0.0));
  EXPECT_EQ(key_of(FieldType::kF4, -0.0f), key_of(FieldType::kF4, 0.0f));
}

TEST(Schema, NumbersAsText) {
  EXPECT_EQ(text_of(FieldType::kU8, key_of(FieldType::kU8, UINT64_MAX)), "18446744073709551615");
  EXPECT_EQ(text_of(FieldType::kI8, key_of(FieldType::kI8, INT64_MIN)), "-9223372036854775808");
  EXPECT_EQ(text_of(FieldType::kF4, key_of(FieldType::kF4, 0.1f)), "0.1");
  EXPECT_EQ(text_of(FieldType::kF8, key_of(FieldType::kF8, -0.1)), "-0.1");
  EXPECT_EQ(text_of(FieldType::kF8, key_of(FieldType::kF8, std::numeric_limits<double>::infinity())), "inf");
}

TEST(Schema, NanIsNoNumberAndAShortValueHasNoField) {
  std::string bytes(8, '\0');
  for (const double nan : {std::nan(""), -std::nan("")}) {
    put_fixed(bytes.data(), nan);
    EXPECT_EQ(read_field({"x", FieldType::kF8, 0}, bytes).kind, FieldValue::Kind::kNan);
    put_fixed(bytes.data(), static_cast<float>(nan));
    EXPECT_EQ(read_field({"x", FieldType::kF4, 0}, bytes).kind, FieldValue::Kind::kNan);
  }
  EXPECT_EQ(read_field({"x", FieldType::kU8, 0}, "1234567").kind, FieldValue::Kind::kAbsent);
  EXPECT_EQ(read_field({"x", FieldType::kU8, 1}, "12345678").kind, FieldValue::Kind::kAbsent);
  EXPECT_EQ(read_field({"x", FieldType::kU1, 7}, "12345678").kind, FieldValue::Kind::kNumber);
}

TEST(Schema, ParsesWhatItPrints) {
  const auto schema = Schema::parse("id:u8;v:f4x3:m/s;_:u1x4;ke:f8:J", "ke;v[1]");
  ASSERT_TRUE(schema.ok()) << schema.status().to_string();
  EXPECT_EQ(schema->fields_text(), "id:u8;v:f4x3:m/s;_:4;ke:f8:J");
  EXPECT_EQ(schema->indexed_text(), "ke;v[1]");
  ASSERT_EQ(schema->indexed.size(), 2u);
  EXPECT_EQ(schema->indexed[0], (FieldPlace{"ke", FieldType::kF8, 24}));
  EXPECT_EQ(schema->indexed[1], (FieldPlace{"v[1]", FieldType::kF4, 12}));
  EXPECT_EQ(*Schema::parse(schema->fields_text(), schema->indexed_text()), *schema);
  EXPECT_EQ(schema->find("ke[0]")->name, "ke");
  EXPECT_TRUE(Schema::parse("", "")->empty());
  EXPECT_EQ(*Schema::parse("a:i4;_:4;e:f8", ""), *Schema::parse("a:i4;_:u1x4;e:f8", ""));
  EXPECT_EQ(Schema::parse("a:i4;_:u1x4;e:f8", "")->fields_text(), "a:i4;_:4;e:f8");
  EXPECT_EQ(Schema::parse("a:i4;_:*", "")->fields_text(), "a:i4;_:*");
  EXPECT_EQ(*Schema::parse(Schema::parse("a:i4;_:*", "")->fields_text(), ""), *Schema::parse("a:i4;_:*", ""));
}

TEST(Schema, PaddingHasALengthAndNoName) {
  const auto schema = Schema::parse("type:i4;_:4;energy:f8;_:16", "energy");
  ASSERT_TRUE(schema.ok()) << schema.status().to_string();
  EXPECT_EQ(schema->value_bytes(), 32u);
  EXPECT_EQ(schema->find("energy")->offset, 8u);
  EXPECT_FALSE(schema->find("_").ok());
  EXPECT_EQ(schema->exact_bytes(), 32u);
  EXPECT_FALSE(Schema::parse("type:i4;_:*", "")->exact_bytes().has_value());
  EXPECT_FALSE(Schema().exact_bytes().has_value());
  for (const char* text :
       {"_:0", "_:*", "a:i4;_:*;b:i4", "a:i4;_:*;_:*", "a:4", "a:*", "a:i4;_:16381", "_:-1", "_:"})
    EXPECT_EQ(Schema::parse(text, "").status().code(), Code::kInvalidArgument) << text;
}

// What a C compiler makes of struct { int type; double energy; }.
TEST(Schema, TellsBothLengthsAndHowPaddingIsWritten) {
  const auto schema = Schema::parse("type:i4;energy:f8", "");
  EXPECT_TRUE(schema->check_length(12).ok());
  const Status longer = schema->check_length(16);
  EXPECT_EQ(longer.code(), Code::kInvalidArgument);
  EXPECT_EQ(longer.scope(), Scope::kOperation);
  for (const char* part : {"16 bytes", "describes 12", "\"_:N\"", "4 more", "\";_:*\""})
    EXPECT_NE(longer.message().find(part), std::string_view::npos) << longer.message();
  EXPECT_NE(schema->check_length(11).message().find("11 bytes"), std::string_view::npos);
  EXPECT_EQ(schema->check_length(11).message().find("padding"), std::string_view::npos);
  EXPECT_TRUE(Schema::parse("type:i4;energy:f8;_:*", "")->check_length(3).ok());
  EXPECT_TRUE(Schema().check_length(3).ok());
}

TEST(Schema, SaysWhatIsWrong) {
  const auto message = [](std::string_view fields, std::string_view indexed) {
    const auto schema = Schema::parse(fields, indexed);
    EXPECT_EQ(schema.status().code(), Code::kInvalidArgument) << fields << " | " << indexed;
    return std::string(schema.status().message());
  };
  EXPECT_NE(message("x", "").find("no type"), std::string::npos);
  EXPECT_NE(message("x:f2", "").find("unknown type \"f2\""), std::string::npos);
  EXPECT_NE(message("x:f8x", "").find("count"), std::string::npos);
  EXPECT_NE(message("x:f8x0", "").find("at least one element"), std::string::npos);
  EXPECT_NE(message("x:f8x2049", "").find("16384 bytes"), std::string::npos);
  EXPECT_NE(message("x:f8;x:f4", "").find("two fields"), std::string::npos);
  EXPECT_NE(message(":f8", "").find("names have"), std::string::npos);
  EXPECT_NE(message("x:f8;v:f4x3", "y").find("x, v[0..2]"), std::string::npos);
  for (const char* name : {"v", "v[3]", "v[]", "v[-1]", "v[0", "_", "[0]"}) message("v:f4x3;_:u1", name);
  EXPECT_NE(message("", "x").find("none"), std::string::npos);
  EXPECT_NE(message("x:f8", "x;x[0]").find("twice"), std::string::npos);
  message("v:f8x9", "v[0];v[1];v[2];v[3];v[4];v[5];v[6];v[7];v[8]");
}

}  // namespace
}  // namespace swale::run::schema_test
