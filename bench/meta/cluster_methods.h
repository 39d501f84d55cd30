// Three ways of cutting the blocks that a batch wants into regions that are read at once (metakv, III-B): the
// optimum, Algorithm 1 (which the store uses), and K-means.
// Threads: one. Errors: die().
#pragma once

#include <nlohmann/json.hpp>

namespace swale::bench {

// Regions and CPU of each method, over the same cases: random blocks of a file of 256, from sparse to dense.
nlohmann::json cluster_methods();

}  // namespace swale::bench
