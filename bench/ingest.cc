// bench_ingest: what it costs to write all records, one at a time, as an application would.
//   --store nothing|append|swale   generating alone; plain O_DIRECT appends, a file per rank and epoch; a
//                                  directory
//   --ranks N --keys N (in each epoch) --epochs N --path DIR --options "imd.memory=64M"
//   --values words|doubles|floats|particles|trajectories   what values are made of (workload.h)
//   --first-epoch N  continues a directory that has N epochs, with those from there to --epochs
//   --overlap 0  waits for each epoch's end at once; else the next epoch is appended meanwhile
//   --canary 1   writes one value wrong, so that whoever checks answers can be seen to do so
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/direct_log.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/swale_call.h"

namespace swale::bench {
namespace {

struct Work {
  std::string store;
  int ranks = 1;
  Dataset data;
  uint32_t first_epoch = 0;  // the directory has those before
  std::string path;
  std::string options;
  bool overlap = true;

  double records() const { return static_cast<double>(data.keys) * (data.epochs - first_epoch); }
};

// append(record) for every record of the rank's share, epoch_end(epoch) after each epoch.
template <class Append, class EpochEnd>
void write_share(const Work& work, int rank, RankReport& report, Append&& append, EpochEnd&& epoch_end) {
  report.first_append_s = now_s();
  for (uint32_t epoch = work.first_epoch; epoch < work.data.epochs; ++epoch) {
    work.data.for_each(epoch, share_of(work.data.keys, rank, work.ranks), append);
    epoch_end(epoch);
  }
  report.last_epoch_end_s = now_s();
}

void write_nothing(const Work& work, int rank, RankReport& report) {
  write_share(
      work, rank, report,
      [](const Record& record) {
        asm volatile("" : : "r"(&record) : "memory");
      },
      [](uint32_t) {});
}

void write_appends(const Work& work, int rank, RankReport& report) {
  std::unique_ptr<DirectLog> log;
  const Share share = share_of(work.data.keys, rank, work.ranks);
  const auto open = [&](uint32_t epoch) {
    log = std::make_unique<DirectLog>(fmt::format("{}/epoch-{}.rank-{}", work.path, epoch, rank),
                                      DirectLog::Cache::kDirect, (share.last - share.first) * kRecordBytes);
  };
  open(0);
  write_share(
      work, rank, report, [&](const Record& record) { log->append(&record, sizeof record); },
      [&](uint32_t epoch) {
        log->close();
        log.reset();
        if (epoch + 1 < work.data.epochs) open(epoch + 1);
      });
}

void write_directory(swale_job* job, const Work& work, int rank, RankReport& report) {
  swale_dir* dir = nullptr;
  const int flags = work.first_epoch == 0 ? SWALE_CREATE | SWALE_EXCLUSIVE : 0;
  check(swale_dir_open(job, work.path.c_str(), flags, work.options.c_str(), &dir));
  write_share(
      work, rank, report,
      [&](const Record& record) {
        check(swale_dir_append(dir, &record.key, kKeyBytes, record.value.data(), kValueBytes));
      },
      [&](uint32_t epoch) {
        check(swale_dir_epoch_end_wait(dir));  // the one before
        check(swale_dir_epoch_end_begin(dir, epoch * 100, epoch * 0.5));
        if (!work.overlap || epoch + 1 == work.data.epochs) check(swale_dir_epoch_end_wait(dir));
      });
  check(swale_dir_close(dir));
}

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  swale_job* job = nullptr;
  if (work.store == "swale") check(swale_job_open(nullptr, nullptr, &job));
  barrier.wait();
  reset_memory_peak();
  const uint64_t memory = memory_bytes();
  const Stopwatch stopwatch;
  report.begin_s = now_s();
  if (work.store == "swale") {
    write_directory(job, work, rank, report);
  } else if (work.store == "append") {
    write_appends(work, rank, report);
  } else {
    write_nothing(work, rank, report);
  }
  report.end_s = now_s();
  report.cpu = stopwatch.cpu();
  const uint64_t peak = memory_peak_bytes();
  report.memory_bytes = peak > memory ? peak - memory : 0;
  if (job != nullptr) check(swale_job_close(job));
}

nlohmann::json json_of(const Work& work, const RanksReport& report) {
  const double records = work.records();
  double writing_s = 0;
  for (const RankReport& rank : report.ranks) {
    writing_s = std::max(writing_s, rank.last_epoch_end_s - rank.first_append_s);
  }
  nlohmann::json line = costs_of(records, report.wall_s(), report.cpu);
  line["store"] = work.store;
  line["ranks"] = work.ranks;
  line["writing_s"] = writing_s;
  line["cpu_between_ns_per_record"] = report.cpu_between().total_s() / records * 1e9;
  line["rank_memory_bytes_max"] = report.memory_bytes_max();
  if (work.store != "nothing") {
    line["bytes_ratio"] =
        static_cast<double>(bytes_on_disk(work.path)) / (work.data.records() * kRecordBytes);
    line["files"] = files_below(work.path);
  }
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.store = arguments.text("store");
  work.ranks = static_cast<int>(arguments.number("ranks", 1));
  work.data = dataset_of(arguments, Canary::kAllowed);
  work.path = arguments.text("path", "");
  work.options = arguments.text("options", "imd.memory=64M");
  work.overlap = arguments.number("overlap", 1) != 0;
  work.first_epoch = static_cast<uint32_t>(arguments.number("first-epoch", 0));
  arguments.expect_no_more();
  if (work.first_epoch >= work.data.epochs || (work.first_epoch > 0 && work.store != "swale"))
    die("--first-epoch: of a directory, and less than --epochs");
  if (work.store != "nothing" && work.store != "append" && work.store != "swale")
    die("--store: " + work.store);
  if (work.store != "nothing") {
    if (work.path.empty()) die("--path is missing");
    if (work.first_epoch == 0) remove_all(work.path);
    if (work.store == "append") std::filesystem::create_directories(work.path);
  }
  report_as("ingest", "",
            json_of(work, run_ranks(work.ranks, [&](int rank, RankReport& mine, RankBarrier& barrier) {
                      run_rank(work, rank, mine, barrier);
                    })));
  return 0;
}
