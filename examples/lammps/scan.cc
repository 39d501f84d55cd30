// impact-scan: the same trajectories as impact-query, from the plain dumps.
#include <fmt/format.h>

#include <thread>

#include "answer.h"
#include "arguments.h"
#include "dumps.h"
#include "measure.h"

namespace {

using impact::Cost;
using impact::Dumps;

Cost measure(const std::string& out, int ranks, const std::vector<int64_t>& ids) {
  Cost cost;
  for (int rank = 0; rank < ranks; ++rank) impact::evict(impact::dump_path(out, rank));
  const uint64_t storage_before = impact::storage_bytes_read();
  const impact::Stopwatch stopwatch;
  const Dumps dumps(out, ranks);
  dumps.scan(ids);
  cost.cold_s = stopwatch.seconds();
  cost.bytes = dumps.bytes();
  cost.reads = dumps.blocks().size();
  cost.storage_bytes = impact::storage_bytes_read() - storage_before;
  cost.warm_s = impact::warm_seconds([&] { dumps.scan(ids); });
  return cost;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out;
  impact::Arguments arguments(
      "Finds the trajectories of OUT/fastest.json by scanning the plain dumps with all cores.\n"
      "Writes OUT/answer-scan.csv and OUT/cost-scan.json.");
  arguments.directory(out, "the directory that impact wrote");
  arguments.parse(argc, argv);

  const int ranks = impact::read_json(out + "/run.json").at("ranks").get<int>();
  const auto ids = impact::read_json(out + "/fastest.json").at("ids").get<std::vector<int64_t>>();
  impact::write_answer(out + "/answer-scan.csv", Dumps(out, ranks).scan(ids));
  const nlohmann::json costs = {{"one", measure(out, ranks, {ids.front()})},
                                {"ten", measure(out, ranks, ids)}};
  impact::write_json(out + "/cost-scan.json",
                     {{"threads", std::thread::hardware_concurrency()}, {"costs", costs}});
  fmt::print("  {:.1f} MB in {} reads by {} threads\n", costs["ten"]["bytes"].get<double>() / 1e6,
             costs["ten"]["reads"].get<uint64_t>(), std::thread::hardware_concurrency());
  return 0;
}
