// How a tier::Store is made for who serves other processes' requests: a mount, an I/O server.
#pragma once

#include <cstdint>
#include <string>

#include "tier/store/store.h"

namespace swale::tier {

// Sizes that suit a server: writes of up to 1 MiB, and back-pressure by the elevator before the queue of writes is full.
// `log_bytes`: of a log that is made.
tier::StoreOptions serving_options(const std::string& ssd_directory, const std::string& backing_directory,
                                   uint64_t log_bytes);

}  // namespace swale::tier
