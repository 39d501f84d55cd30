// The options for opening a massive directory for reading, as rows of the option table (base/config.h).
//
// Threads: free functions.
#pragma once

#include <span>

#include "base/config.h"
#include "imd/read/reader.h"

namespace swale::imd {

std::span<const OptionRow> reader_option_rows();

// Reads the options. Requires a Config that has the rows.
ReaderOptions reader_options(const Config& config);

}  // namespace swale::imd
