// The options of a PosixDevice, as rows of the option table (base/config.h).
//
// Threads: free functions.
#pragma once

#include <span>

#include "base/config.h"
#include "io/posix_device.h"

namespace swale::io {

// Every call that opens files on storage accepts these rows.
std::span<const OptionRow> posix_option_rows();

// Reads the options. Requires a Config that has the rows.
PosixOptions posix_options(const Config& config);

}  // namespace swale::io
