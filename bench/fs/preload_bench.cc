// bench_fs_preload: what libswale_preload.so costs, and saves, in a program that has it: fs.py runs this
// under `swale run --preload --backing`.
//   --tree DIR        a folder in the tree of a job
//   --memory DIR      on a memory file system
//   --batches N       of each measurement; --programs N: started with the library, and without
//
// The C library's own functions, past the preload, stand beside: rivals take turns, and what is reported is a
// median of differences or ratios of neighbours.
//
// write_4k: 256 pwrites of 4 KiB a batch; the server works between batches, and pages are there. Both files
// go round in 8 MiB, as much memory as a log goes round in (bench_fs compares so, too). in_cache: in 1 MiB,
// which the plain file has in a processor's own cache; the log, which goes round in two chunks, has not.
// read_node: 256 preads of 4 KiB a batch, of 8 MiB that stand in a log, beside a file in memory whose pages
// are there; nobody writes meanwhile, and each block has been checked.
// outside: a write of a byte to /dev/null, while a file of the tree is open. exec: `true`, started and waited
// for.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr size_t kWriteBytes = 4096;
constexpr off_t kWrites = 256;  // a batch
constexpr off_t kRoundWrites = (8 << 20) / kWriteBytes, kCachedWrites = (1 << 20) / kWriteBytes;
constexpr int kCalls = 100'000;                              // a batch of what takes nanoseconds
constexpr int kOutsideCalls = 10'000, kOutsideBatches = 10;  // short, and more of them: neighbours are alike
constexpr int kWarmBatches = 64;                             // until the program has met the server
constexpr double kLeast = 0.01;                              // a figure of less is noise
constexpr double kNanos = 1e9, kMicros = 1e6;

using PwriteCall = ssize_t (*)(int, const void*, size_t, off_t);
using WriteCall = ssize_t (*)(int, const void*, size_t);

template <class Call>
Call past_the_preload(const char* name) {
  static void* const libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  void* const found = libc == nullptr ? nullptr : ::dlsym(libc, name);
  if (found == nullptr) die(std::string(name) + ": the C library has no such function");
  return reinterpret_cast<Call>(found);
}

int open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) die(path + ": " + ::strerror(errno));
  return file;
}

double write_batch(PwriteCall call, int file, off_t first) {
  static const std::string data(kWriteBytes, 'x');
  const double began = now_s();
  for (off_t i = 0; i < kWrites; ++i)
    if (call(file, data.data(), kWriteBytes, (first + i) * static_cast<off_t>(kWriteBytes)) !=
        static_cast<ssize_t>(kWriteBytes))
      die(std::string("pwrite: ") + ::strerror(errno));
  return now_s() - began;
}

double write_4k_over(const std::string& tree, const std::string& memory, uint64_t batches, off_t round) {
  const std::string paths[] = {tree + "/swale-bench-preload",
                               memory + "/swale-bench-preload-" + std::to_string(::getpid())};
  const int ours = open_file(paths[0]), plain = open_file(paths[1]);
  const auto past = past_the_preload<PwriteCall>("pwrite");
  for (int i = 0; i < kWarmBatches; ++i) write_batch(::pwrite, ours, i * kWrites % round);
  for (off_t first = 0; first < round; first += kWrites) write_batch(past, plain, first);
  std::vector<double> ratios;
  for (uint64_t i = 0; i < batches; ++i) {
    const off_t place = static_cast<off_t>(i) * kWrites % round;
    const double first = i % 2 == 0 ? write_batch(past, plain, place) : 0;
    const double by_log = write_batch(::pwrite, ours, place);
    const double by_kernel = i % 2 == 0 ? first : write_batch(past, plain, place);
    ratios.push_back(by_kernel / by_log);
    struct stat found;
    if (::fstat(ours, &found) != 0) die(paths[0]);  // the server takes what is there
  }
  ::close(ours);
  ::close(plain);
  for (const std::string& path : paths) ::unlink(path.c_str());
  return percentile(ratios, 0.5);
}

using PreadCall = ssize_t (*)(int, void*, size_t, off_t);
double read_batch(PreadCall call, int file, off_t first) {
  static std::string data(kWriteBytes, ' ');
  const double began = now_s();
  for (off_t i = 0; i < kWrites; ++i)
    if (call(file, data.data(), kWriteBytes, (first + i) * static_cast<off_t>(kWriteBytes)) !=
        static_cast<ssize_t>(kWriteBytes))
      die(std::string("pread: ") + ::strerror(errno));
  return now_s() - began;
}

