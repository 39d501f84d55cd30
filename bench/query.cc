// bench_query: what it costs to ask a massive directory, every answer checked against the generator.
//   --path DIR --keys N --epochs N --samples N --first N (of the sequence of query keys)
//   --values words|doubles|floats|particles|trajectories   what values are made of (workload.h)
//   --drop-all 0   never the caches of the whole machine
//   --mode
//     verify  every record, by a scan
//     scan    every record, counted only, by one thread, all in the page cache
//     cold    a trajectory; the reader has no cache, is open and has answered another key, so the partition's
//             footer is resident; the files' pages are dropped each time
//     cached  a trajectory; all slices of the index that fit are in the reader's cache, the files' pages are
//             dropped each time
//     first   a trajectory in a fresh process with nothing resident: its reader was opened, then the pages
//             were dropped
//     open    the same in a fresh process, opening included, all caches dropped (needs root, else only the
//             pages)
//     warm    a trajectory, all in the page cache
//     again   a trajectory of a key that was asked before: the same keys twice, as the rivals are asked
//     batch   100,000 keys of one epoch at once, all in the page cache, on one core
//     miss    keys that are not there, all in the page cache
#include <fmt/format.h>
#include <sched.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/swale_call.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  std::string mode;
  std::string options;
  Dataset data;
  uint64_t samples = 0;
  uint64_t first = 0;
  bool drop_all = true;

  uint64_t key(uint64_t n) const { return data.query_key(first + n); }
};

class OpenReader {
 public:
  explicit OpenReader(const Work& work, const std::string& more = "") {
    check(swale_reader_open(work.path.c_str(), (work.options + "," + more).c_str(), &reader_));
  }
  ~OpenReader() { swale_reader_close(reader_); }
  swale_reader* get() const { return reader_; }
  struct Stats {
    uint64_t bytes_read, reads, depth_max, false_candidates;
  };
  Stats stats() const {
    swale_stats* all = nullptr;
    check(swale_reader_stats(reader_, &all));
    const auto sum = [all](const char* name) {
      swale_stat stat = {};
      stat.struct_bytes = sizeof stat;
      check(swale_stats_find(all, name, &stat));
      return stat.sum;
    };
    const Stats stats = {sum("read.bytes"), sum("read.requests"), sum("read.depth_max"),
                         sum("read.false_candidates")};
    swale_stats_free(all);
    return stats;
  }

 private:
  swale_reader* reader_ = nullptr;
};

// The time of one trajectory; its answer is checked after the clock has stopped.
double query_us(swale_reader* reader, const Work& work, uint64_t key) {
  swale_values* values = nullptr;
  const double begin = now_s();
  check(swale_reader_get(reader, &key, kKeyBytes, SWALE_ALL_EPOCHS, &values));
  const double took = now_s() - begin;
  if (swale_values_count(values) != work.data.epochs) {
    die(fmt::format("WRONG ANSWER: key {} has {} values", key, swale_values_count(values)));
  }
  for (uint32_t i = 0; i < work.data.epochs; ++i) {
    int64_t epoch = -1;
    const void* value = nullptr;
    size_t bytes = 0;
    check(swale_values_at(values, i, &epoch, &value, &bytes));
    if (epoch != i) die(fmt::format("WRONG ANSWER: key {}: epoch {} at place {}", key, epoch, i));
    work.data.expect(key, i, value, bytes);
  }
  swale_values_free(values);
  return took * 1e6;
}

// Latency, bytes asked of the reader's files and bytes that the storage delivered, per query.
// Files below the path that this process has open.
uint64_t open_files(const std::string& path) {
  const std::string below = std::filesystem::canonical(path).string() + "/";
  uint64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of this very listing
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (file.starts_with(below) && std::filesystem::is_regular_file(file, gone)) ++count;
  }
  return count;
}

