// What base does when there is no memory: each allocation of a run fails in turn, alone and with all later
// ones.
#include <gtest/gtest.h>

#include <cerrno>
#include <new>

#include "base/sealed_document.h"
#include "tests/faults/failing_new.h"

namespace swale::base_allocations_test {
namespace {

using faults::FailingNew;

TEST(StatusWithoutMemory, KeepsCodeScopeAndErrno) {
  const std::string long_text(200, 'x');
  const Status whole = errno_status(ENOSPC, long_text);
  Status made, passed_on, plain;
  {
    const FailingNew none(FailingNew::Which::kFromThere, 1);
    made = errno_status(ENOTEMPTY, long_text);
    passed_on = whole.with_context(long_text);
    plain = error(Code::kBusy, Scope::kNode, "{}", long_text);
  }
  EXPECT_EQ(made.error_number(), ENOTEMPTY);
  EXPECT_EQ(made.code(), Code::kIoError);
  EXPECT_EQ(passed_on.error_number(), ENOSPC);
  EXPECT_EQ(passed_on.code(), Code::kNoSpace);
  EXPECT_EQ(passed_on.scope(), Scope::kFile);
  EXPECT_EQ(plain.error_number(), 0);
  EXPECT_EQ(plain.code(), Code::kBusy);
  EXPECT_EQ(plain.scope(), Scope::kNode);
  EXPECT_NE(made.message(), "");
}

std::string write_document(size_t parts) {
  JsonWriter json;
  begin_document({.name = "swale-test"}, {}, &json);
  json.name("parts").array();
  for (size_t i = 0; i < parts; ++i) {
    json.line().object().member("what", "a part with a name that needs memory").name("deep").object();
    json.member("er", "\n").end().end().line();
  }
  json.end();
  return take_sealed(&json);
}

size_t read_document(Bytes text) {
  const auto document = SealedDocument::parse(text, "DIR/x.json");
  if (!document.ok() || !document->check_header({.name = "swale-test"}).ok()) return 0;
  const DocumentObject root = document->root();
  size_t read = 0;
  const auto parts = root.array("parts");
  for (const JsonValue part : *parts) read += root.below(part, "part").text("what").ok() ? 1 : 0;
  return read;
}

// Runs `work` until no allocation fails any more; answers how many runs ran out of memory. A destructor that
// throws, or a noexcept function that allocates, would end this process.
template <class Work>
uint64_t runs_out(FailingNew::Which which, const Work& work) {
  for (uint64_t nth = 1;; ++nth) {
    const FailingNew plan(which, nth);
    try {
      work();
      return nth - 1;
    } catch (const std::bad_alloc&) {
      EXPECT_GT(FailingNew::failed(), 0u);
    }
  }
}

TEST(SealedDocumentWithoutMemory, ThrowsAndEndsNothing) {
  constexpr size_t kParts = 50;
  const std::string text = write_document(kParts);
  for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
    size_t read = 0;
    EXPECT_GT(runs_out(which, [&] { read = read_document(text); }), 50u);
    EXPECT_EQ(read, kParts);
    size_t written = 0;
    EXPECT_GT(runs_out(which, [&] { written = write_document(kParts).size(); }), 5u);
    EXPECT_EQ(written, text.size());
  }
}

}  // namespace
}  // namespace swale::base_allocations_test
