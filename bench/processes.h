// Processes of a benchmark: one that serves a mount, and several that work at the same time.
//
// Threads: one. Errors: die().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace swale::bench {

// A child that serves until it is unmounted, or this program has ended, however. `serve` calls what it is
// given once the mount is there; then this returns.
pid_t serve_in_child(const std::function<void(const std::function<void()>& ready)>& serve);

struct WorkTimes {
  double write_s = 0;  // until the last process has said that it has written
  double all_s = 0;    // until the last one had done its work
};

// What a process does when it has written: it goes on at once, or when all have written. In a FUSE mount an
// fsync has the inode alone until it is answered: those that still write wait for the disk.
enum class Written { kGoesOn, kWaitsForAll };

// Runs `work(process, written)` in each process, all from one moment on. `begins` is called when they are
// there, before the clock runs.
WorkTimes work_at_once(
    uint64_t processes,
    const std::function<void(uint64_t process, const std::function<void()>& written)>& work,
    const std::function<void()>& begins = {}, Written then = Written::kGoesOn);

}  // namespace swale::bench
