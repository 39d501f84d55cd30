#include "capi/boundary.h"

#include <exception>
#include <string>

namespace swale::capi {
namespace {

constexpr char kNoMemoryForTheText[] = "no memory left, not even for this error's text";

struct LastError {
  std::string text;
  const char* fixed = nullptr;  // instead of the text
};
thread_local LastError last;

}  // namespace

int report(const Status& status) {
  try {
    last.text.assign(status.message());
    last.fixed = nullptr;
  } catch (...) {
    last.fixed = kNoMemoryForTheText;
  }
  return static_cast<int>(status.code());
}

Status status_of_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return error(Code::kResourceExhausted, Scope::kOperation, "out of memory");
  } catch (const std::exception& exception) {
    return error(Code::kInternal, Scope::kOperation, "unexpected exception: {}; please report it",
                 exception.what());
  } catch (...) {
    return error(Code::kInternal, Scope::kOperation, "unexpected exception; please report it");
  }
}

const char* last_error() { return last.fixed != nullptr ? last.fixed : last.text.c_str(); }

}  // namespace swale::capi
