// The number of processors that this process may use, as batch systems and containers assign them: at least
// 1.
// Threads: a free function.
#pragma once

namespace swale {

unsigned usable_processors();

}  // namespace swale
