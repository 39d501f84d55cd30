// bench_fs_storm: what a storm of opens costs the server of a file's names, in the simulator
// (sim/names_storm.h): 64 processes of 4 nodes open, stat and close one file at about the same time.
//   --storms N        each with delays of its own
// Reported: requests at that server, at most and on average.
#include <algorithm>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "sim/names_storm.h"

int main(int argc, char** argv) {
  using namespace swale;
  bench::Arguments arguments(argc, argv);
  const uint64_t storms = std::max<uint64_t>(1, arguments.number("storms", 50));
  arguments.expect_no_more();
  sim::NamesStormParams params;
  uint64_t most = 0, sum = 0;
  for (params.seed = 1; params.seed <= storms; ++params.seed) {
    const sim::NamesStormResult result = sim::run_names_storm(params);
    if (result.answered != uint64_t{2} * params.nodes * params.processes)
      bench::die("a process got no answer, or that of another file");
    most = std::max(most, result.at_root);
    sum += result.at_root;
  }
  const double mean = static_cast<double>(sum) / static_cast<double>(storms);
  bench::report_as("bench_fs_storm", "storm", {{"requests_max", most}, {"requests_mean", mean}});
  return 0;
}
