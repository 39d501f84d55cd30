#include "capi/boundary.h"

#include <cassert>
#include <string>

#include "base/plain_text.h"

namespace swale::capi {
namespace {

constexpr char kNoMemoryForTheText[] = "no memory left, not even for this error's text";

struct LastError {
  std::string text;
  const char* fixed = nullptr;  // replaces the text if not null
  int code = SWALE_OK;
};
thread_local LastError last;

}  // namespace

int report(const Status& status) noexcept {
  assert(!status.ok());  // a success would be a failure with the code SWALE_OK
  last.code = static_cast<int>(status.code());
  try {
    last.text = plain_text(status.message());  // programs print it on terminals
    last.fixed = nullptr;
  } catch (...) {
    last.fixed = kNoMemoryForTheText;
  }
  return last.code;
}

const char* last_error() { return last.fixed != nullptr ? last.fixed : last.text.c_str(); }

int last_code() { return last.code; }

}  // namespace swale::capi
