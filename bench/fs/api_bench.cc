// bench_fs_api: what a write of 4 KiB costs a program that calls the C interface (swale_fs_pwrite), beside
// pwrite to a tmpfs file: fs.py runs this under `swale run --backing`.
//   --tree DIR      a folder in the tree of a job
//   --memory DIR    on a memory file system (a file is made and removed)
//   --batches N     of 256 writes each
//
// The server works between batches, off the clock, and pages are there. Both files go round in 8 MiB, as much
// memory as a log goes round in (bench_fs compares so, too). Rivals take turns; reported is the median of the
// ratios of neighbours.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/swale_call.h"
#include "swale/swale_fs.h"

namespace swale::bench {
namespace {

constexpr size_t kBytes = 4096;
constexpr uint64_t kWrites = 256;  // a batch
constexpr uint64_t kRoundWrites = (8 << 20) / kBytes;
constexpr uint64_t kWarmBatches = 64;  // until the program has met the server
constexpr double kNanos = 1e9;

const std::string& data() {
  static const std::string made(kBytes, 'x');
  return made;
}

double by_library(swale_fs_file* file, uint64_t first) {
  const double began = now_s();
  for (uint64_t i = 0; i < kWrites; ++i)
    check(swale_fs_pwrite(file, (first + i) * kBytes, data().data(), kBytes));
  return now_s() - began;
}

double by_kernel(int file, uint64_t first) {
  const double began = now_s();
  for (uint64_t i = 0; i < kWrites; ++i)
    if (::pwrite(file, data().data(), kBytes, static_cast<off_t>((first + i) * kBytes)) !=
        static_cast<ssize_t>(kBytes))
      die(std::string("pwrite: ") + ::strerror(errno));
  return now_s() - began;
}

nlohmann::json write_4k(const std::string& tree, const std::string& memory, uint64_t batches) {
  const std::string ours_path = tree + "/swale-bench-api";
  const std::string plain_path = memory + "/swale-bench-api-" + std::to_string(::getpid());
  swale_fs_file* ours = nullptr;
  constexpr int kFlags = int{SWALE_CREATE} | int{SWALE_FS_BY_LOG};
  check(swale_fs_open(ours_path.c_str(), kFlags, 0600, &ours));
  const int plain = ::open(plain_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (plain < 0) die(plain_path + ": " + ::strerror(errno));
  for (uint64_t i = 0; i < kWarmBatches; ++i) by_library(ours, i * kWrites % kRoundWrites);
  for (uint64_t first = 0; first < kRoundWrites; first += kWrites) by_kernel(plain, first);
  std::vector<double> ratios, ours_ns, plain_ns;
  for (uint64_t i = 0; i < batches; ++i) {
    const uint64_t place = i * kWrites % kRoundWrites;
    const double before = i % 2 == 0 ? by_kernel(plain, place) : 0;
    const double mine = by_library(ours, place);
    const double theirs = i % 2 == 0 ? before : by_kernel(plain, place);
    ratios.push_back(theirs / mine);
    ours_ns.push_back(mine / kWrites * kNanos);
    plain_ns.push_back(theirs / kWrites * kNanos);
    swale_attributes found = {};
    found.struct_bytes = sizeof(found);
    check(swale_fs_stat(ours, &found));  // the server takes what is there
  }
  int by_log = 0;
  check(swale_fs_writes_by_log(ours, &by_log));
  if (by_log == 0) die(ours_path + ": the writes went through the mount");
  check(swale_fs_close(ours));
  ::close(plain);
  ::unlink(ours_path.c_str());
  ::unlink(plain_path.c_str());
  return {{"write_4k_over_tmpfs", percentile(ratios, 0.5)},
          {"library_ns", percentile(ours_ns, 0.5)},
          {"tmpfs_ns", percentile(plain_ns, 0.5)}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string tree = arguments.text("tree"), memory = arguments.text("memory", "/dev/shm");
  const uint64_t batches = arguments.number("batches", 200);
  arguments.expect_no_more();
  report_as("bench_fs_api", "api", write_4k(tree, memory, batches));
  return 0;
}
