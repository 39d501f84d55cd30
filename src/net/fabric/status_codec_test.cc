#include "net/fabric/status_codec.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace swale::net::status_codec_test {
namespace {

TEST(StatusCodec, AStatusOfAnyLengthTravels) {
  Status back;
  ASSERT_TRUE(decode_status(encode_status(Status()), &back).ok());
  EXPECT_TRUE(back.ok());
  const Status status = error(Code::kBusy, Scope::kNode, "{}", std::string(5000, 'm'));
  ASSERT_TRUE(decode_status(encode_status(status), &back).ok());
  EXPECT_EQ(back.code(), Code::kBusy);
  EXPECT_EQ(back.scope(), Scope::kNode);
  EXPECT_EQ(back.message(), std::string(kKiB, 'm'));
}

TEST(StatusCodec, AnErrnoTravels) {
  Status back;
  const Status busy = errno_status(EBUSY, "/dir: removing").with_context("rank 3");
  ASSERT_TRUE(decode_status(encode_status(busy), &back).ok());
  EXPECT_EQ(back.error_number(), EBUSY);
  EXPECT_EQ(back.posix_error(), EBUSY);
  EXPECT_EQ(back.code(), busy.code());
  EXPECT_EQ(back.message(), busy.message());
  ASSERT_TRUE(decode_status(encode_status(error(Code::kNoSpace, Scope::kFile, "full")), &back).ok());
  EXPECT_EQ(back.error_number(), 0);
  std::string strange = encode_status(busy);
  strange[3] = '\x10';  // 4096 and more
  ASSERT_TRUE(decode_status(strange, &back).ok());
  EXPECT_EQ(back.error_number(), 0);
}

TEST(StatusCodec, EveryTruncationAndAnyTrailingByteIsRefused) {
  const std::string bytes = encode_status(error(Code::kNoSpace, Scope::kFile, "disk {} full", 7));
  Status untouched;
  for (size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(decode_status(Bytes(bytes).substr(0, length), &untouched).ok()) << length;
  }
  EXPECT_FALSE(decode_status(bytes + "x", &untouched).ok());
  EXPECT_TRUE(untouched.ok());
}

TEST(StatusCodec, ACodeOfAnotherBuildIsStillAFailureWithItsText) {
  std::string bytes = encode_status(error(Code::kNoSpace, Scope::kFile, "full"));
  bytes[0] = 99;
  Status back;
  ASSERT_TRUE(decode_status(bytes, &back).ok());
  EXPECT_EQ(back.code(), Code::kInternal);
  EXPECT_NE(back.message().find("full"), std::string_view::npos);
}

}  // namespace
}  // namespace swale::net::status_codec_test
