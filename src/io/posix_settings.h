// The options of a PosixDevice, as rows of the table of options (base/config.h).
//
// Threads: free functions.
#pragma once

#include <span>

#include "base/config.h"
#include "io/posix_device.h"

namespace swale::io {

// Every call that opens something on storage takes these rows.
std::span<const OptionRow> posix_option_rows();

// What they say. Requires a Config that has the rows.
PosixOptions posix_options(const Config& config);

}  // namespace swale::io
