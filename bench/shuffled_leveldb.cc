// bench_shuffled_leveldb: LevelDB behind Swale's own shuffle (deltafs-scaling-2018, Fig. 8 and 10: "ldb+sh"
// and "ldb+sh+nocomp"): every rank keeps its keys in LevelDB tables; then trajectories are asked for, cold.
//   --path DIR --ranks N --keys N (in each epoch, of all ranks) --epochs N
//   --memory BYTES      of each rank: the shuffle's frames, and the rest for LevelDB's two memtables
//   --compaction on|off --filter-bits N
//   --limit BYTES/S     of each rank's tables, written; 0: no limit
//   --samples N         queries for each number of epochs, 1 to --epochs; a new reader and no page cache each
//   --canary 1          one value wrong
#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "base/hash.h"
#include "bench/dataset.h"
#include "bench/level_tables.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/shuffle.h"
#include "bench/writer_job.h"
#include "run/record.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  int ranks = 1;
  Dataset data;
  uint64_t limit = 0;
  uint64_t samples = 0;
  LevelOptions level;

  std::string share(uint32_t rank) const { return fmt::format("{}/rank-{}", path, rank); }
};

// In RankReport::frame_s.
enum Figure : size_t { kTableBytes, kReadBytes, kTables };

uint64_t put_frame(LevelWriter& writer, uint32_t epoch, Bytes records) {
  uint64_t count = 0;
  while (!records.empty()) {
    run::RecordView record;
    if (run::parse_record(records, &record) != run::RecordParse::kOk) die("a malformed record");
    uint64_t key = 0;
    std::memcpy(&key, record.key.data(), kKeyBytes);
    writer.put(epoch, key, record.value.data());
    records.remove_prefix(record.encoded.size());
    ++count;
  }
  writer.write();
  return count;
}

void run_rank(const Work& work, int rank, RankReport& report, RankBarrier& barrier) {
  EnvCounts counts;
  const std::unique_ptr<leveldb::Env> env = make_counting_env(counts, work.limit);
  const std::unique_ptr<net::Job> job = open_job(work.ranks);
  LevelOptions options = work.level;
  options.path = work.share(static_cast<uint32_t>(rank));
  options.env = env.get();
  barrier.wait();
  const Stopwatch stopwatch;
  report.begin_s = now_s();
  {
    const std::unique_ptr<LevelWriter> writer = LevelWriter::make(options);
    uint32_t epoch = 0;  // changes only while no frame is under way
    Shuffle shuffle(*job, [&](Bytes records) { return put_frame(*writer, epoch, records); });
    barrier.wait();
    report.first_append_s = now_s();
    const auto append = [&](const Record& record) {
      shuffle.append({reinterpret_cast<const char*>(&record.key), kKeyBytes},
                     {reinterpret_cast<const char*>(record.value.data()), kValueBytes});
    };
    for (uint32_t next = 0; next < work.data.epochs; ++next) {
      work.data.for_each(next, share_of(work.data.keys, rank, work.ranks), append);
      shuffle.end_epoch();
      writer->end_epoch();
      epoch = next + 1;
      barrier.wait();
    }
    report.last_epoch_end_s = now_s();
    writer->finish();
  }
  report.end_s = now_s();
  report.cpu = stopwatch.cpu();
  report.frame_s[kTableBytes] = static_cast<double>(counts.table_bytes_written);
  report.frame_s[kReadBytes] = static_cast<double>(counts.bytes_read);
  report.frame_s[kTables] = static_cast<double>(counts.tables_written);
  check(job->close());
}

// Trajectories of the first `epochs` epochs.
nlohmann::json query(const Work& work, uint32_t epochs) {
  std::vector<double> us, bytes, reads, objects;
  for (uint64_t n = 0; n < work.samples; ++n) {
    const uint64_t key = work.data.query_key(n);
    const Bytes key_bytes(reinterpret_cast<const char*>(&key), kKeyBytes);
    EnvCounts counts;
    const std::unique_ptr<leveldb::Env> env = make_counting_env(counts, 0);
    LevelOptions options = work.level;
    options.path = work.share(choose(hash_bytes(key_bytes), static_cast<uint32_t>(work.ranks)).index);
    options.env = env.get();
    const std::unique_ptr<LevelReader> reader = LevelReader::open(options, epochs);
    evict(options.path);
    counts.reset_reads();
    std::vector<Value> values(epochs);
    const double begin = now_s();
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      if (!reader->get(epoch, key, &values[epoch])) {
        die(fmt::format("WRONG ANSWER: key {} epoch {} is not found", key, epoch));
      }
    }
    us.push_back((now_s() - begin) * 1e6);
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      work.data.expect(key, epoch, values[epoch].data(), kValueBytes);
    }
    bytes.push_back(static_cast<double>(counts.bytes_read));
    reads.push_back(static_cast<double>(counts.reads));
    objects.push_back(static_cast<double>(counts.objects_touched()));
  }
  return {{"epochs", epochs},
          {"us", summary(us)},
          {"bytes", summary(bytes)},
          {"reads", summary(reads)},
          {"objects", summary(objects)}};
}

uint64_t tables_below(const std::string& path) {
  uint64_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().extension() == ".ldb") ++count;
  }
  return count;
}

nlohmann::json json_of(const Work& work, const RanksReport& report) {
  const double records = work.data.records();
  double written_s = 0;
  for (const RankReport& rank : report.ranks) {
    written_s = std::max(written_s, rank.last_epoch_end_s - report.ranks.front().first_append_s);
  }
  nlohmann::json line = {{"program", "shuffled_leveldb"},
                         {"records", records},
                         {"bytes", records * kRecordBytes},
                         {"buffer_bytes", work.level.buffer_bytes},
                         {"wall_s", report.wall_s()},
                         {"until_last_epoch_s", written_s},
                         {"cpu_ns_per_record", report.cpu_between().total_s() / records * 1e9},
                         {"table_bytes_written", report.sum(kTableBytes)},
                         {"bytes_read", report.sum(kReadBytes)},
                         {"tables_written", report.sum(kTables)},
                         {"tables", tables_below(work.path)}};
  line["queries"] = nlohmann::json::array();
  for (uint32_t epochs = 1; work.samples != 0 && epochs <= work.data.epochs; ++epochs) {
    line["queries"].push_back(query(work, epochs));
  }
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.ranks = static_cast<int>(arguments.number("ranks", 2));
  work.data = dataset_of(arguments, Canary::kAllowed, 1'000'000);
  work.limit = arguments.number("limit", 0);
  work.samples = arguments.number("samples", 0);
  const uint64_t memory = arguments.number("memory", uint64_t{16} << 20);
  const std::string compaction = arguments.text("compaction", "on");
  work.level.filter_bits = static_cast<int>(arguments.number("filter-bits", 10));
  arguments.expect_no_more();
  if (compaction != "on" && compaction != "off") die("--compaction: " + compaction);
  work.level.compaction = compaction == "on" ? Compaction::kOn : Compaction::kOff;
  if (memory < 2 * Shuffle::memory_bytes(work.ranks)) die("--memory: too little for the shuffle");
  work.level.buffer_bytes = (memory - Shuffle::memory_bytes(work.ranks)) / 2;
  remove_all(work.path);
  register_network();
  const RanksReport written = run_ranks(work.ranks, [&](int rank, RankReport& report, RankBarrier& barrier) {
    run_rank(work, rank, report, barrier);
  });
  report(json_of(work, written));
  return 0;
}
