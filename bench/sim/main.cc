// bench_sim_shuffle: the papers' machines, simulated and modelled (docs/design/shuffle-model.md).
// sim_shuffle.py runs it.
//   --part printed          what the papers print, beside their method on the model; the constants. --spoil
//                           1: with a wrong one
//   --part run              a job of the shipped code on a simulated machine, and what the model says of it
//     --machine trinity|second --method base|indirect|lossy --route three-hop|direct --nodes N --ranks C (a
//     node) --records N
//     (a rank) --value BYTES --frame BYTES --share-ppm N (of the machine's time for a frame, in millionths)
//   --part rank             what one rank of a large job stores for a record: --method --nodes --ranks
//                           --records --value
//   --part memory           frames of a rank, directly and by three hops, from the plan: --nodes --ranks
//   --part epoch            the model's time of an epoch for 1 to 8,192 nodes: --machine --ranks --records,
//                           and of our method
//     --data --stored --early --wire in millibytes a record, --frame --tail in bytes, --memtable in records;
//     of the papers': --papers METHOD
//     --value BYTES; of either --route three-hop|direct
//   --part query            --machine --reads N --bytes N
#include <memory>
#include <vector>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/writer_job.h"
#include "imd/write/memory_plan.h"
#include "sim/shuffle_model.h"
#include "sim/shuffle_sim.h"

