// The options of a massive directory that is opened for reading, as rows of the table of options (base/config.h).
//
// Threads: free functions.
#pragma once

#include <span>

#include "base/config.h"
#include "imd/read/reader.h"

namespace swale::imd {

std::span<const OptionRow> reader_option_rows();

// What the rows say. Requires a Config that has them.
ReaderOptions reader_options(const Config& config);

}  // namespace swale::imd
