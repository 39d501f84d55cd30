#include "base/status.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <set>
#include <string>

namespace swale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Status, OkCarriesNothing) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::kOk);
  EXPECT_EQ(ok.to_string(), "ok");
  EXPECT_TRUE(ok.with_context("while testing").ok());
}

TEST(Status, ShowsCodeScopeAndMessage) {
  const Status status = corruption("{}: block {}", "/a/b", 7);
  EXPECT_EQ(status.to_string(), "corruption (file): /a/b: block 7");
  EXPECT_EQ(status.with_context("opening").message(), "opening: /a/b: block 7");
  EXPECT_EQ(status.with_context("opening").scope(), Scope::kFile);
}

TEST(Status, EveryCodeAndScopeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code)
    names.insert(code_name(static_cast<Code>(code)));
  for (int scope = 0; scope <= static_cast<int>(Scope::kFatal); ++scope)
    names.insert(scope_name(static_cast<Scope>(scope)));
  EXPECT_EQ(names.size(), 14u + 5u);
  EXPECT_EQ(names.count("unknown code"), 0u);
  EXPECT_EQ(code_name(static_cast<Code>(1000)), "unknown code");
  EXPECT_EQ(scope_name(static_cast<Scope>(1000)), "unknown scope");
}

TEST(ErrnoStatus, MapsTheKindsThatCallersActOn) {
  EXPECT_EQ(errno_status(ENOSPC, "x").code(), Code::kNoSpace);
  EXPECT_EQ(errno_status(EDQUOT, "x").code(), Code::kNoSpace);
  EXPECT_EQ(errno_status(ENOENT, "x").code(), Code::kNotFound);
  EXPECT_EQ(errno_status(EEXIST, "x").code(), Code::kAlreadyExists);
  EXPECT_EQ(errno_status(EIO, "x").code(), Code::kIoError);
  EXPECT_EQ(errno_status(EACCES, "x").code(), Code::kIoError);
  EXPECT_EQ(errno_status(EIO, "x").scope(), Scope::kFile);
}

TEST(ErrnoStatus, NamesTheCallTheReasonAndTheRemedy) {
  EXPECT_EQ(errno_status(EIO, "/a: reading").message(), "/a: reading: Input/output error");
  EXPECT_THAT(std::string(errno_status(ENOSPC, "/a: writing 9 bytes").message()),
              AllOf(HasSubstr("/a: writing 9 bytes: No space left on device; "), HasSubstr("free space")));
  EXPECT_THAT(std::string(errno_status(EACCES, "/a: opening").message()), HasSubstr("permissions"));
}

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("{} is odd", n);
  return n / 2;
}
Result<int> quarter(int n) {
  SWALE_ASSIGN_OR_RETURN(const int once, half(n));
  SWALE_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Result, MacrosPassValuesAndFailuresOn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
}

}  // namespace
}  // namespace swale
