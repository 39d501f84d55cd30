// bench_pipeline: the write pipeline with one of its parts changed, on storage of a given speed, beside an
// application that computes between its frames.
//   --path DIR --ranks N --keys N (in each frame, of all ranks) --epochs N --memory BYTES --ways N
//   --limit BYTES/S        of each rank's storage; 0: no limit
//   --limit-first BYTES/S  of rank 0's, if it is another
//   --delivery queue|wait  whether the progress thread may wait for room in the memtables
//   --turns 1              one output buffer: sorting and writing take turns
//   --compute-ms N         CPU time that the application takes after each frame
//   --end wait|begin|next  how a frame ends: epoch_end before computing; epoch_end_begin before, waited for
//                          when the next frame is in; epoch_end at the beginning of the next frame
//                          (deltafs-imd-2017, section 3)
//   --canary 1             one value wrong
#include <fmt/format.h>

#include <algorithm>

#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "imd/write/writer.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  int ranks = 1;
  Dataset data;
  uint64_t limit = 0;
  uint64_t limit_first = 0;
  uint64_t compute_ms = 0;
  std::string end;
  imd::WriterOptions options;
};

// What a rank reports, in RankReport::frame_s.
enum Figure : size_t {
  kAppendS,       // in appends, generating included
  kEndS,          // in the calls that end epochs
  kComputeWallS,  // computing, and
  kComputeCpuS,   // what of it was this thread's CPU
  kWaitedS,       // the progress thread, for room in the memtables
  kQueueFrames,   // the most that the delivery queue held
  kCreditWaits,   // frames that found no credit
  kLogBytes,      // written to data and index logs
  kFigures,
};
static_assert(kFigures <= kFramesMax);

// Arithmetic for so much CPU time of the calling thread: what is taken from it shows in the wall time.
void compute(uint64_t ms) {
  constexpr int kStepsPerLook = 200'000;
  uint64_t x = ms;
  const double until = thread_cpu_s() + static_cast<double>(ms) * 1e-3;
  while (thread_cpu_s() < until) {
    for (int i = 0; i < kStepsPerLook; ++i) x = mix(x);
    asm volatile("" : : "r"(x));
  }
}

// A metric that has another name now ends the program: a figure of 0 would be believed.
double metric_of(const MetricsSnapshot& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return static_cast<double>(metric.value);
  }
  die("the writer has no metric '" + name + "'");
}

class Application {
 public:
  Application(const Work& work, int rank, imd::Writer& writer, RankReport& report)
      : work_(work), rank_(rank), writer_(writer), figures_(report.frame_s) {}

  void run() {
    for (uint32_t epoch = 0; epoch < work_.data.epochs; ++epoch) {
      if (work_.end == "next" && epoch > 0) end([&] { return writer_.epoch_end(epoch - 1, 0); });
      const double begin = now_s();
      append_frame(epoch);
      figures_[kAppendS] += now_s() - begin;
      if (work_.end == "wait") end([&] { return writer_.epoch_end(epoch, 0); });
      if (work_.end == "begin") {
        end([&] { return writer_.epoch_end_wait(); });
        end([&] { return writer_.epoch_end_begin(epoch, 0); });
      }
      const double computing = now_s();
      const double cpu = thread_cpu_s();
      compute(work_.compute_ms);
      figures_[kComputeWallS] += now_s() - computing;
      figures_[kComputeCpuS] += thread_cpu_s() - cpu;
    }
    if (work_.end == "next") end([&] { return writer_.epoch_end(work_.data.epochs - 1, 0); });
    end([&] { return writer_.epoch_end_wait(); });
    const MetricsSnapshot metrics = writer_.metrics();
    figures_[kWaitedS] = metric_of(metrics, "progress_waited") * 1e-9;
    figures_[kQueueFrames] = metric_of(metrics, "delivery.frames_max");
    figures_[kCreditWaits] = metric_of(metrics, "network.credit_waits");
    figures_[kLogBytes] = metric_of(metrics, "write.data") + metric_of(metrics, "write.index");
  }

