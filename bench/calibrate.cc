// bench_calibrate: how fast this machine is at this moment: fixed loops that no change of Swale changes, a
// few seconds.
//   --path FILE   on the storage that is measured (made and removed)
//   --quick 1     a hundredth of the work, scaled up, for tests
// Reported, each the median of five: seconds of processor time for a sort, for copies between buffers that no
// cache holds, for a checksum and for dependent reads from memory; the latency of random reads from storage,
// of 4 KiB, one at a time; and `wait`, by the clock over processor time, of as many computing threads as
// there are cores: 1 where nobody else computes. calibration.py makes factors of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/workload.h"

namespace swale::bench {
namespace {

constexpr int kTimes = 5;

double median_of(const std::function<double()>& once) {
  std::vector<double> samples;
  for (int i = 0; i < kTimes; ++i) samples.push_back(once());
  return percentile(samples, 0.5);
}

double cpu_s(const std::function<void()>& work) {
  const Stopwatch stopwatch;
  work();
  return stopwatch.cpu().total_s();
}

// As SstFileWriter's caller sorts: keys in pseudo-random order.
double sort_s(uint64_t keys) {
  std::vector<uint64_t> values(keys);
  return median_of([&] {
    for (uint64_t i = 0; i < keys; ++i) values[i] = mix(i + 1);
    return cpu_s([&] { std::sort(values.begin(), values.end()); });
  });
}

// Pieces of a record's size to places far apart, into memory that was touched before.
double copy_s(uint64_t records) {
  std::vector<char> from(records * kRecordBytes, 'f'), to(records * kRecordBytes, 't');
  return median_of([&] {
    return cpu_s([&] {
      for (uint64_t i = 0; i < records; ++i) {
        const uint64_t place = i * 4'099 % records;
        std::memcpy(to.data() + place * kRecordBytes, from.data() + i * kRecordBytes, kRecordBytes);
      }
      asm volatile("" : : "r"(to.data()) : "memory");
    });
  });
}

// Eight bytes at a time, in the first-level cache.
void checksum(uint64_t rounds) {
  const std::vector<uint64_t> words(2048, 7);
  uint64_t sum = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (const uint64_t word : words) sum = mix(sum ^ word);
  }
  asm volatile("" : : "r"(sum));
}

double checksum_s(uint64_t rounds) {
  return median_of([&] { return cpu_s([&] { checksum(rounds); }); });
}

// The mean of the threads: each lasts several of the scheduler's time slices.
double wait_factor(uint64_t rounds) {
  return median_of([&] {
    std::vector<double> waits(std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::thread> threads;
    threads.reserve(waits.size());
    for (double& waited : waits) {
      threads.emplace_back([&waited, rounds] {
        const double begin_s = now_s(), begin_cpu_s = thread_cpu_s();
        checksum(rounds);
        waited = (now_s() - begin_s) / (thread_cpu_s() - begin_cpu_s);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return std::accumulate(waits.begin(), waits.end(), 0.0) / static_cast<double>(waits.size());
  });
}

// Each read says where the next one is.
double chase_s(uint64_t steps) {
  constexpr uint64_t kPlaces = uint64_t{1} << 23;  // 64 MiB
  std::vector<uint64_t> next(kPlaces);
  for (uint64_t i = 0; i < kPlaces; ++i) next[i] = (i * 5'851 + 1'442'695'041) % kPlaces;
  return median_of([&] {
    return cpu_s([&] {
      uint64_t at = 1;
      for (uint64_t step = 0; step < steps; ++step) at = mix(next[at]) % kPlaces;
      asm volatile("" : : "r"(at));
    });
  });
}

// The pages are dropped first, as before a cold query.
double storage_us(const std::string& path, uint64_t pages, uint64_t reads) {
  constexpr size_t kPageBytes = 4096;
  std::vector<char> page(kPageBytes, 'p');
  const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) die(fmt::format("open {}: {}", path, std::strerror(errno)));
  for (uint64_t i = 0; i < pages; ++i) {
    if (::write(file, page.data(), kPageBytes) != static_cast<ssize_t>(kPageBytes)) die("write " + path);
  }
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  uint64_t number = 0;
  const double took_us = median_of([&] {
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    std::vector<double> us;
    for (uint64_t i = 0; i < reads; ++i) {
      const auto offset = static_cast<off_t>(mix(++number) % pages * kPageBytes);
      const double begin = now_s();
      if (::pread(file, page.data(), kPageBytes, offset) != static_cast<ssize_t>(kPageBytes))
        die("read " + path);
      us.push_back((now_s() - begin) * 1e6);
    }
    return percentile(us, 0.5);
  });
  ::close(file);
  remove_all(path);
  return took_us;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string path = arguments.text("path");
  const uint64_t part = arguments.number("quick", 0) != 0 ? 100 : 1;
  arguments.expect_no_more();
  const auto scale = static_cast<double>(part);
  report({{"program", "calibrate"},
          {"sort_s", sort_s(1'000'000 / part) * scale},
          {"copy_s", copy_s(2'000'000 / part) * scale},
          {"checksum_s", checksum_s(20'000 / part) * scale},
          {"chase_s", chase_s(1'000'000 / part) * scale},
          {"storage_us", storage_us(path, 16'384 / part, 200)},
          {"wait", wait_factor(40'000 / part)}});
  return 0;
}
