// bench_fs_slow: a job whose backing is slow: 8 processes write one shared file of strided records, with an
// fsync each, into a plain directory of the slow file system, and into a tree whose backing is there and
// whose buffer is on a disk of the node.
//   --backing DIR     on the slow file system (made and removed)
//   --buffer DIR      on the node's disk (made and removed)
//   --mib N           of records of 47,008 bytes
//   --rounds N
// Reported: medians of the rounds' ratios. The drain is what the command "sync" of the tree does after the
// last fsync.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/arguments.h"
#include "bench/fs/place.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

struct Round {
  Took plain, tree;
};

nlohmann::json ratios(const std::vector<Round>& rounds) {
  std::vector<double> checkpoint, drain;
  nlohmann::json each = nlohmann::json::array();
  for (const auto& [plain, tree] : rounds) {
    checkpoint.push_back(plain.all_s / tree.all_s);
    drain.push_back(tree.settle_s / plain.all_s);
    each.push_back({{"plain_s", plain.all_s}, {"tree_s", tree.all_s}, {"drain_s", tree.settle_s}});
  }
  return {{"checkpoint_over_slow_backing", percentile(checkpoint, 0.5)},
          {"drain_over_slow_direct", percentile(drain, 0.5)},
          {"rounds", each}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const std::string own = "/swale-bench-slow-" + std::to_string(::getpid());
  const std::string backing = arguments.text("backing") + own, buffer = arguments.text("buffer") + own;
  const uint64_t mib = arguments.number("mib", 256);
  const uint64_t count = arguments.number("rounds", 1);
  arguments.expect_no_more();
  for (const std::string& folder : {backing, buffer}) std::filesystem::create_directories(folder);
  std::vector<Round> rounds(count);
  {
    const Place plain(Place::Kind::kPlain, backing + "/plain");
    const Place tree(Place::Kind::kTree, backing + "/tree", buffer + "/buffer", (2 * mib << 20) + (64 << 20));
    for (uint64_t i = 0; i < count; ++i) {
      const auto of_plain = [&] { rounds[i].plain = write_records(plain, mib, Files::kShared); };
      if (i % 2 == 0) of_plain();
      rounds[i].tree = write_records(tree, mib, Files::kShared);
      if (i % 2 != 0) of_plain();
    }
  }
  for (const std::string& folder : {backing, buffer}) remove_all(folder);
  report_as("bench_fs_slow", "slow", ratios(rounds));
  return 0;
}
