// run_passthrough: a FUSE file system that does nothing but hand on: the least that a mount can cost.
//
// libfuse's low-level interface at its best: many threads, requests of 1 MiB, spliced from the kernel to the
// file, pages and names kept. One folder of regular files, as the benchmark needs.
// Threads: `threads` that serve requests. Returns when it is unmounted. Errors: die().
#pragma once

#include <functional>
#include <string>

namespace swale::bench {

void run_passthrough(const std::string& directory, const std::string& mountpoint, unsigned threads,
                     bool splice, const std::function<void()>& ready);

}  // namespace swale::bench