// The share of our reads that needed the mount, too.
std::pair<double, double> read_node_over(const std::string& tree, const std::string& memory,
                                         uint64_t batches) {
  const std::string paths[] = {tree + "/swale-bench-preload",
                               memory + "/swale-bench-preload-" + std::to_string(::getpid())};
  for (const std::string& path : paths) {
    const int made = open_file(path);
    for (off_t first = 0; first < kRoundWrites; first += kWrites) write_batch(::pwrite, made, first);
    ::close(made);
  }
  const int ours = ::open(paths[0].c_str(), O_RDONLY | O_CLOEXEC);
  const int plain = ::open(paths[1].c_str(), O_RDONLY | O_CLOEXEC);
  const auto past = past_the_preload<PreadCall>("pread");
  const auto* const counted =
      static_cast<const std::atomic<uint64_t>*>(::dlsym(RTLD_DEFAULT, "swale_preload_reads_in_logs"));
  if (counted == nullptr) die("libswale_preload.so is older than this program");
  std::vector<double> ratios;
  for (off_t first = 0; first < kRoundWrites; first += kWrites) {
    read_batch(::pread, ours, first);
    read_batch(past, plain, first);
  }
  const uint64_t before = counted->load();
  for (uint64_t i = 0; i < batches; ++i) {
    const off_t place = static_cast<off_t>(i) * kWrites % kRoundWrites;
    const double first = i % 2 == 0 ? read_batch(past, plain, place) : 0;
    const double by_map = read_batch(::pread, ours, place);
    ratios.push_back((i % 2 == 0 ? first : read_batch(past, plain, place)) / by_map);
  }
  const double by_mount =
      1 - static_cast<double>(counted->load() - before) / static_cast<double>(batches * kWrites);
  ::close(ours);
  ::close(plain);
  for (const std::string& path : paths) ::unlink(path.c_str());
  return {percentile(ratios, 0.5), by_mount};
}

double lseek_ns(const std::string& tree, uint64_t batches) {
  const std::string path = tree + "/swale-bench-seek";
  const int file = open_file(path);
  std::vector<double> took;
  for (uint64_t i = 0; i < batches; ++i) {
    const double began = now_s();
    for (int j = 0; j < kCalls; ++j)
      if (::lseek(file, j, SEEK_SET) != j) die(path);
    took.push_back((now_s() - began) / kCalls * kNanos);
  }
  ::close(file);
  ::unlink(path.c_str());
  return percentile(took, 0.5);
}

double outside_ns(const std::string& tree, uint64_t batches) {
  const std::string path = tree + "/swale-bench-outside";
  const int ours = open_file(path), nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const auto batch = [nothing](WriteCall call) {
    const double began = now_s();
    for (int i = 0; i < kOutsideCalls; ++i)
      if (call(nothing, "", 1) != 1) die("/dev/null");
    return (now_s() - began) / kOutsideCalls * kNanos;
  };
  const auto past = past_the_preload<WriteCall>("write");
  std::vector<double> added;
  for (uint64_t i = 0; i < batches * kOutsideBatches; ++i) {
    const double first = i % 2 == 0 ? batch(past) : 0;
    const double with = batch(::write);
    added.push_back(with - (i % 2 == 0 ? first : batch(past)));
  }
  ::close(nothing);
  ::close(ours);
  ::unlink(path.c_str());
  return std::max(percentile(added, 0.5), kLeast);
}

double exec_added_us(uint64_t programs) {
  const char* const library = std::getenv("LD_PRELOAD");
  if (library == nullptr) die("LD_PRELOAD is not set: run this under swale run --preload");
  std::string variable = std::string("LD_PRELOAD=") + library;
  char* const with[] = {variable.data(), nullptr};
  char* const without[] = {nullptr};
  const auto start = [](char* const* environment) {
    const double began = now_s();
    char* const words[] = {const_cast<char*>("true"), nullptr};
    pid_t child = 0;
    if (::posix_spawn(&child, "/bin/true", nullptr, nullptr, words, environment) != 0) die("/bin/true");
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) die("/bin/true has failed");
    return (now_s() - began) * kMicros;
  };
  std::vector<double> added;
  for (uint64_t i = 0; i < programs; ++i) {
    const double first = i % 2 == 0 ? start(without) : 0;
    const double ours = start(with);
    added.push_back(ours - (i % 2 == 0 ? first : start(without)));
  }
  return std::max(percentile(added, 0.5), kLeast);
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string tree = arguments.text("tree"), memory = arguments.text("memory", "/dev/shm");
  const uint64_t batches = arguments.number("batches", 200), programs = arguments.number("programs", 400);
  arguments.expect_no_more();
  if (::dlsym(RTLD_DEFAULT, "swale_preload_version") == nullptr)
    die("libswale_preload.so is not here: run this under swale run --preload");
  const double ratio = write_4k_over(tree, memory, batches, kRoundWrites);
  const auto reads = read_node_over(tree, memory, batches);
  report_as("bench_fs_preload", "preload",
            {{"write_4k_over_tmpfs", ratio},
             {"write_4k_in_cache_over_tmpfs", write_4k_over(tree, memory, batches, kCachedWrites)},
             {"read_node_over_cache", reads.first},
             {"read_node_by_mount", reads.second},
             {"lseek_ns", lseek_ns(tree, batches)},
             {"outside_ns", outside_ns(tree, batches)},
             {"exec_added_us", exec_added_us(programs)}});
  return 0;
}
