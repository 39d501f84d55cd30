// bench_epochs: many small epochs: how long their ends take, what they leave on disk, how long a reader takes
// to open.
//   --path DIR --ranks N --epochs N --records N (in each epoch, of all ranks) --opens N
// The time of an end is rank 0's. The last ends of the directory are timed in turn with those around the
// 100th end of a young directory beside it (DIR.young), so that both meet the same moods of disk and machine;
// medians.
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
constexpr uint64_t kWindow = 100;                     // ends that are timed in each directory
constexpr uint64_t kYoungEpochs = 100 - kWindow / 2;  // before them, in the young one

struct Work {
  std::string path;
  int ranks = 1;
  uint64_t epochs = 0;
  uint64_t records = 0;

  std::string young_path() const { return path + ".young"; }
};

// What rank 0 reports, in RankReport::frame_s.
enum Figure : size_t { kEarlyS, kLateS, kEarlyCpuS, kLateCpuS };

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A directory that one rank writes.
class Directory {
 public:
  Directory(net::Job& job, io::Device& device, const std::string& path, const Work& work)
      : work_(work), rank_(static_cast<uint64_t>(job.rank())) {
    imd::WriterOptions options;
    options.memory_bytes = uint64_t{16} << 20;
    writer_ = take(imd::Writer::open(job, device, path, imd::Writer::Create::kExclusive, options));
  }

  void write_until(uint64_t epochs) {
    while (epoch_ < epochs) write_epoch();
  }
  void time_epoch() {
    const Stopwatch watch;
    ends_s_.push_back(write_epoch());
    cpu_s_.push_back(watch.cpu().total_s());  // of all threads; the disk's moods do not show in it
  }
  void close() { check(writer_->close()); }

  double end_s() { return percentile(ends_s_, 0.5); }
  double cpu_s() { return percentile(cpu_s_, 0.5); }

 private:
  // Returns how long the end took.
  double write_epoch() {
    uint64_t value[kValueBytes / sizeof(uint64_t)];
    for (uint64_t i = rank_; i < work_.records; i += static_cast<uint64_t>(work_.ranks)) {
      const uint64_t key = mix(epoch_ * work_.records + i + 1);
      for (uint64_t& word : value) word = mix(key + static_cast<uint64_t>(&word - value) + 1);
      check(writer_->append(Bytes(reinterpret_cast<const char*>(&key), sizeof key),
                            Bytes(reinterpret_cast<const char*>(value), sizeof value)));
    }
    const double begin = now_s();
    check(writer_->epoch_end(static_cast<int64_t>(epoch_++), 0));
    return now_s() - begin;
  }

  const Work& work_;
  const uint64_t rank_;
  std::unique_ptr<imd::Writer> writer_;
  uint64_t epoch_ = 0;
  std::vector<double> ends_s_;
  std::vector<double> cpu_s_;
};

void run_rank(const Work& work, RankReport& report, RankBarrier& barrier) {
  RankStorage storage(0);
  const std::unique_ptr<net::Job> job = open_job(work.ranks);
  Directory old(*job, storage.device(), work.path, work);
  barrier.wait();
  report.begin_s = now_s();
  old.write_until(work.epochs - kWindow);
  report.end_s = now_s();
  Directory young(*job, storage.device(), work.young_path(), work);
  young.write_until(kYoungEpochs);
  for (uint64_t i = 0; i < kWindow; ++i) {
    (i % 2 == 0 ? old : young).time_epoch();
    (i % 2 == 0 ? young : old).time_epoch();
  }
  old.close();
  young.close();
  report.frame_s[kEarlyS] = young.end_s();
  report.frame_s[kLateS] = old.end_s();
  report.frame_s[kEarlyCpuS] = young.cpu_s();
  report.frame_s[kLateCpuS] = old.cpu_s();
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
  remove_all(work.young_path());
  register_network();
  const RanksReport ran = run_ranks(
      work.ranks, [&](int, RankReport& mine, RankBarrier& barrier) { run_rank(work, mine, barrier); });
  remove_all(work.young_path());
  report_as("epochs", "", json_of(work, ran, opens));
  return 0;
}
