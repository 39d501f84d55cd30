// in_parallel: calls body(0) to body(count - 1), in this order, on several threads, the caller's among them.
// Each thread has a buffer of its own, of huge pages if it is large enough for one: a transfer past the page
// cache is then one segment, not one a page, and a device takes it in fewer requests.
//
// Threads: a free function; `body` must be thread-safe, and contain what it throws (base/contain.h).
// Errors: without memory for one buffer nothing is called. Threads that cannot be started are done without.
#pragma once

#include <cstddef>
#include <functional>

#include "base/buffer.h"
#include "base/status.h"

namespace swale::stage {

Status in_parallel(size_t threads, size_t count, size_t buffer_bytes,
                   const std::function<void(size_t index, Buffer& buffer)>& body);

}  // namespace swale::stage
