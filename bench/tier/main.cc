// bench_tier: one measurement of the tier's engine, as a line of JSON. bench/tier/tier.py runs all of them.
//
//   bench_tier run WORKLOAD PRESET POLICY[@paper] [name=value ...]  in virtual time, on the model of the
//                                                                   paper's testbed
//   bench_tier --trace FILE [PRESET [POLICY]] [name=value ...]  a recorded trace (swale tier mount --trace),
//                                                               replayed: a line for
//                                                              each policy and preset
//   bench_tier streams WORKLOAD [name=value ...]               the detector's percentages and decisions,
//                                                              stream by stream
//   bench_tier offsets WORKLOAD                                a stream of requests: where they lie, as they
//                                                              arrive
//   bench_tier cpu POLICY                                      ns a request, without devices
//   bench_tier recovery DIRECTORY                              opening a store whose log of a GiB is full;
//                                                              makes DIRECTORY
//   bench_tier order KIB                                       Table 1: 2 GiB of random writes of so many KiB
//
// PRESET: A, B, C, or a file that swale tier measure has written.
// Values: seed, segments, ssd_gib, slots, stream, gap_share, flush_share, always_share, budget_several,
// budget_random, stripe_mib, spread_mib, need, need_random, stripe_queue, overload, log_first, slack_us,
// costly, cheap, overflow; of a replay: speed (0: as fast as answers come), in_flight, and ssd_gib (by
// default 1).
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/tier/engine_cost.h"
#include "bench/tier/recovery.h"
#include "bench/tier/replay.h"
#include "bench/tier/testbed.h"
#include "io/disk_preset.h"
#include "io/posix_device.h"

