// OpenEnvironment: what an opening or a repair needs besides ranks and storage. As it stands here it is that
// of this process; a simulation gives a clock, a way to wait, a process and random numbers of its own.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <functional>

#include "base/entropy.h"
#include "io/lock_file.h"

namespace swale::imd {

struct OpenEnvironment {
  io::LockRequest lock = {};
  std::function<uint64_t()> entropy = random_number;
};

}  // namespace swale::imd