// One query, measured.
nlohmann::json cold_query(const OpenReader& reader, const Work& work, uint64_t key) {
  const uint64_t fetched_before = storage_bytes_read();
  const OpenReader::Stats before = reader.stats();
  const double us = query_us(reader.get(), work, key);
  const OpenReader::Stats after = reader.stats();
  return {{"us", us},
          {"asked_bytes", after.bytes_read - before.bytes_read},
          {"reads", after.reads - before.reads},
          {"fetched_bytes", storage_bytes_read() - fetched_before},
          {"objects", open_files(work.path)},
          {"depth_max", after.depth_max}};
}

class ColdSamples {
 public:
  void add(const nlohmann::json& query) {
    for (const char* name : kSummed) samples_[name].push_back(query.at(name));
    depth_max_ = std::max<uint64_t>(depth_max_, query.at("depth_max"));
  }

  nlohmann::json json() const {
    nlohmann::json line = {{"depth_max", depth_max_}};
    for (const char* name : kSummed) line[name] = summary(samples_.at(name));
    return line;
  }

 private:
  static constexpr const char* kSummed[] = {"us", "asked_bytes", "fetched_bytes", "reads", "objects"};
  std::map<std::string, std::vector<double>> samples_;
  uint64_t depth_max_ = 0;
};

// The same dataset and options in a fresh process.
nlohmann::json ask_fresh(const Work& work, const char* mode, uint64_t first) {
  return run_fresh({"--mode", mode, "--path", work.path, "--options", work.options, "--keys",
                    std::to_string(work.data.keys), "--epochs", std::to_string(work.data.epochs), "--first",
                    std::to_string(first), "--drop-all", work.drop_all ? "1" : "0", "--values",
                    kValueKindNames[static_cast<size_t>(work.data.values)]});
}

nlohmann::json run_verify(const Work& work) {
  struct Sums {
    std::vector<uint64_t> records, digests;
  } sums{std::vector<uint64_t>(work.data.epochs), std::vector<uint64_t>(work.data.epochs)};
  const OpenReader reader(work);
  const auto add = [](void* context, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                      size_t value_bytes) {
    auto* into = static_cast<Sums*>(context);
    Record record;
    if (key_bytes != kKeyBytes || value_bytes != kValueBytes) die("WRONG ANSWER: a record of another size");
    std::memcpy(&record.key, key, kKeyBytes);
    std::memcpy(record.value.data(), value, kValueBytes);
    const auto at = static_cast<size_t>(epoch);
    ++into->records.at(at);
    into->digests.at(at) += digest_of(record.key, static_cast<uint32_t>(epoch), record.value);
    return 0;
  };
  check(swale_reader_scan(reader.get(), SWALE_ALL_EPOCHS, add, &sums));
  for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
    uint64_t digest = 0;
    work.data.for_each(epoch,
                       [&](const Record& record) { digest += digest_of(record.key, epoch, record.value); });
    if (sums.records[epoch] != work.data.keys || sums.digests[epoch] != digest) {
      die(fmt::format("WRONG ANSWER: the scan of epoch {} has {} records, or others than were written", epoch,
                      sums.records[epoch]));
    }
  }
  return {{"records", work.data.keys * work.data.epochs}};
}

nlohmann::json run_scan(const Work& work) {
  preload(work.path);
  const OpenReader reader(work);
  const auto count = [](void* context, int64_t, const void*, size_t, const void*, size_t) {
    ++*static_cast<uint64_t*>(context);
    return 0;
  };
  std::vector<double> cpu_ns;
  for (uint64_t i = 0; i < work.samples; ++i) {
    uint64_t records = 0;
    const Stopwatch stopwatch;
    check(swale_reader_scan(reader.get(), SWALE_ALL_EPOCHS, count, &records));
    cpu_ns.push_back(stopwatch.cpu().total_s() / static_cast<double>(records) * 1e9);
    if (records != work.data.keys * work.data.epochs)
      die(fmt::format("WRONG ANSWER: a scan of {} records", records));
  }
  return {{"cpu_ns_per_record", summary(cpu_ns)}};
}