namespace swale::bench {
namespace {

using sim::ShuffleMachine;
using sim::ShuffleMethod;

constexpr size_t kBudgetBytes = 64 * kMiB;
constexpr const char* kMachines[] = {"trinity", "second"};

bool on_second(Arguments* arguments) { return arguments->choice("machine", kMachines) == 1; }
ShuffleMachine machine_of(bool second) { return second ? sim::second_machine() : sim::trinity(); }
ShuffleMethod method_of(Arguments* arguments, const char* name) {
  return static_cast<ShuffleMethod>(arguments->choice(name, sim::kShuffleMethodNames));
}

nlohmann::json json_of(const sim::ShuffleTime& time) {
  return {{"plain_s", time.plain_s},   {"storage_s", time.storage_s}, {"wire_s", time.wire_s},
          {"thread_s", time.thread_s}, {"total_s", time.total_s},     {"slowdown", time.slowdown()}};
}

nlohmann::json printed(Arguments* arguments) {
  ShuffleMachine second = sim::second_machine();
  if (arguments->number("spoil", 0) != 0) second.storage_bytes_per_s *= 1.1;
  arguments->expect_no_more();
  nlohmann::json values = nlohmann::json::array();
  for (const sim::PrintedValue& value :
       sim::printed_values(sim::trinity(), second, sim::trinity_storage(), sim::second_storage())) {
    values.push_back({{"place", value.place},
                      {"what", value.what},
                      {"unit", value.unit},
                      {"printed", value.printed},
                      {"modelled", value.modelled},
                      {"at_most", value.at_most},
                      {"hit", value.hit()}});
  }
  nlohmann::json machines;
  for (const bool is_second : {false, true}) {
    const ShuffleMachine machine = machine_of(is_second);
    machines[kMachines[is_second]] = {{"storage_bytes_per_s", machine.storage_bytes_per_s},
                                      {"ranks_per_node", machine.ranks_per_node}};
  }
  return {{"values", values},
          {"machines", machines},
          {"scan_bytes_per_s", sim::trinity_storage().scan_bytes_per_s}};
}

nlohmann::json run(Arguments* arguments) {
  constexpr const char* kRoutes[] = {"three-hop", "direct"};
  sim::ShuffleSimParams params;
  params.machine = sim::scaled(machine_of(on_second(arguments)),
                               static_cast<double>(arguments->number("share-ppm", 31'250)) * 1e-6);
  params.method = method_of(arguments, "method");
  params.nodes = static_cast<int32_t>(arguments->number("nodes", 2));
  params.ranks_per_node = static_cast<int32_t>(arguments->number("ranks", 32));
  params.records_per_rank = arguments->number("records", 4096);
  params.value_bytes = arguments->number("value", 56);
  params.three_hop = arguments->choice("route", kRoutes) == 0;
  params.frame_bytes = arguments->number("frame", kKiB);
  arguments->expect_no_more();
  const Stopwatch stopwatch;
  const sim::ShuffleSimResult result = take(sim::run_shuffle(params));
  const double took = stopwatch.wall_s();
  const sim::ShuffleLoad load = sim::load_of(params, result);
  const sim::ShuffleTime model = sim::shuffle_time(params.machine, sim::job_of(params), load);
  return {{"ranks", params.nodes * params.ranks_per_node},
          {"total_s", result.total_s},
          {"plain_s", model.plain_s},
          {"slowdown", result.total_s / model.plain_s - 1},
          {"stored_bytes_per_record", load.stored_bytes},
          {"index_bytes_per_record", result.index_bytes / result.records},
          {"wire_bytes_per_record", load.wire_bytes},
          {"remote_frames", result.remote_frames},
          {"local_frames", result.local_frames},
          {"other_frames", result.other_frames},
          {"thread_busy_mean", result.thread_busy_mean},
          {"events", result.events},
          {"model", json_of(model)},
          {"model_error", model.total_s / result.total_s - 1},
          {"took_s", took},
          {"memory_peak_bytes", memory_peak_bytes()}};
}

std::shared_ptr<const net::NodeMap> nodes_of(Arguments* arguments) {
  const std::vector<int32_t> nodes(arguments->number("nodes", 64),
                                   static_cast<int32_t>(arguments->number("ranks", 64)));
  return std::make_shared<const net::NodeMap>(take(net::NodeMap::in_blocks(nodes)));
}

imd::MemoryWish wish_of(std::shared_ptr<const net::NodeMap> nodes) {
  imd::MemoryWish wish{.budget_bytes = kBudgetBytes, .ranks = nodes->ranks()};
  wish.nodes = std::move(nodes);
  wish.route = net::RouteChoice::kThreeHop;
  return wish;
}

// Alone, with the memory that it would have in the job: what is stored for a record does not depend on who
// sent it.
nlohmann::json rank(Arguments* arguments) {
  sim::ShuffleSimParams params;
  params.memory = take(imd::plan_memory(wish_of(nodes_of(arguments))));
  params.machine = sim::trinity();
  params.method = method_of(arguments, "method");
  params.nodes = params.ranks_per_node = 1;
  params.three_hop = false;
  params.records_per_rank = arguments->number("records", 7'812'500);
  params.value_bytes = arguments->number("value", 56);
  arguments->expect_no_more();
  params.memtable_bytes = params.memory->memtable_bytes;
  const sim::ShuffleSimResult result = take(sim::run_shuffle(params));
  return {{"stored_bytes_per_record", result.stored_bytes / result.records},
          {"index_bytes_per_record", result.index_bytes / result.records},
          {"memtable_records", sim::load_of(params, result).memtable_records},
          {"early_bytes_per_record", result.early_bytes / result.records},
          {"hop_frame_bytes", params.memory->hops->at(1).frame_bytes}};
}

nlohmann::json memory(Arguments* arguments) {
  imd::MemoryWish wish = wish_of(nodes_of(arguments));
  arguments->expect_no_more();
  const imd::MemoryPlan plan = take(imd::plan_memory(wish));
  const uint64_t least =
      net::ThreeHopRouter::buffer_bytes(*wish.nodes, net::ThreeHopRouter::hops_within(*wish.nodes, 8 * kMiB));
  const int32_t nodes = wish.nodes->nodes(), each = wish.nodes->ranks_on(0);
  nlohmann::json line = {{"nodes", nodes},
                         {"ranks", wish.ranks},
                         {"three_hop_bytes", plan.hop_bytes + plan.frames_per_rank * plan.frame_bytes},
                         {"three_hop_8mib_bytes", least},
                         {"paper_direct_bytes", sim::papers_buffer_bytes(nodes, each, false)},
                         {"paper_three_hop_bytes", sim::papers_buffer_bytes(nodes, each, true)}};
  wish.route = net::RouteChoice::kDirect;
  wish.budget_bytes = imd::least_budget_bytes(wish);
  const imd::MemoryPlan direct = take(imd::plan_memory(wish));
  line["direct_bytes"] = static_cast<uint64_t>(wish.ranks) * direct.frame_bytes *
                         (uint64_t{direct.frames_per_rank} + direct.window);
  return line;
}

nlohmann::json epoch(Arguments* arguments) {
  const bool second = on_second(arguments);
  const ShuffleMachine machine = machine_of(second);
  sim::ShuffleJob job;
  job.ranks_per_node = static_cast<int32_t>(arguments->number("ranks", 32));
  job.records_per_rank = static_cast<double>(arguments->number("records", 16'000'000));
  sim::ShuffleLoad load;
  const auto bytes = [&](const char* name, double unit) {
    return static_cast<double>(arguments->number(name, 0)) * unit;
  };
  if (arguments->given("papers")) {
    load = sim::papers_load(method_of(arguments, "papers"), 8, bytes("value", 1));
  } else {
    load.data_bytes = bytes("data", 1e-3);
    load.stored_bytes = bytes("stored", 1e-3);
    load.wire_bytes = bytes("wire", 1e-3);
    load.early_bytes = bytes("early", 1e-3);
    load.memtable_records = bytes("memtable", 1);
    load.tail_bytes = bytes("tail", 1);
  }
  if (arguments->given("frame")) load.frame_bytes = bytes("frame", 1);
  constexpr const char* kRoutes[] = {"three-hop", "direct"};
  load.three_hop = arguments->choice("route", kRoutes) == 0;
  arguments->expect_no_more();
  nlohmann::json rows = nlohmann::json::array();
  for (int32_t nodes = 1; nodes <= 8192; nodes *= 2) {
    job.nodes = nodes;
    nlohmann::json row = json_of(sim::shuffle_time(machine, job, load));
    row["nodes"] = nodes;
    row["ranks"] = nodes * job.ranks_per_node;
    rows.push_back(row);
  }
  return {{"rows", rows}};
}

nlohmann::json query(Arguments* arguments) {
  const bool second = on_second(arguments);
  const sim::QueryStorage storage = second ? sim::second_storage() : sim::trinity_storage();
  const sim::QueryLoad load{static_cast<double>(arguments->number("reads", 1)),
                            static_cast<double>(arguments->number("bytes", 0))};
  arguments->expect_no_more();
  return {{"s", sim::query_s(storage, load)}};
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  constexpr const char* kParts[] = {"printed", "run", "rank", "memory", "epoch", "query"};
  constexpr nlohmann::json (*kRun[])(Arguments*) = {printed, run, rank, memory, epoch, query};
  report(kRun[arguments.choice("part", kParts)](&arguments));
}
