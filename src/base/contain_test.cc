#include "base/contain.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace swale::contain_test {
namespace {

TEST(Contain, PassesOnWhatTheBodyReturns) {
  EXPECT_TRUE(contain([] {}).ok());
  EXPECT_TRUE(contain([] { return Status(); }).ok());
  EXPECT_EQ(contain([] { return invalid_argument("no"); }).code(), Code::kInvalidArgument);
}

TEST(Contain, TurnsExceptionsIntoFailures) {
  EXPECT_EQ(contain([] { throw std::bad_alloc(); }).code(), Code::kResourceExhausted);
  const Status runtime = contain([] { throw std::runtime_error("boom"); });
  EXPECT_EQ(runtime.code(), Code::kInternal);
  EXPECT_NE(runtime.message().find("boom"), std::string_view::npos);
  EXPECT_EQ(contain([] { throw 7; }).code(), Code::kInternal);
  const auto again = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(contain([&] { throw std::system_error(again); }).code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace swale::contain_test