nlohmann::json run_cold(const Work& work) {
  ColdSamples samples;
  for (uint64_t i = 0; i < work.samples; ++i) {
    // A new one: what an old one has mapped cannot be evicted.
    const OpenReader reader(work, "imd.cache=0");
    query_us(reader.get(), work, work.key(work.samples + i));
    evict(work.path);
    samples.add(cold_query(reader, work, work.key(i)));
  }
  return samples.json();
}

nlohmann::json run_cached(const Work& work) {
  const OpenReader reader(work);
  const int64_t all = SWALE_ALL_EPOCHS;
  uint64_t warmed = 0;
  check(swale_reader_warm(reader.get(), &all, 1, &warmed));
  query_us(reader.get(), work, work.key(work.samples));
  ColdSamples samples;
  for (uint64_t i = 0; i < work.samples; ++i) {
    evict(work.path);
    samples.add(cold_query(reader, work, work.key(i)));
  }
  nlohmann::json line = samples.json();
  line["warmed_bytes"] = warmed;
  return line;
}

nlohmann::json run_first_once(const Work& work) {
  keep_code_resident();
  const OpenReader reader(work);
  evict(work.path);
  return cold_query(reader, work, work.key(0));
}

nlohmann::json run_first(const Work& work) {
  ColdSamples samples;
  for (uint64_t i = 0; i < work.samples; ++i) samples.add(ask_fresh(work, "first-once", work.first + i));
  return samples.json();
}

nlohmann::json run_open_once(const Work& work) {
  keep_code_resident();
  evict(work.path);
  const bool all = work.drop_all && drop_all_caches();
  const uint64_t fetched_before = storage_bytes_read();
  const uint64_t key = work.key(0);
  const double begin = now_s();
  const OpenReader reader(work);
  const double opened = now_s();
  const double query = query_us(reader.get(), work, key);
  return {{"ms", (opened - begin) * 1e3 + query * 1e-3},
          {"open_ms", (opened - begin) * 1e3},
          {"all_caches_dropped", all},
          {"fetched_bytes", storage_bytes_read() - fetched_before}};
}

nlohmann::json run_open(const Work& work) {
  std::vector<double> ms, open_ms, fetched;
  bool all = true;
  for (uint64_t i = 0; i < work.samples; ++i) {
    const nlohmann::json once = ask_fresh(work, "open-once", work.first + i);
    ms.push_back(once.at("ms"));
    open_ms.push_back(once.at("open_ms"));
    fetched.push_back(once.at("fetched_bytes"));
    all = all && once.at("all_caches_dropped");
  }
  return {{"ms", summary(ms)},
          {"open_ms", summary(open_ms)},
          {"fetched_bytes", summary(fetched)},
          {"all_caches_dropped", all}};
}

nlohmann::json run_warm(const Work& work) {
  preload(work.path);
  const OpenReader reader(work);
  for (uint64_t i = 0; i < work.samples / 10 + 1; ++i)
    query_us(reader.get(), work, work.key(work.samples + i));
  std::vector<double> us;
  const uint64_t fetched_before = storage_bytes_read();
  for (uint64_t i = 0; i < work.samples; ++i) us.push_back(query_us(reader.get(), work, work.key(i)));
  return {{"us", summary(us)}, {"fetched_bytes", storage_bytes_read() - fetched_before}};
}

nlohmann::json run_again(const Work& work) {
  preload(work.path);
  const OpenReader reader(work);
  std::vector<double> us;
  uint64_t requests_before = 0;
  for (int pass = 0; pass < 2; ++pass) {
    us.clear();
    requests_before = reader.stats().reads;
    for (uint64_t i = 0; i < work.samples; ++i) us.push_back(query_us(reader.get(), work, work.key(i)));
  }
  const double requests = static_cast<double>(reader.stats().reads - requests_before);
  return {{"us", summary(us)}, {"reads", requests / static_cast<double>(work.samples)}};
}