namespace swale::tierbench {
namespace {

using nlohmann::json;
using Values = std::map<std::string, double>;

// As a mount has them (tier/store/serving_options.cc), for every policy. "ssdup+@paper": two regions, and the
// preset's own queue; one segment for policies that send everything to the SSD.
constexpr double kShippedSegments = 16;
constexpr double kShippedSlots = 64;
constexpr std::string_view kPaperShape = "@paper";

double value(const Values& values, const std::string& name, double otherwise) {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr, "bench_tier: %s; see the head of bench/tier/main.cc\n", why.c_str());
  std::exit(2);
}

// With what results say of it.
struct Preset {
  io::Testbed bed;
  json about;
};

Preset preset(const std::string& name) {
  const auto beds = io::testbeds();
  if (name.size() == 1 && name[0] >= 'A' && name[0] < static_cast<char>('A' + beds.size())) {
    const io::Testbed& bed = beds[static_cast<size_t>(name[0] - 'A')];
    return {bed, {{"preset", name}, {"preset_source", bed.disk.source}}};
  }
  io::PosixDevice device;
  const auto found = io::read_disk_preset(device, name);
  if (!found.ok())
    usage("preset '" + name +
          "' is not A, B or C, and no file of a preset: " + std::string(found.status().message()));
  return {found->bed, {{"preset", found->name}, {"preset_source", found->source}}};
}

tier::Options make_options(const std::string& policy, const io::Testbed& bed, const Workload& workload,
                           const Values& values) {
  tier::Options options;
  const bool paper_shape = policy.ends_with(kPaperShape);
  const auto parsed =
      tier::parse_policy(paper_shape ? policy.substr(0, policy.size() - kPaperShape.size()) : policy);
  if (!parsed.ok()) usage(std::string(parsed.status().message()));
  options.policy = *parsed;
  const bool all_to_ssd = *parsed == tier::Policy::kSsdBlocking || *parsed == tier::Policy::kSsdOverflowing;
  const double paper = all_to_ssd ? 1 : 2;
  options.segment_count =
      static_cast<uint32_t>(value(values, "segments", paper_shape ? paper : kShippedSegments));
  const double ssd = value(values, "ssd_gib", workload.ssd_gib) / 2 * static_cast<double>(kGiB);
  options.segment_bytes = static_cast<uint64_t>(ssd / options.segment_count) / 4096 * 4096;
  options.queue_slots =
      static_cast<uint32_t>(value(values, "slots", paper_shape ? bed.disk.slots : kShippedSlots));
  options.merge_bytes_max = static_cast<uint32_t>(bed.disk.merge_bytes_max);
  options.backing = bed.disk;
  options.detector.stream_requests = static_cast<uint32_t>(value(values, "stream", 128));
  tier::SwaleOptions& own = options.swale;
  own.gap_fill_share = value(values, "gap_share", own.gap_fill_share);
  own.flush_queue_share = value(values, "flush_share", own.flush_queue_share);
  own.flush_always_share = value(values, "always_share", own.flush_always_share);
  own.byte_budget_several = value(values, "budget_several", own.byte_budget_several);
  own.byte_budget_random = value(values, "budget_random", own.byte_budget_random);
  const auto mib = [&](const char* name, uint64_t otherwise) {
    return static_cast<uint64_t>(value(values, name, static_cast<double>(otherwise) / kMiB) * kMiB);
  };
  own.stripe_bytes = mib("stripe_mib", own.stripe_bytes);
  own.stripe_spread_bytes = mib("spread_mib", own.stripe_spread_bytes);
  own.stripe_need = value(values, "need", own.stripe_need);
  own.stripe_need_random = value(values, "need_random", own.stripe_need_random);
  own.stripe_queue_share = value(values, "stripe_queue", own.stripe_queue_share);
  own.overload_ratio = value(values, "overload", own.overload_ratio);
  own.costly_share = value(values, "costly", own.costly_share);
  own.cheap_ratio = value(values, "cheap", own.cheap_ratio);
  own.overflow_ratio = value(values, "overflow", own.overflow_ratio);
  own.log_first_ratio = value(values, "log_first", own.log_first_ratio);
  own.gap_fill_slack_ns = static_cast<int64_t>(
      1e3 * value(values, "slack_us", 1e-3 * static_cast<double>(own.gap_fill_slack_ns)));
  if (const Status status = options.validate(); !status.ok()) usage(std::string(status.message()));
  return options;
}

json describe(const Outcome& outcome) {
  const tier::Stats& stats = outcome.stats;
  return {{"acknowledged_s", outcome.acknowledged_s},
          {"drained_s", outcome.drained_s},
          {"bytes", outcome.bytes},
          {"ssd_bytes", 2 * stats.ssd_bytes},
          {"shadow_ssd_bytes", outcome.shadow_ssd_bytes},
          {"ssd_share", 2 * static_cast<double>(stats.ssd_bytes) / static_cast<double>(outcome.bytes)},
          {"mb_per_s", static_cast<double>(outcome.bytes) / 1e6 / outcome.acknowledged_s},
          {"program_mb_per_s", outcome.program_mb_per_s},
          {"random_percentage", stats.random_percentage_mean},
          {"paused_s", to_seconds(stats.paused_ns)},
          {"stalled_s", to_seconds(stats.stalled_ns)},
          {"gap_filled_bytes", 2 * stats.gap_filled_bytes},
          {"flushed_bytes", 2 * stats.flushed_bytes},
          {"erasures", stats.erasures},
          {"disk_seeks", outcome.disk_seeks},
          {"disk_busy_s", outcome.disk_busy_s},
          {"map_extents_max", outcome.map_extents_max},
          {"map_bytes_per_extent", outcome.map_bytes_per_extent},
          {"direct_ns_per_byte", stats.direct_ns_per_byte},
          {"flush_ns_per_byte", stats.flush_ns_per_byte},
          {"host_ns_per_request", outcome.host_ns_per_request}};
}

// One after the other: as the paper adds its tests up, all bytes over the sum of the times.
Outcome run_in_turn(const io::Testbed& bed, const tier::Options& options, std::vector<Program> programs) {
  Outcome sum;
  for (Program& program : programs) {
    std::vector<Program> alone;
    alone.push_back(std::move(program));
    const Outcome one = run_together(bed, options, std::move(alone), false);
    sum.acknowledged_s += one.acknowledged_s;
    sum.drained_s += one.drained_s;
    sum.bytes += one.bytes;
    sum.program_mb_per_s.push_back(one.program_mb_per_s[0]);
    sum.stats.ssd_bytes += one.stats.ssd_bytes;
    sum.stats.flushed_bytes += one.stats.flushed_bytes;
    sum.stats.gap_filled_bytes += one.stats.gap_filled_bytes;
    sum.stats.paused_ns += one.stats.paused_ns;
    sum.stats.stalled_ns += one.stats.stalled_ns;
    sum.disk_seeks += one.disk_seeks;
    sum.disk_busy_s += one.disk_busy_s;
  }
  return sum;
}

json run(const std::string& name, const std::string& bed_name, const std::string& policy,
         const Values& values) {
  const Workload workload = make_workload(name);
  if (workload.programs.empty()) usage("workload '" + name + "' is unknown");
  const auto [bed, about] = preset(bed_name);
  const tier::Options options = make_options(policy, bed, workload, values);
  const auto seed = static_cast<uint64_t>(value(values, "seed", static_cast<double>(workload.arrival_seed)));
  std::vector<Program> programs;
  for (size_t i = 0; i < workload.programs.size(); ++i)
    programs.push_back(make_program(workload.programs[i], static_cast<uint32_t>(i), seed));
  json line = describe(workload.one_after_the_other
                           ? run_in_turn(bed, options, std::move(programs))
                           : run_together(bed, options, std::move(programs), name.starts_with("F14")));
  line["workload"] = name;
  line.update(about);
  line["policy"] = policy;
  line["segments"] = options.segment_count;
  line["slots"] = options.queue_slots;
  line["values"] = values;
  return line;
}

json streams(const std::string& name, const Values& values) {
  const Workload workload = make_workload(name);
  if (workload.programs.empty()) usage("workload '" + name + "' is unknown");
  const Program program =
      make_program(workload.programs[0], 0, static_cast<uint64_t>(value(values, "seed", 11)));
  tier::Traffic traffic(tier::Traffic::Rule::kAdaptive, tier::DetectorOptions{});
  json percentages = json::array(), thresholds = json::array(), to_ssd = json::array();
  uint64_t seen = 0;
  bool device = false;
  for (const Request& request : program.requests) {
    const bool answer = traffic.add(0, request.offset, request.length);
    if (traffic.streams() == seen) {
      device = answer;
      continue;
    }
    seen = traffic.streams();
    percentages.push_back(traffic.percentage());
    thresholds.push_back(traffic.threshold());
    to_ssd.push_back(device);
  }
  return {{"percentages", percentages}, {"thresholds", thresholds}, {"to_ssd", to_ssd}, {"workload", name}};
}

// The places of 128 requests as they arrive, in GiB of both servers; programs take turns, their files lie
// behind each other.
json offsets(const std::string& name) {
  const Workload workload = make_workload(name);
  if (workload.programs.empty()) usage("workload '" + name + "' is unknown");
  constexpr size_t kStream = 128;
  constexpr size_t kFirst = 8 * kStream;  // all programs are under way
  std::vector<Program> programs;
  std::vector<double> begin = {0};
  for (size_t i = 0; i < workload.programs.size(); ++i) {
    programs.push_back(make_program(workload.programs[i], static_cast<uint32_t>(i), workload.arrival_seed));
    begin.push_back(begin.back() + workload.programs[i].gib);
  }
  json places = json::array();
  for (size_t i = kFirst; i < kFirst + kStream; ++i) {
    const size_t turn = i % programs.size();
    const Request& request = programs[turn].requests[i / programs.size()];
    places.push_back(begin[turn] + 2 * static_cast<double>(request.offset) / static_cast<double>(kGiB));
  }
  const double request_gib = 2 * programs[0].requests[0].length / static_cast<double>(kGiB);
  return {{"workload", name}, {"gib", places}, {"request_gib", request_gib}};
}

json cpu(const std::string& policy) {
  Workload workload = make_workload("W2");
  const Program program = make_program(workload.programs[0], 0, 11);
  json line = {{"policy", policy}};
  for (const double ssd_gib : {2.0, 32.0}) {
    const auto options = make_options(policy, preset("A").bed, workload, {{"ssd_gib", ssd_gib}});
    double best = 1e18;
    for (int round = 0; round < 5; ++round)
      best = std::min(best, engine_ns_per_request(options, program, 32));
    line[ssd_gib < 8 ? "ns_small_ssd" : "ns_large_ssd"] = best;
  }
  return line;
}

json order(double kib) {
  const Program program = make_program({Pattern::kRandom, 16, 4, static_cast<uint32_t>(kib)}, 0, 11);
  const OrderCost cost = order_cost(program);
  if (!cost.agree) usage("the three orders disagree");
  return {{"kib", kib},
          {"requests", program.requests.size()},
          {"group_s", cost.group_s},
          {"map_s", cost.map_s},
          {"avl_s", cost.avl_s},
          {"hash_sort_s", cost.hash_sort_s},
          {"map_bytes_per_extent", cost.map_bytes_per_extent}};
}

json recovery(const std::string& directory) {
  const auto cost = recovery_cost(directory);
  if (!cost.ok()) usage(cost.status().to_string());
  const double gib = static_cast<double>(cost->log_bytes) / static_cast<double>(kGiB);
  return {{"open_s", cost->open_s},
          {"open_cpu_s", cost->open_cpu_s},
          {"log_bytes", cost->log_bytes},
          {"payload_bytes", cost->payload_bytes},
          {"records", cost->records},
          {"wall_seconds_per_gib", cost->open_s / gib},
          {"cpu_seconds_per_gib", cost->open_cpu_s / gib}};
}

std::vector<tier::TraceRecord> records_of(const std::string& path) {
  io::PosixDevice device;
  const auto file = device.open(path, io::OpenMode::kRead);
  if (!file.ok()) usage(std::string(file.status().message()));
  std::vector<tier::TraceRecord> records;
  const auto read = tier::read_trace(**file, [&](const auto& record) { records.push_back(record); });
  if (!read.ok()) usage(std::string(read.status().message()));
  if (!read->complete || read->dropped > 0)
    std::fprintf(stderr, "bench_tier: %s: the trace ends early, or lacks requests (%llu)\n", path.c_str(),
                 static_cast<unsigned long long>(read->dropped));
  return records;
}

json replay_once(const std::vector<tier::TraceRecord>& records, const std::string& bed_name,
                 const std::string& policy, Values values) {
  const auto [bed, about] = preset(bed_name);
  values["ssd_gib"] = 2 * value(values, "ssd_gib", 1);  // make_options halves it for two servers
  const tier::Options options = make_options(policy, bed, Workload(), values);
  const ReplayOptions how = {value(values, "speed", 1),
                             static_cast<uint32_t>(value(values, "in_flight", 64))};
  if (how.in_flight < 1 || how.in_flight > 256) usage("in_flight is 1 to 256");
  const Replayed found = replay(bed, options, records, how);
  const auto writes = static_cast<double>(std::max<uint64_t>(1, found.stats.write_bytes));
  json line = {{"policy", policy},
               {"acknowledged_s", found.acknowledged_s},
               {"drained_s", found.drained_s},
               {"requests", found.requests},
               {"write_bytes", found.stats.write_bytes},
               {"read_bytes", found.read_bytes},
               {"ssd_bytes", found.stats.ssd_bytes},
               {"ssd_share", static_cast<double>(found.stats.ssd_bytes) / writes},
               {"wait_mean_ms", found.wait_mean_ms},
               {"wait_max_ms", found.wait_max_ms},
               {"random_percentage", found.stats.random_percentage_mean},
               {"values", values}};
  line.update(about);
  return line;
}

// Words: FILE [PRESET [POLICY]].
void replay_all(const std::vector<std::string>& words, const Values& values) {
  if (words.empty() || words.size() > 3) usage("expected --trace FILE [PRESET [POLICY]]");
  const auto records = records_of(words[0]);
  const std::vector<std::string> all = {"backing", "ssd", "ssd-overflow", "ssdup", "ssdup+", "swale"};
  for (const std::string& bed :
       words.size() > 1 ? std::vector{words[1]} : std::vector<std::string>{"A", "B", "C"})
    for (const std::string& policy : words.size() > 2 ? std::vector{words[2]} : all) {
      json line = replay_once(records, bed, policy, values);
      line["trace"] = words[0];
      std::printf("%s\n", line.dump().c_str());
    }
}

int main_of(const std::vector<std::string>& words) {
  Values values;
  std::vector<std::string> plain;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos)
      plain.push_back(word);
    else
      values[word.substr(0, at)] = std::strtod(word.c_str() + at + 1, nullptr);
  }
  if (!plain.empty() && plain[0] == "--trace")
    replay_all({plain.begin() + 1, plain.end()}, values);
  else if (plain.size() == 4 && plain[0] == "run")
    std::printf("%s\n", run(plain[1], plain[2], plain[3], values).dump().c_str());
  else if (plain.size() == 2 && plain[0] == "streams")
    std::printf("%s\n", streams(plain[1], values).dump().c_str());
  else if (plain.size() == 2 && plain[0] == "offsets")
    std::printf("%s\n", offsets(plain[1]).dump().c_str());
  else if (plain.size() == 2 && plain[0] == "cpu")
    std::printf("%s\n", cpu(plain[1]).dump().c_str());
  else if (plain.size() == 2 && plain[0] == "order")
    std::printf("%s\n", order(std::strtod(plain[1].c_str(), nullptr)).dump().c_str());
  else if (plain.size() == 2 && plain[0] == "recovery")
    std::printf("%s\n", recovery(plain[1]).dump().c_str());
  else
    usage("expected --trace, run, streams, offsets, cpu, order or recovery");
  return 0;
}

}  // namespace
}  // namespace swale::tierbench

int main(int argc, char** argv) { return swale::tierbench::main_of({argv + 1, argv + argc}); }
