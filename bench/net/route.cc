// bench_route: shuffle and index, directly and by three hops: ranks of one machine on so many nodes as they
// are told.
//   --path DIR --nodes M --ranks C (a node) --keys N (all ranks, each epoch) --epochs N --memory BYTES
//   --route direct|three-hop --listening 0|1 (1: a job on one node opens ports, as one on several nodes does)
// Every epoch is committed, which needs the digests of what was appended and of what was indexed to agree.
// Reported: processor time of all threads of all ranks for each record, from the first append to the end of
// the last epoch, generating taken off; the wall time of the same; what went over the wire; what the three
// hops' frames take.
#include <fmt/format.h>

#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "imd/write/writer.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  int nodes = 2;
  int ranks = 4;
  Dataset data;
  net::RouteChoice route = net::RouteChoice::kDirect;
  bool listening = false;
  imd::WriterOptions options;

  int size() const { return nodes * ranks; }
};

// What a rank reports, in RankReport::frame_s.
enum Figure : size_t { kGenerateCpuS, kFrames, kWireBytes, kHopBytes, kFigures };
static_assert(kFigures <= kFramesMax);

double metric_of(const MetricsSnapshot& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return static_cast<double>(metric.value);
  }
  return 0;  // a stage that this route has not
}

// The processor time of generating a rank's share, without doing anything with it.
double generate_cpu_s(const Dataset& data, Share share) {
  const double begin = thread_cpu_s();
  uint64_t sum = 0;
  for (uint32_t epoch = 0; epoch < data.epochs; ++epoch)
    data.for_each(epoch, share, [&](const Record& record) { sum += record.key + record.value[0]; });
  asm volatile("" : : "r"(sum));
  return thread_cpu_s() - begin;
}

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  RankStorage storage(0);
  net::JobOptions options;
  options.node = fmt::format("node-{}", rank / work.ranks);
  options.route = work.route;
  options.listens_on_one_node = work.listening;
  const std::unique_ptr<net::Job> job = open_job(work.size(), options);
  const std::unique_ptr<imd::Writer> writer = take(
      imd::Writer::open(*job, storage.device(), work.path, imd::Writer::Create::kExclusive, work.options));
  const Share share = share_of(work.data.keys, rank, work.size());
  report.frame_s[kGenerateCpuS] = generate_cpu_s(work.data, share);
  barrier.wait();
  const Stopwatch stopwatch;
  report.begin_s = now_s();
  for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
    work.data.for_each(epoch, share, [&](const Record& record) {
      check(writer->append(Bytes(reinterpret_cast<const char*>(&record.key), kKeyBytes),
                           Bytes(reinterpret_cast<const char*>(record.value.data()), kValueBytes)));
    });
    check(writer->epoch_end(epoch, 0));
  }
  report.end_s = now_s();
  report.cpu = stopwatch.cpu();
  const MetricsSnapshot metrics = writer->metrics();
  report.frame_s[kFrames] = metric_of(metrics, "network.frames");
  report.frame_s[kWireBytes] = metric_of(metrics, "network.bytes");
  report.frame_s[kHopBytes] = metric_of(metrics, "memory: frames of three hops");
  barrier.wait();
  check(writer->close());
  check(job->close());
}

nlohmann::json json_of(const Work& work, const RanksReport& report) {
  const double records = work.data.records();
  nlohmann::json line = costs_of(records, report.wall_s(), report.cpu_between());
  const double generating = report.sum(kGenerateCpuS) / records * 1e9;
  line["generating_cpu_ns_per_record"] = generating;
  line["shuffle_cpu_ns_per_record"] = line["cpu_ns_per_record"].get<double>() - generating;
  line["wire_bytes_per_record"] = report.sum(kWireBytes) / records;
  line["frames"] = report.sum(kFrames);
  line["hop_buffer_bytes_per_rank"] = report.sum(kHopBytes) / work.size();
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale;
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.nodes = static_cast<int>(arguments.number("nodes", 2));
  work.ranks = static_cast<int>(arguments.number("ranks", 4));
  work.data.keys = arguments.number("keys", 1'000'000);
  work.data.epochs = static_cast<uint32_t>(arguments.number("epochs", 2));
  work.options.memory_bytes = arguments.number("memory", 64 * kMiB);
  constexpr const char* kRoutes[] = {"direct", "three-hop"};
  const bool three_hop = arguments.choice("route", kRoutes) == 1;
  work.route = three_hop ? net::RouteChoice::kThreeHop : net::RouteChoice::kDirect;
  work.listening = arguments.number("listening", 0) != 0;
  arguments.expect_no_more();
  register_network();
  remove_all(work.path);
  const RanksReport report = run_ranks(work.size(), [&](int rank, RankReport& mine, RankBarrier& barrier) {
    run_rank(work, rank, mine, barrier);
  });
  nlohmann::json line = json_of(work, report);
  if (three_hop != (line["hop_buffer_bytes_per_rank"].get<double>() > 0))
    die("the records have gone by another route");
  remove_all(work.path);
  bench::report(line);
}
