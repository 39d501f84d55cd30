// The comparison of a job's secret with what a frame carries. It takes the same time whichever bits differ,
// so that how long a frame is looked at tells its sender nothing.
// Threads: stateless.
#pragma once

#include <cstdint>

namespace swale::net {

// One word, one comparison; never byte by byte.
inline bool same_secret(uint64_t found, uint64_t expected) { return (found ^ expected) == 0; }

}  // namespace swale::net
