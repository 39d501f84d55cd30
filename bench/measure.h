// What the benchmarks measure with: clocks, CPU time, memory, files on disk, page caches; and how they
// report.
//
// Cold: the files' pages are synced and dropped (posix_fadvise DONTNEED), which evicts nothing that a process
// has mapped; so whoever measures cold also checks that bytes came from storage. drop_all_caches empties the
// machine's page, inode and name caches and needs root.
//
// Threads: free functions. Errors: die(); a benchmark that cannot measure has no figures.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace swale::bench {

double now_s();         // monotonic
double thread_cpu_s();  // processor time of this thread

struct Cpu {
  double user_s = 0;
  double system_s = 0;
  double total_s() const { return user_s + system_s; }
  Cpu operator-(const Cpu& other) const { return {user_s - other.user_s, system_s - other.system_s}; }
};
Cpu cpu_of(int who);  // RUSAGE_SELF, RUSAGE_CHILDREN

// Wall and CPU time since it was made.
class Stopwatch {
 public:
  double wall_s() const { return now_s() - wall_; }
  Cpu cpu() const { return cpu_of(RUSAGE_SELF) - cpu_; }

 private:
  double wall_ = now_s();
  Cpu cpu_ = cpu_of(RUSAGE_SELF);
};

uint64_t memory_bytes();       // resident now
uint64_t memory_peak_bytes();  // since the last reset
void reset_memory_peak();

struct DiskUse {
  uint64_t size_bytes = 0;       // lengths of the files
  uint64_t allocated_bytes = 0;  // blocks that they occupy
};
DiskUse disk_use(const std::string& directory);

void remove_all(const std::string& path);
void evict(const std::string& path);    // a file, or all files below a directory
void preload(const std::string& path);  // the opposite
// False: not allowed. Rests afterwards: on a busy machine the scheduler makes a thread that has just computed
// for long wait, and what is timed next would pay for the dropping.
bool drop_all_caches();
// Makes the program's own code resident by mapping it, so that dropping caches does not drop it.
void keep_code_resident();

uint64_t storage_bytes_read();  // by this process, from /proc/self/io
uint64_t
// likewise: pages made dirty and direct writes, also of files that are removed later
storage_bytes_written();

// The value below which `fraction` of the samples lie. Sorts.
double percentile(std::vector<double>& samples, double fraction);

// p50, p99, min, max of microseconds.
nlohmann::json summary(std::vector<double> samples);

// What every program that writes says: how many records, how long, and the processor time for each.
nlohmann::json costs_of(double records, double wall_s, const Cpu& cpu);

// The larger of the files' lengths and of the blocks that they occupy.
uint64_t bytes_on_disk(const std::string& directory);
uint64_t files_below(const std::string& directory);

// The program's only line on stdout. report_as adds the program's name, and what it was asked to do.
void report(const nlohmann::json& line);
void report_as(const char* program, const std::string& mode, nlohmann::json line);

// Runs this program anew with other arguments and returns what it reports.
nlohmann::json run_fresh(const std::vector<std::string>& arguments);

}  // namespace swale::bench
