#include "base/status.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <set>
#include <string>

namespace swale::status_test {
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

TEST(ErrnoStatus, KeepsTheErrnoForPosixCallers) {
  for (const int number : {EIO, EACCES, ENOSPC, EDQUOT, EISDIR, ENOTDIR, ESTALE}) {
    const Status failed = errno_status(number, "/a: opening");
    EXPECT_EQ(failed.error_number(), number);
    EXPECT_EQ(failed.posix_error(), number);
    EXPECT_EQ(failed.with_context("reading the manifest").with_context("opening").posix_error(), number);
  }
  EXPECT_EQ(errno_status(4'711, "x").posix_error(), 4'711);  // of another system, perhaps
}

TEST(Status, WithoutAnErrnoAnswersTheOneThatFitsTheCode) {
  EXPECT_EQ(Status().error_number(), 0);
  EXPECT_EQ(Status().posix_error(), 0);
  const std::pair<Code, int> expected[] = {{Code::kInvalidArgument, EINVAL},
                                           {Code::kNotFound, ENOENT},
                                           {Code::kAlreadyExists, EEXIST},
                                           {Code::kCorruption, EIO},
                                           {Code::kIoError, EIO},
                                           {Code::kNoSpace, ENOSPC},
                                           {Code::kResourceExhausted, ENOMEM},
                                           {Code::kUnavailable, EHOSTDOWN},
                                           {Code::kDeadlineExceeded, ETIMEDOUT},
                                           {Code::kBusy, EBUSY},
                                           {Code::kUnsupported, EOPNOTSUPP},
                                           {Code::kAborted, ECANCELED},
                                           {Code::kInternal, EIO},
                                           {static_cast<Code>(1000), EIO}};
  for (const auto& [code, number] : expected) {
    EXPECT_EQ(Status(code, Scope::kOperation, "x").posix_error(), number) << code_name(code);
    EXPECT_EQ(Status(code, Scope::kOperation, "x").error_number(), 0);
  }
  EXPECT_EQ(Status::out_of_memory().posix_error(), ENOMEM);
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
}  // namespace swale::status_test
