// Measuring a query in the same way for every method: its time with cold and with warm file caches, the bytes
// it asked for, in how many reads, and how many bytes the operating system then fetched from storage.
//
// Cold means: the files' own pages are synced and dropped (posix_fadvise DONTNEED; no privileges, nobody
// else's caches harmed) and the query opens everything anew. Directory entries and inodes stay in memory.
// Warm means: everything is open and has been asked before; the median of several repetitions.
#ifndef EXAMPLES_LAMMPS_MEASURE_H_
#define EXAMPLES_LAMMPS_MEASURE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace impact {

struct Cost {
  double cold_s = 0;
  double warm_s = 0;
  uint64_t bytes = 0;          // asked for by the cold query, opening included
  uint64_t reads = 0;          // read requests of the cold query, opening included
  uint64_t storage_bytes = 0;  // fetched from storage for it, read-ahead included
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cost, cold_s, warm_s, bytes, reads, storage_bytes)

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Drops the cached pages of a file, or of all files below a directory.
void evict(const std::string& path);

// Bytes that this process has fetched from storage so far; 0 where the kernel does not tell (/proc/self/io).
uint64_t storage_bytes_read();

// The median time of `query`, repeated for about half a second: 3 to 101 times.
template <typename Query>
double warm_seconds(Query query) {
  constexpr size_t kRepetitionsMin = 3;
  constexpr size_t kRepetitionsMax = 101;
  constexpr double kBudget_s = 0.5;
  query();
  std::vector<double> seconds;
  const Stopwatch total;
  while (seconds.size() < kRepetitionsMin ||
         (seconds.size() < kRepetitionsMax && total.seconds() < kBudget_s)) {
    const Stopwatch stopwatch;
    query();
    seconds.push_back(stopwatch.seconds());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_MEASURE_H_
