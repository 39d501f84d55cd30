// The options of I/O servers and their clients ("iond...."). Threads: values, free functions.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"

namespace swale::iond {

struct IondOptions {
  uint64_t stripe_bytes = kMiB;
  Nanos deadline = seconds(30);  // of a request
  uint32_t threads = 4;          // of a server, that answer requests
  size_t open_files_max = 65536;
  Nanos watch = seconds(5);  // a server asks silent ranks so often whether they live, before it ends
};

std::span<const OptionRow> iond_option_rows();
IondOptions iond_options(const Config& config);  // requires a Config that has the rows

}  // namespace swale::iond
