// Large buffers of streams (stream_calls.cc).
#pragma once

#include <stdio.h>

namespace swale::preload {

// The stream, or null, has just been opened: if it writes a file on a job's tree it gets a large buffer.
void enlarge_writer(FILE* stream, const char* mode) noexcept;

}  // namespace swale::preload