nlohmann::json run_batch(const Work& work) {
  cpu_set_t one_core;
  CPU_ZERO(&one_core);
  CPU_SET(::sched_getcpu(), &one_core);
  ::sched_setaffinity(0, sizeof one_core, &one_core);
  preload(work.path);
  constexpr size_t kBatch = 100'000;
  const size_t count = std::min<size_t>(kBatch, work.data.keys);
  const OpenReader reader(work);
  std::vector<double> keys_per_s;
  for (uint64_t round = 0; round <= work.samples; ++round) {
    const uint32_t epoch = static_cast<uint32_t>(round % work.data.epochs);
    std::vector<uint64_t> keys(count);
    std::vector<const void*> pointers(count);
    const std::vector<size_t> sizes(count, kKeyBytes);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = work.key(round * count + i);
      pointers[i] = &keys[i];
    }
    std::vector<Record> answers;
    answers.reserve(count);
    const auto keep = [](void* context, int64_t, const void* key, size_t, const void* value,
                         size_t value_bytes) {
      Record record;
      std::memcpy(&record.key, key, kKeyBytes);
      if (value_bytes != kValueBytes) die("WRONG ANSWER: a value of another size");
      std::memcpy(record.value.data(), value, kValueBytes);
      static_cast<std::vector<Record>*>(context)->push_back(record);
      return 0;
    };
    size_t found = 0;
    const Stopwatch stopwatch;
    check(swale_reader_get_many(reader.get(), pointers.data(), sizes.data(), count, epoch, keep, &answers,
                                &found));
    const double took = stopwatch.cpu().total_s();  // not the time in which the core served others
    if (found != count || answers.size() != count)
      die(fmt::format("WRONG ANSWER: {} of {} keys", found, count));
    for (const Record& answer : answers)
      work.data.expect(answer.key, epoch, answer.value.data(), kValueBytes);
    if (round > 0) keys_per_s.push_back(static_cast<double>(count) / took);
  }
  return {{"keys_per_s", summary(keys_per_s)}, {"batch", count}};
}

nlohmann::json run_miss(const Work& work) {
  preload(work.path);
  const OpenReader reader(work);
  std::vector<double> us;
  for (uint64_t i = 0; i < work.samples; ++i) {
    const uint64_t key = work.data.keys + 1 + mix(work.first + i) % (uint64_t{1} << 40);
    swale_values* values = nullptr;
    const double begin = now_s();
    const int code = swale_reader_get(reader.get(), &key, kKeyBytes, SWALE_ALL_EPOCHS, &values);
    us.push_back((now_s() - begin) * 1e6);
    if (code == SWALE_OK) die(fmt::format("WRONG ANSWER: key {} was never written", key));
    if (code != SWALE_NOT_FOUND) check(code);
  }
  const double queries = static_cast<double>(work.samples);
  return {{"us", summary(us)},
          {"false_candidates_per_query", static_cast<double>(reader.stats().false_candidates) / queries}};
}

nlohmann::json run(const Work& work) {
  if (work.mode == "verify") return run_verify(work);
  if (work.mode == "scan") return run_scan(work);
  if (work.mode == "cold") return run_cold(work);
  if (work.mode == "cached") return run_cached(work);
  if (work.mode == "first") return run_first(work);
  if (work.mode == "first-once") return run_first_once(work);
  if (work.mode == "open") return run_open(work);
  if (work.mode == "open-once") return run_open_once(work);
  if (work.mode == "warm") return run_warm(work);
  if (work.mode == "again") return run_again(work);
  if (work.mode == "batch") return run_batch(work);
  if (work.mode == "miss") return run_miss(work);
  die("--mode: " + work.mode);
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.mode = arguments.text("mode");
  work.options = arguments.text("options", "");
  work.data = dataset_of(arguments, Canary::kRefused);
  work.samples = arguments.number("samples", 100);
  work.first = arguments.number("first", 0);
  work.drop_all = arguments.number("drop-all", 1) != 0;
  arguments.expect_no_more();
  report_as("query", work.mode, run(work));
  return 0;
}
