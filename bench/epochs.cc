// bench_epochs: many small epochs: how long their ends take, what they leave on disk, how long a reader takes to open.
//   --path DIR --ranks N --epochs N --records N (in each epoch, of all ranks) --opens N
// The time of an end is rank 0's, the median of `window` around the 100th and of the last ones.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"

namespace swale::bench {
namespace {

constexpr size_t kValueBytes = 40;
constexpr uint64_t kWindow = 50;

struct Work {
  std::string path;
  int ranks = 1;
  uint64_t epochs = 0;
  uint64_t records = 0;
};

// What rank 0 reports, in RankReport::frame_s.
enum Figure : size_t { kEarlyS, kLateS, kEarlyCpuS, kLateCpuS };

double median_around(const std::vector<double>& ends, uint64_t first) {
  const auto begin = ends.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<double> window(begin, begin + static_cast<std::ptrdiff_t>(kWindow));
  return percentile(window, 0.5);
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void append_epoch(const Work& work, uint64_t epoch, int rank, imd::Writer& writer) {
  uint64_t value[kValueBytes / sizeof(uint64_t)];
  for (auto i = static_cast<uint64_t>(rank); i < work.records; i += static_cast<uint64_t>(work.ranks)) {
    const uint64_t key = mix(epoch * work.records + i + 1);
    for (uint64_t& word : value) word = mix(key + static_cast<uint64_t>(&word - value) + 1);
    check(writer.append(Bytes(reinterpret_cast<const char*>(&key), sizeof key),
                        Bytes(reinterpret_cast<const char*>(value), sizeof value)));
  }
}

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  RankStorage storage(0);
  const std::unique_ptr<net::Job> job = open_job(work.ranks);
  imd::WriterOptions options;
  options.memory_bytes = uint64_t{16} << 20;
  const std::unique_ptr<imd::Writer> writer =
      take(imd::Writer::open(*job, storage.device(), work.path, imd::Writer::Create::kExclusive, options));
  barrier.wait();
  report.begin_s = now_s();
  std::vector<double> ends;
  std::vector<double> cpu;  // of an epoch, all threads; the disk's moods do not show in it
  for (uint64_t epoch = 0; epoch < work.epochs; ++epoch) {
    const Stopwatch epoch_watch;
    append_epoch(work, epoch, rank, *writer);
    const double begin = now_s();
    check(writer->epoch_end(static_cast<int64_t>(epoch), 0));
    ends.push_back(now_s() - begin);
    cpu.push_back(epoch_watch.cpu().total_s());
  }
  check(writer->close());
  report.end_s = now_s();
  report.frame_s[kEarlyS] = median_around(ends, 100 - kWindow / 2);
  report.frame_s[kLateS] = median_around(ends, work.epochs - kWindow);
  report.frame_s[kEarlyCpuS] = median_around(cpu, 100 - kWindow / 2);
  report.frame_s[kLateCpuS] = median_around(cpu, work.epochs - kWindow);
  check(job->close());
}

double open_reader_s(const Work& work) {
  io::PosixDevice device;
  const double begin = now_s();
  const auto reader = take(imd::Reader::open(device, work.path, {}));
  const double taken = now_s() - begin;
  if (reader->manifest().epochs.size() != work.epochs) die("WRONG ANSWER: the reader has not all epochs");
  return taken;
}

nlohmann::json json_of(const Work& work, const RanksReport& report, uint64_t opens) {
  std::vector<double> taken;
  for (uint64_t i = 0; i < opens; ++i) taken.push_back(open_reader_s(work));
  const DiskUse use = disk_use(work.path);
  const double records = static_cast<double>(work.records) * static_cast<double>(work.epochs);
  const double early = report.ranks.front().frame_s[kEarlyS];
  const double late = report.ranks.front().frame_s[kLateS];
  nlohmann::json line = costs_of(records, report.wall_s(), report.cpu_between());
  line.update({{"ranks", work.ranks},
               {"epochs", work.epochs},
               {"end_100th_s", early},
               {"end_last_s", late},
               {"end_growth", late / early},
               {"cpu_100th_s", report.ranks.front().frame_s[kEarlyCpuS]},
               {"cpu_last_s", report.ranks.front().frame_s[kLateCpuS]},
               {"bytes_per_record", static_cast<double>(use.size_bytes) / records},
               {"allocated_bytes_per_record", static_cast<double>(use.allocated_bytes) / records},
               {"open_min_s", *std::min_element(taken.begin(), taken.end())},
               {"open_median_s", percentile(taken, 0.5)}});
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.ranks = static_cast<int>(arguments.number("ranks", 1));
  work.epochs = arguments.number("epochs", 10'000);
  work.records = arguments.number("records", 1'000);
  const uint64_t opens = arguments.number("opens", 20);
  arguments.expect_no_more();
  if (work.epochs < 100 + kWindow || work.records == 0 || opens == 0)
    die(fmt::format("--epochs is at least {}, --records and --opens at least 1", 100 + kWindow));
  remove_all(work.path);
  register_network();
  const RanksReport ran = run_ranks(work.ranks, [&](int rank, RankReport& mine, RankBarrier& barrier) {
    run_rank(work, rank, mine, barrier);
  });
  report_as("epochs", "", json_of(work, ran, opens));
  return 0;
}
