// bench_fs_unmounted: 8 processes make, write and close files in one directory of a tree that is mounted
// nowhere, beside one that is mounted, in turns: fs.py runs this under `swale run --no-mount`, inside `swale
// run`.
//   --tree DIR        the tree without a mount; --mounted DIR: the other one, on the same disk
//   --creates N       files of each process
//   --rounds N
// Reported: the best round of the mount over the best of the other, and their microseconds a file: on one
// disk a commit of the file system's journal, for whoever, is in one round or another. Each round has folders
// of its own, which stay.
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/fs/creates.h"
#include "bench/measure.h"

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string tree = arguments.text("tree"), mounted = arguments.text("mounted");
  const uint64_t creates = arguments.number("creates", 2000), rounds = arguments.number("rounds", 1);
  arguments.expect_no_more();
  constexpr std::string_view kContent = "a particle has forty bytes, or not many.";
  std::vector<double> ours, theirs;
  for (uint64_t round = 0; round < rounds; ++round) {
    if (round % 2 == 0) theirs.push_back(create_us(mounted, round, creates, kContent));
    ours.push_back(create_us(tree, round, creates, kContent));
    if (round % 2 != 0) theirs.push_back(create_us(mounted, round, creates, kContent));
  }
  report_as("bench_fs_unmounted", "unmounted",
            {{"create_unmounted_over_mount", best(theirs) / best(ours)},
             {"create_us", best(ours)},
             {"mount_create_us", best(theirs)}});
  return 0;
}
