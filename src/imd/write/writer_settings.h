// The options of a massive directory that is opened for writing, as rows of the table of options
// (base/config.h).
//
// Threads: free functions.
#pragma once

#include <span>

#include "base/config.h"
#include "base/status.h"
#include "imd/write/writer_options.h"

namespace swale::imd {

std::span<const OptionRow> writer_option_rows();

// What the rows say. Requires a Config that has them. kInvalidArgument for a text that is no schema or no
// step.
Result<WriterOptions> writer_options(const Config& config);

}  // namespace swale::imd
