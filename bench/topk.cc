// bench_topk: the records with the largest numbers in a field: what asking costs, and what the index of it
// costs.
//   --path DIR --keys N (one epoch of them) --k N --samples N (queries, cold and warm) --loads N
//   --canary 1   the largest record has a bit wrong outside of the field
//   --canary 2   one record has a number that is larger than all others, and was never meant to be there
// Writes DIR/indexed, with a schema and the field indexed, and DIR/plain, the same without the index, `loads`
// times in turn. Every answer is compared with the k largest that the generator makes: order, keys and
// values.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/swale_call.h"

namespace swale::bench {
namespace {

constexpr const char* kField = "number";
constexpr const char* kPlain = "imd.memory=64M,imd.schema=number:f8;words:u8x4";
constexpr const char* kIndexed = "imd.memory=64M,imd.schema=number:f8;words:u8x4,imd.extrema=number";

enum class Wrong : uint64_t { kNothing = 0, kValue = 1, kOrder = 2 };

struct Work {
  std::string path;
  Dataset data;
  size_t k = 0;
  uint64_t samples = 0;
  uint64_t loads = 0;
  Wrong wrong = Wrong::kNothing;

  std::string indexed() const { return path + "/indexed"; }
  std::string plain() const { return path + "/plain"; }
};

bool before(const Record& a, const Record& b) {
  const double x = field_of(a.value);
  const double y = field_of(b.value);
  return x != y ? x > y : std::memcmp(&a.key, &b.key, kKeyBytes) < 0;
}

// The k largest as they have to be answered, the largest first.
std::vector<Record> expected_top(const Work& work) {
  std::vector<Record> top;
  work.data.for_each(0, [&](const Record& record) {
    if (top.size() == work.k && !before(record, top.front())) return;
    if (top.size() == work.k) {
      std::pop_heap(top.begin(), top.end(), before);
      top.pop_back();
    }
    top.push_back(record);
    std::push_heap(top.begin(), top.end(), before);
  });
  std::sort_heap(top.begin(), top.end(), before);
  return top;
}

void append_all(swale_dir* dir, const Work& work, uint64_t largest_key) {
  const auto append = [&](const Record& record) {
    check(swale_dir_append(dir, &record.key, kKeyBytes, record.value.data(), kValueBytes));
  };
  if (work.wrong == Wrong::kNothing) return work.data.for_each(0, append);
  work.data.for_each(0, [&](const Record& written) {
    Record record = written;
    if (work.wrong == Wrong::kValue && record.key == largest_key) record.value.back() ^= 1;
    if (work.wrong == Wrong::kOrder && record.key == (largest_key + 1) % work.data.keys)
      record.value.front() = std::bit_cast<uint64_t>(2.0);
    append(record);
  });
}

struct LoadSamples {
  std::vector<double> cpu_ns, wall_s;
  uint64_t disk_bytes = 0;

  nlohmann::json json() const {
    return {{"cpu_ns_per_record", summary(cpu_ns)}, {"wall_s", summary(wall_s)}, {"disk_bytes", disk_bytes}};
  }
};

void load(const Work& work, const std::string& path, const char* options, uint64_t largest_key,
          LoadSamples& samples) {
  remove_all(path);
  std::filesystem::create_directories(work.path);
  const RanksReport ranks = run_ranks(1, [&](int, RankReport& report, RankBarrier&) {
    swale_job* job = nullptr;
    check(swale_job_open(nullptr, nullptr, &job));
    report.begin_s = now_s();
    swale_dir* dir = nullptr;
    check(swale_dir_open(job, path.c_str(), SWALE_CREATE | SWALE_EXCLUSIVE, options, &dir));
    append_all(dir, work, largest_key);
    check(swale_dir_epoch_end(dir, 0, 0));
    check(swale_dir_close(dir));
    report.end_s = now_s();
    check(swale_job_close(job));
  });
  samples.cpu_ns.push_back(ranks.cpu.total_s() / static_cast<double>(work.data.keys) * 1e9);
  samples.wall_s.push_back(ranks.wall_s());
  const DiskUse use = disk_use(path);
  samples.disk_bytes = std::max(use.size_bytes, use.allocated_bytes);
}

// Both directories in turn, each first in every other pair, so that both meet the same moods of the machine;
// the cost of the index by pairs. What comes first of all pays for what is new to the kernel, and is not
// counted.
nlohmann::json run_loads(const Work& work, uint64_t largest_key) {
  LoadSamples indexed, plain, unmeasured;
  load(work, work.plain(), kPlain, largest_key, unmeasured);
  for (uint64_t i = 0; i < 2 * work.loads; ++i) {
    if (i % 4 == 0 || i % 4 == 3) {
      load(work, work.plain(), kPlain, largest_key, plain);
    } else {
      load(work, work.indexed(), kIndexed, largest_key, indexed);
    }
  }
  std::vector<double> more;
  for (uint64_t i = 0; i < work.loads; ++i) more.push_back(indexed.cpu_ns[i] - plain.cpu_ns[i]);
  return {{"indexed", indexed.json()},
          {"plain", plain.json()},
          {"index_cpu_ns_per_record", summary(more)},
          {"index_disk_bytes",
           static_cast<int64_t>(indexed.disk_bytes) - static_cast<int64_t>(plain.disk_bytes)}};
}

class OpenReader {
 public:
  explicit OpenReader(const std::string& path) { check(swale_reader_open(path.c_str(), nullptr, &reader_)); }
  ~OpenReader() { swale_reader_close(reader_); }
  swale_reader* get() const { return reader_; }
  uint64_t bytes_read() const {
    swale_stats* all = nullptr;
    check(swale_reader_stats(reader_, &all));
    swale_stat stat = {};
    stat.struct_bytes = sizeof stat;
    check(swale_stats_find(all, "read.bytes", &stat));
    swale_stats_free(all);
    return stat.sum;
  }

