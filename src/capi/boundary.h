// Boundary: the common frame of all entry points of the C interface: it lets no exception out, keeps the
// failure for swale_last_error, and checks arguments by name.
//
// Threads: the last error is the thread's own.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/contain.h"
#include "base/status.h"

// The library is compiled with hidden visibility; only the functions of swale.h are exported.
#pragma GCC visibility push(default)
#include "swale/swale.h"
#include "swale/swale_arrow.h"
#include "swale/swale_fs.h"
#include "swale/swale_iond.h"
#include "swale/swale_meta.h"
#include "swale/swale_tier.h"
#pragma GCC visibility pop

namespace swale::capi {

// Keeps the failure for this thread, and returns its code.
int report(const Status& status) noexcept;
const char* last_error();
int last_code();  // SWALE_OK if no call of this thread failed

// Runs `body`, which returns a Status, as the body of an entry point.
template <class Body>
int guarded(Body&& body) {
  const Status status = contain(std::forward<Body>(body));
  return status.ok() ? SWALE_OK : report(status);
}

inline Status null_argument(const char* call, const char* argument) {
  return invalid_argument("{}: argument \"{}\" is NULL", call, argument);
}

// Bytes given as pointer and length; NULL is allowed if the length is 0.
inline Result<Bytes> bytes_argument(const char* call, const char* argument, const void* data, size_t bytes) {
  if (data == nullptr && bytes != 0) return null_argument(call, argument);
  return Bytes(static_cast<const char*>(data), bytes);
}

// Of a call that opens a file.
inline Status check_file_flags(const char* call, int flags) {
  if ((flags & ~(SWALE_CREATE | SWALE_EXCLUSIVE)) == 0 && flags != SWALE_EXCLUSIVE) return {};
  return invalid_argument("{}: flags {:#x}: expected 0, SWALE_CREATE, or that with SWALE_EXCLUSIVE", call,
                          static_cast<unsigned>(flags));
}

inline std::string_view text_or_empty(const char* text) {
  return text == nullptr ? std::string_view() : text;
}

}  // namespace swale::capi
