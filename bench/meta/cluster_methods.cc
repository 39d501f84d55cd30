#include "bench/meta/cluster_methods.h"

#include <algorithm>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/measure.h"
#include "meta/index/cluster.h"
#include "meta/index/sorted_file.h"

namespace swale::bench {
namespace {

constexpr unsigned kLocality = 80;  // percent, the paper's alpha
constexpr int kCases = 100;
constexpr auto kBlocks = static_cast<uint32_t>(meta::kSortedFileBlocks);

using Method = std::vector<meta::Region> (*)(std::span<const meta::WantedBlock>, unsigned, uint32_t);

std::vector<std::vector<meta::WantedBlock>> draw_cases() {
  std::vector<std::vector<meta::WantedBlock>> cases(kCases);
  Rng rng(4);
  for (auto& wanted : cases) {
    const uint64_t chance = 5 + rng.below(90);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      if (rng.chance(chance, 100)) wanted.push_back({block, 1 + rng.below(4)});
    }
  }
  return cases;
}

}  // namespace

nlohmann::json cluster_methods() {
  const auto cases = draw_cases();
  nlohmann::json rows = nlohmann::json::array();
  std::vector<size_t> fewest(cases.size());
  for (const auto& [name, method] : {std::pair<const char*, Method>{"optimum", meta::brute_force},
                                     {"algorithm_1", meta::cluster_blocks},
                                     {"k_means", meta::k_means}}) {
    uint64_t regions = 0, blocks_read = 0, blocks_wanted = 0, as_few = 0;
    const Stopwatch watch;
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<meta::Region> found = method(cases[i], kLocality, kBlocks);
      for (const meta::Region& each : found) {
        if (!meta::local_enough(each.wanted, each.blocks(), kLocality))
          die("a region that is not local enough");
        blocks_read += each.blocks();
        blocks_wanted += each.wanted;
      }
      regions += found.size();
      if (rows.empty()) fewest[i] = found.size();
      as_few += found.size() == fewest[i] ? 1 : 0;
    }
    rows.push_back({{"method", name},
                    {"cases", kCases},
                    {"regions", regions},
                    {"cases_with_the_fewest", as_few},
                    {"blocks_read", blocks_read},
                    {"blocks_wanted", blocks_wanted},
                    {"us_per_case", watch.cpu().total_s() / kCases * 1e6}});
  }
  return {{"rows", rows}};
}

}  // namespace swale::bench