 private:
  void append(const Record& record) {
    check(writer_.append(Bytes(reinterpret_cast<const char*>(&record.key), kKeyBytes),
                         Bytes(reinterpret_cast<const char*>(record.value.data()), kValueBytes)));
  }

  void append_frame(uint32_t epoch) {
    work_.data.for_each(epoch, share_of(work_.data.keys, rank_, work_.ranks),
                        [&](const Record& record) { append(record); });
  }

  template <class Call>
  void end(Call&& call) {
    const double begin = now_s();
    check(call());
    figures_[kEndS] += now_s() - begin;
  }

  const Work& work_;
  const int rank_;
  imd::Writer& writer_;
  double* const figures_;
};

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  RankStorage storage(rank == 0 && work.limit_first != 0 ? work.limit_first : work.limit);
  const std::unique_ptr<net::Job> job = open_job(work.ranks);
  const std::unique_ptr<imd::Writer> writer = take(
      imd::Writer::open(*job, storage.device(), work.path, imd::Writer::Create::kExclusive, work.options));
  barrier.wait();
  const Stopwatch stopwatch;
  report.begin_s = now_s();
  Application(work, rank, *writer, report).run();
  report.end_s = now_s();
  report.cpu = stopwatch.cpu();
  check(writer->close());
  check(job->close());
}

nlohmann::json json_of(const Work& work, const RanksReport& report) {
  const double records = work.data.records();
  const auto most = [&](Figure figure) {
    double found = 0;
    for (const RankReport& rank : report.ranks) found = std::max(found, rank.frame_s[figure]);
    return found;
  };
  const double ranks = work.ranks;
  const double wall_s = report.wall_s();
  nlohmann::json line = costs_of(records, wall_s, report.cpu_between());
  line.update({{"bytes", records * kRecordBytes},
               {"disk_bytes", bytes_on_disk(work.path)},
               {"files", files_below(work.path)},
               {"log_bytes_written", report.sum(kLogBytes)},
               {"bytes_per_s", records * kRecordBytes / wall_s},
               {"append_s", report.sum(kAppendS) / ranks},
               {"end_s", report.sum(kEndS) / ranks},
               {"compute_wall_s", report.sum(kComputeWallS) / ranks},
               {"compute_cpu_s", report.sum(kComputeCpuS) / ranks},
               {"progress_waited_share", report.sum(kWaitedS) / ranks / wall_s},
               {"delivery_queue_frames_max", most(kQueueFrames)},
               {"credit_waits", report.sum(kCreditWaits)}});
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  namespace imd = swale::imd;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.ranks = static_cast<int>(arguments.number("ranks", 1));
  work.data = dataset_of(arguments, Canary::kAllowed, 4'000'000, 3);
  work.limit = arguments.number("limit", 0);
  work.limit_first = arguments.number("limit-first", 0);
  work.compute_ms = arguments.number("compute-ms", 0);
  work.end = arguments.text("end", "wait");
  work.options.memory_bytes = arguments.number("memory", uint64_t{64} << 20);
  work.options.ways = static_cast<uint32_t>(arguments.number("ways", 1));
  const std::string delivery = arguments.text("delivery", "queue");
  if (arguments.number("turns", 0) != 0) work.options.ablation.output_buffers_max = 1;
  arguments.expect_no_more();
  if (delivery != "queue" && delivery != "wait") die("--delivery: " + delivery);
  if (delivery == "wait") work.options.ablation.delivery = imd::Ablation::Delivery::kWait;
  if (work.end != "wait" && work.end != "begin" && work.end != "next") die("--end: " + work.end);
  remove_all(work.path);
  register_network();
  report_as("pipeline", "",
            json_of(work, run_ranks(work.ranks, [&](int rank, RankReport& mine, RankBarrier& barrier) {
                      run_rank(work, rank, mine, barrier);
                    })));
  return 0;
}
