#include "run/record.h"

#include <gtest/gtest.h>

namespace swale::run::record_test {
namespace {

std::string encode(Bytes key, Bytes value) {
  std::string out(encoded_record_bytes(key.size(), value.size()), '\0');
  EXPECT_EQ(encode_record(key, value, out.data()), out.data() + out.size());
  return out;
}

TEST(Record, RoundTripsAtTheLimits) {
  for (const size_t key_bytes : {1, 8, 127, 128, 255}) {
    for (const size_t value_bytes : {0, 1, 40, 127, 128, 16'383, 16'384}) {
      const std::string key(key_bytes, 'k');
      const std::string value(value_bytes, 'v');
      const std::string bytes = encode(key, value);
      const std::string more = bytes + "next record";
      RecordView record;
      ASSERT_EQ(parse_record(more, &record), RecordParse::kOk);
      EXPECT_EQ(record.key, key);
      EXPECT_EQ(record.value, value);
      EXPECT_EQ(record.encoded, bytes);
    }
  }
  EXPECT_EQ(encoded_record_bytes(kKeyBytesMax, kValueBytesMax) + kPointerBytes, kEncodedRecordBytesMax);
}

TEST(Record, KeepsBytesThatAreNotText) {
  const std::string key("\0\xff\n\x80", 4);
  const std::string bytes = encode(key, key);
  RecordView record;
  ASSERT_EQ(parse_record(bytes, &record), RecordParse::kOk);
  EXPECT_EQ(record.key, key);
  EXPECT_EQ(record.value, key);
}

TEST(Record, EveryShorterPrefixIsCutOff) {
  const std::string bytes = encode("12345678", std::string(200, 'x'));
  for (size_t size = 0; size < bytes.size(); ++size) {
    RecordView record;
    EXPECT_EQ(parse_record(Bytes(bytes).substr(0, size), &record), RecordParse::kCutOff) << size;
  }
}

TEST(Record, RefusesSizesOutsideTheLimits) {
  const auto parse = [](std::string bytes) {
    bytes.resize(bytes.size() + 20'000);
    RecordView record;
    return parse_record(bytes, &record);
  };
  EXPECT_EQ(parse(std::string("\0\x01", 2)), RecordParse::kMalformed);  // no key
  EXPECT_EQ(parse("\x80\x02\x01"), RecordParse::kMalformed);            // a key of 256
  EXPECT_EQ(parse("\x08\x81\x80\x01"), RecordParse::kMalformed);        // 1 byte, where a pointer has 24
  EXPECT_EQ(parse("\x08\x97\x80\x01"), RecordParse::kMalformed);        // 23 bytes
  EXPECT_EQ(parse("\x08\x98\x80\x01"), RecordParse::kOk);               // 24 bytes, a pointer
  EXPECT_EQ(parse("\x08\x98\x80\x02"), RecordParse::kOk);               // 16,384 and a pointer
  EXPECT_EQ(parse("\x08\x99\x80\x02"), RecordParse::kMalformed);        // one more
  EXPECT_EQ(parse(std::string(11, '\xff')), RecordParse::kMalformed);   // no varint at all
  EXPECT_EQ(parse("\x08\x80\x80\x01"), RecordParse::kOk);               // a value of 16,384
}

}  // namespace
}  // namespace swale::run::record_test
