// bench_fs_library: processes that share one file of strided records, by the library (ClientFile, by logs)
// beside pwrite to a plain shared file, in turns, until the last one has written; nothing is synced.
//   --tree DIR        a folder in the tree of a job: fs.py runs this under `swale run --backing`
//   --plain DIR       on the storage that is behind the tree
//   --memory DIR      on a memory file system
//   --mib N           of records of 47,008 bytes, of 8 processes; --burst_mib N: as many as the memory of the
//                     logs has, beside a plain file in memory; --read_mib N: written by one process and
//                     read by another, 1 MiB at a time, beside the same in the page cache
//   --rounds N
// The tree is settled, off the clock, after each work. Reported: the medians of the rounds' ratios, plain
// over the tree, and the seconds.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/fs/place.h"
#include "bench/measure.h"
#include "bench/processes.h"
#include "fs/client/client_file.h"

namespace swale::bench {
namespace {

constexpr char kCommandAttribute[] = "user.swale.command";  // of the tree's root

struct Works {
  std::string tree, plain, memory;
  const std::string data = std::string(kRecord, 'x'), block = std::string(1 << 20, 'y');

  static uint64_t records(uint64_t mib) { return std::max<uint64_t>(1, (mib << 20) / kProcesses / kRecord); }
  static uint64_t place(uint64_t record, uint64_t process) {
    return kRecord * (record * kProcesses + process);
  }

  double by_library(uint64_t mib) const {
    const std::string path = tree + "/shared";
    const WorkTimes took = work_at_once(kProcesses, [&](uint64_t process, const auto&) {
      auto file = fs::ClientFile::open(path, {O_RDWR | O_CREAT, 0644, fs::ClientFile::By::kLogOnly});
      check(file.status());
      for (uint64_t i = 0; i < records(mib); ++i) check((*file)->write(place(i, process), data));
    });
    settle(path);
    return took.all_s;
  }
  void settle(const std::string& path) const {
    if (::setxattr(tree.c_str(), kCommandAttribute, "sync", 4, 0) != 0) die(tree + ": sync");
    if (::unlink(path.c_str()) != 0) die(path);
    ::sync();
  }
  // Until another process has read all, and found it right.
  double read_elsewhere(uint64_t mib, const std::function<void(uint64_t mib, std::string* out)>& read) const {
    return work_at_once(1,
                        [&](uint64_t, const auto& done) {
                          std::string out(block.size(), ' ');
                          for (uint64_t i = 0; i < mib; ++i) {
                            read(i, &out);
                            if (out != block) die("a read gave other bytes than were written");
                          }
                          done();
                        })
        .write_s;
  }
  double read_by_library(uint64_t mib) const {
    const std::string path = tree + "/read";
    double took = 0;
    {
      auto file = fs::ClientFile::open(path, {O_RDWR | O_CREAT, 0644, fs::ClientFile::By::kLogOnly});
      check(file.status());
      for (uint64_t i = 0; i < mib; ++i) check((*file)->write(i << 20, block));
      std::unique_ptr<fs::ClientFile> other;
      took = read_elsewhere(mib, [&](uint64_t i, std::string* out) {
        if (!other) {
          auto opened = fs::ClientFile::open(path, {O_RDONLY, 0, fs::ClientFile::By::kLog});
          check(opened.status());
          other = std::move(*opened);
        }
        check(other->read(i << 20, *out).status());
        if (i + 1 == mib && other->bytes_read_in_logs() == 0) die(path + ": nothing was read in logs");
      });
    }
    settle(path);
    return took;
  }
  double read_by_pread(uint64_t mib) const {
    const std::string path = plain + "/swale-bench-read-" + std::to_string(::getpid());
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) die(path + ": " + ::strerror(errno));
    for (uint64_t i = 0; i < mib; ++i)
      if (::pwrite(file, block.data(), block.size(), static_cast<off_t>(i << 20)) !=
          static_cast<ssize_t>(block.size()))
        die(path + ": " + ::strerror(errno));
    int other = -1;
    const double took = read_elsewhere(mib, [&](uint64_t i, std::string* out) {
      if (other < 0) other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (::pread(other, out->data(), out->size(), static_cast<off_t>(i << 20)) !=
          static_cast<ssize_t>(out->size()))
        die(path + ": " + ::strerror(errno));
    });
    ::close(file);
    ::unlink(path.c_str());
    ::sync();
    return took;
  }
  double by_pwrite(const std::string& folder, uint64_t mib) const {
    const std::string path = folder + "/swale-bench-shared-" + std::to_string(::getpid());
    const WorkTimes took = work_at_once(kProcesses, [&](uint64_t process, const auto&) {
      const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (file < 0) die(path + ": " + ::strerror(errno));
      for (uint64_t i = 0; i < records(mib); ++i)
        if (::pwrite(file, data.data(), kRecord, static_cast<off_t>(place(i, process))) !=
            static_cast<ssize_t>(kRecord))
          die(path + ": " + ::strerror(errno));
    });
    ::unlink(path.c_str());
    ::sync();
    return took.all_s;
  }
};

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Works works;
  works.tree = arguments.text("tree");
  works.plain = arguments.text("plain");
  works.memory = arguments.text("memory", "/dev/shm");
  const uint64_t mib = arguments.number("mib", 2048), burst_mib = arguments.number("burst_mib", 512);
  const uint64_t read_mib = arguments.number("read_mib", 512);
  const uint64_t rounds = arguments.number("rounds", 3);
  arguments.expect_no_more();
  std::vector<double> direct, burst, reads;
  nlohmann::json seconds = nlohmann::json::array();
  using Work = std::function<double()>;
  const auto compare = [&](bool plain_first, const char* name, const Work& by_plain, const Work& by_library,
                           std::vector<double>* ratios) {
    double plain = plain_first ? by_plain() : 0;
    const double ours = by_library();
    if (!plain_first) plain = by_plain();
    ratios->push_back(plain / ours);
    seconds.push_back({{"work", name}, {"plain_s", plain}, {"library_s", ours}});
  };
  works.by_library(1);  // the server has met a program
  for (uint64_t round = 0; round < rounds; ++round) {
    const bool plain_first = round % 2 == 0;
    compare(
        plain_first, "direct", [&] { return works.by_pwrite(works.plain, mib); },
        [&] { return works.by_library(mib); }, &direct);
    compare(
        plain_first, "burst", [&] { return works.by_pwrite(works.memory, burst_mib); },
        [&] { return works.by_library(burst_mib); }, &burst);
    compare(
        plain_first, "read", [&] { return works.read_by_pread(read_mib); },
        [&] { return works.read_by_library(read_mib); }, &reads);
  }
  report_as("bench_fs_library", "library",
            {{"n1_write_over_direct", percentile(direct, 0.5)},
             {"burst_over_direct", percentile(burst, 0.5)},
             {"read_node_over_cache", percentile(reads, 0.5)},
             {"rounds", seconds}});
  return 0;
}
