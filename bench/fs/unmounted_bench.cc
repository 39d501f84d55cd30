// bench_fs_unmounted: 8 processes make, write and close files in one directory of a tree that is mounted
// nowhere, beside one that is mounted, in turns: fs.py runs this under `swale run --no-mount`, inside `swale
// run`.
//   --tree DIR        the tree without a mount; --mounted DIR: the other one, on the same disk
//   --creates N       files of each process
//   --rounds N
// Reported: the best round of the mount over the best of the other, and their microseconds a file: on one
// disk a commit of the file system's journal, for whoever, is in one round or another. Each round has folders
// of its own, which stay.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/processes.h"

namespace swale::bench {
namespace {

constexpr uint64_t kProcesses = 8;
constexpr double kMicros = 1e6;
constexpr std::string_view kContent = "a particle has forty bytes, or not many.";

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

std::string name_of(const std::string& folder, uint64_t process, uint64_t i) {
  return fmt::format("{}/c{}-{}", folder, process, i);
}

// Microseconds a file.
double create_us(const std::string& root, uint64_t round, uint64_t creates) {
  const std::string folder = fmt::format("{}/round{}", root, round);
  if (::mkdir(folder.c_str(), 0755) != 0) die(folder + ": " + ::strerror(errno));
  const WorkTimes times =
      work_at_once(kProcesses, [&](uint64_t process, const std::function<void()>& written) {
        for (uint64_t i = 0; i < creates; ++i) {
          const std::string name = name_of(folder, process, i);
          const int file = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
          if (file < 0 || ::write(file, kContent.data(), kContent.size()) < 0 || ::close(file) != 0)
            die(name + ": " + ::strerror(errno));
        }
        written();
      });
  struct stat found;
  for (uint64_t process = 0; process < kProcesses; ++process)
    for (uint64_t i = 0; i < creates; ++i)
      if (::stat(name_of(folder, process, i).c_str(), &found) != 0 ||
          found.st_size != static_cast<off_t>(kContent.size()))
        die(folder + ": a file that was made is not there");
  return times.all_s / static_cast<double>(kProcesses * creates) * kMicros;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string tree = arguments.text("tree"), mounted = arguments.text("mounted");
  const uint64_t creates = arguments.number("creates", 2000), rounds = arguments.number("rounds", 1);
  arguments.expect_no_more();
  std::vector<double> ours, theirs;
  for (uint64_t round = 0; round < rounds; ++round) {
    if (round % 2 == 0) theirs.push_back(create_us(mounted, round, creates));
    ours.push_back(create_us(tree, round, creates));
    if (round % 2 != 0) theirs.push_back(create_us(mounted, round, creates));
  }
  report_as("bench_fs_unmounted", "unmounted",
            {{"create_unmounted_over_mount", best(theirs) / best(ours)},
             {"create_us", best(ours)},
             {"mount_create_us", best(theirs)}});
  return 0;
}
