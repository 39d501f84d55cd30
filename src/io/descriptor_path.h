// descriptor_path: a path that leads to an open descriptor's file, for system calls that take none (O_PATH)
// or reopen it.
// Threads: any. Errors: none; needs /proc.
#pragma once

#include <fmt/format.h>

#include <string>

#include "io/descriptor.h"

namespace swale::io {

inline std::string descriptor_path(const Descriptor& descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor.get());
}

}  // namespace swale::io