 private:
  swale_reader* reader_ = nullptr;
};

void expect(const swale_top* top, const std::vector<Record>& expected) {
  if (swale_top_count(top) != expected.size())
    die(fmt::format("WRONG ANSWER: {} records instead of {}", swale_top_count(top), expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    swale_top_record record;
    record.struct_bytes = sizeof record;
    check(swale_top_at(top, i, &record));
    const Record& should = expected[i];
    const double number = field_of(should.value);
    if (record.key_bytes != kKeyBytes || std::memcmp(record.key, &should.key, kKeyBytes) != 0 ||
        record.value_bytes != kValueBytes ||
        std::memcmp(record.value, should.value.data(), kValueBytes) != 0 || record.number != number ||
        record.field_bytes != sizeof number || std::memcmp(record.field, &number, sizeof number) != 0) {
      die(fmt::format("WRONG ANSWER: place {} is not key {} with {}", i, should.key, number));
    }
  }
}

// One query after the other: time, bytes asked of the directory's files and bytes that the storage delivered.
struct QuerySamples {
  std::vector<double> us, asked, fetched, larger, reads, blocks;

  void add(const OpenReader& reader, const Work& work, const std::vector<Record>& expected) {
    const uint64_t fetched_before = storage_bytes_read();
    const uint64_t asked_before = reader.bytes_read();
    swale_top* top = nullptr;
    const double begin = now_s();
    check(swale_reader_top(reader.get(), kField, 0, work.k, SWALE_TOP_LARGEST, &top));
    us.push_back((now_s() - begin) * 1e6);
    fetched.push_back(static_cast<double>(storage_bytes_read() - fetched_before));
    swale_top_stats stats;
    stats.struct_bytes = sizeof stats;
    check(swale_top_get_stats(top, &stats));
    asked.push_back(static_cast<double>(std::max(reader.bytes_read() - asked_before, stats.bytes_read)));
    larger.push_back(std::max(asked.back(), fetched.back()));
    reads.push_back(static_cast<double>(stats.reads));
    blocks.push_back(static_cast<double>(stats.blocks_read));
    expect(top, expected);
    if (stats.nans != 0 || stats.absent != 0) die("WRONG ANSWER: every record has a number");
    if (stats.partitions_scanned != 0) die("the answer came from a scan: the field is not indexed");
    swale_top_free(top);
  }

  nlohmann::json json() const {
    return {{"us", summary(us)},
            {"asked_bytes", summary(asked)},
            {"fetched_bytes", summary(fetched)},
            {"larger_bytes", summary(larger)},
            {"reads", summary(reads)},
            {"blocks", summary(blocks)}};
  }
};

nlohmann::json run_cold(const Work& work, const std::vector<Record>& expected) {
  QuerySamples samples;
  for (uint64_t i = 0; i < work.samples; ++i) {
    const OpenReader reader(work.indexed());  // a new one: what an old one has mapped cannot be evicted
    evict(work.indexed());
    samples.add(reader, work, expected);
  }
  return samples.json();
}

nlohmann::json run_warm(const Work& work, const std::vector<Record>& expected) {
  preload(work.indexed());
  const OpenReader reader(work.indexed());
  QuerySamples unmeasured, samples;
  for (uint64_t i = 0; i < work.samples / 10 + 1; ++i) unmeasured.add(reader, work, expected);
  for (uint64_t i = 0; i < work.samples; ++i) samples.add(reader, work, expected);
  return samples.json();
}

nlohmann::json run(const Work& work) {
  const std::vector<Record> expected = expected_top(work);
  nlohmann::json line;
  line["load"] = run_loads(work, expected.front().key);
  line["cold"] = run_cold(work, expected);
  line["warm"] = run_warm(work, expected);
  line["bytes_read"] = line["cold"]["larger_bytes"]["p50"];
  return line;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.data.keys = arguments.number("keys", 4'000'000);
  work.k = arguments.number("k", 10);
  work.samples = arguments.number("samples", 50);
  work.loads = arguments.number("loads", 3);
  work.wrong = static_cast<Wrong>(arguments.number("canary", 0));
  arguments.expect_no_more();
  if (work.data.keys < 2 || work.k == 0 || work.samples == 0 || work.loads == 0)
    die("--keys 2 or more, --k, --samples and --loads 1 or more");
  nlohmann::json line = run(work);
  line["program"] = "topk";
  line["records"] = work.data.keys;
  line["k"] = work.k;
  report(line);
  return 0;
}
