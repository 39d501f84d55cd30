// bench_fs_light: 8 processes create and close files in one directory of the tree of a job, past the kernel,
// beside a plain directory, in turns: fs.py runs this under `swale run --preload --backing` with
// SWALE_FS_DESCRIPTORS=light.
//   --tree DIR        the tree; --plain DIR: on the disk that the tree's backing is on
//   --creates N       files of each process
//   --rounds N
// Reported: the best round of the plain directory over the best of the tree, and their microseconds a create:
// on one disk a commit of the file system's journal, for whoever, is in one round or another, and takes a
// second. A process meets the server within its time. Each round has folders of its own, which stay.
#include <sys/xattr.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/fs/creates.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

constexpr char kStats[] = "user.swale.fs";

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
    const double first = round % 2 == 0 ? create_us(plain, round, creates) : 0;
    const uint64_t before = made_past_the_kernel(tree);
    const double light = create_us(tree, round, creates);
    // The first of each process is the kernel's; a few more meet a change of names, or another thread.
    if (made_past_the_kernel(tree) - before < kCreators * (creates - 1 - creates / 10))
      die("the files were made through the kernel: SWALE_FS_DESCRIPTORS=light, and swale run --preload");
    const double kernel = round % 2 == 0 ? first : create_us(plain, round, creates);
    ours.push_back(light);
    theirs.push_back(kernel);
  }
  report_as("bench_fs_light", "light",
            {{"create_over_ext4", best(theirs) / best(ours)},
             {"create_us", best(ours)},
             {"ext4_create_us", best(theirs)}});
  return 0;
}
