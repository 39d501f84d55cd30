// bench_fs_light: 8 processes create and close files in one directory of the tree of a job, past the kernel,
// beside a plain directory, in turns: fs.py runs this under `swale run --preload --backing` with
// SWALE_FS_DESCRIPTORS=light.
//   --tree DIR        the tree; --plain DIR: on the disk that the tree's backing is on
//   --creates N       files of each process
//   --rounds N
// Reported: the best round of the plain directory over the best of the tree, and their microseconds a create:
// on one disk a commit of the file system's journal, for whoever, is in one round or another, and takes a
// second. A process meets the server within its time. Each round has folders of its own, which stay.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/processes.h"

namespace swale::bench {
namespace {

constexpr uint64_t kProcesses = 8;
constexpr char kStats[] = "user.swale.fs";
constexpr double kMicros = 1e6;

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

std::string name_of(const std::string& folder, uint64_t process, uint64_t i) {
  return fmt::format("{}/c{}-{}", folder, process, i);
}

double create_s(const std::string& root, uint64_t round, uint64_t creates) {
  const std::string folder = fmt::format("{}/round{}", root, round);
  if (::mkdir(folder.c_str(), 0755) != 0) die(folder + ": " + ::strerror(errno));
  const WorkTimes times =
      work_at_once(kProcesses, [&](uint64_t process, const std::function<void()>& written) {
        for (uint64_t i = 0; i < creates; ++i) {
          const std::string name = name_of(folder, process, i);
          const int file = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
          if (file < 0 || ::close(file) != 0) die(name + ": " + ::strerror(errno));
        }
        written();
      });
  for (uint64_t process = 0; process < kProcesses; ++process)
    for (uint64_t i = 0; i < creates; ++i)
      if (::access(name_of(folder, process, i).c_str(), F_OK) != 0)
        die(folder + ": a file that was made is not there");
  return times.all_s;
}

uint64_t made_past_the_kernel(const std::string& tree) {
  char text[1 << 16];
  const ssize_t got = ::getxattr(tree.c_str(), kStats, text, sizeof(text));
  if (got < 0) die(tree + ": it is no job's tree");
  return nlohmann::json::parse(std::string(text, static_cast<size_t>(got))).at("light_creates");
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string tree = arguments.text("tree"), plain = arguments.text("plain");
  const uint64_t creates = arguments.number("creates", 2000), rounds = arguments.number("rounds", 1);
  arguments.expect_no_more();
  std::vector<double> ours, theirs;
  for (uint64_t round = 0; round < rounds; ++round) {
    const double first = round % 2 == 0 ? create_s(plain, round, creates) : 0;
    const uint64_t before = made_past_the_kernel(tree);
    const double light = create_s(tree, round, creates);
    // The first of each process is the kernel's; a few more meet a change of names, or another thread.
    if (made_past_the_kernel(tree) - before < kProcesses * (creates - 1 - creates / 10))
      die("the files were made through the kernel: SWALE_FS_DESCRIPTORS=light, and swale run --preload");
    const double kernel = round % 2 == 0 ? first : create_s(plain, round, creates);
    const double files = static_cast<double>(kProcesses * creates);
    ours.push_back(light / files * kMicros);
    theirs.push_back(kernel / files * kMicros);
  }
  report_as("bench_fs_light", "light",
            {{"create_over_ext4", best(theirs) / best(ours)},
             {"create_us", best(ours)},
             {"ext4_create_us", best(theirs)}});
  return 0;
}
