// bench_leveldb, bench_rocksdb: what a key-value store needs for the same records and the same queries.
//   --store NAME --path DIR --keys N --epochs N --samples N (of each kind of query) --mode load|compact|query
//   --values words|doubles|floats|particles   what values are made of (workload.h)
//   --drop-all 0   never the caches of the whole machine
//   --ways range   only scans: for trajectories so long that gets are never the quickest way
//   --canary 1   load writes one value wrong, so that whoever checks answers can be seen to do so
// load and compact measure writing; query measures cold, warm and opening, each answer checked.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/measure.h"
#include "bench/store.h"

namespace swale::bench {
namespace {

struct Work {
  std::string store;
  std::string path;
  std::string mode;
  Dataset data;
  uint64_t samples = 0;
  uint64_t first = 0;
  bool drop_all = true;
  bool ranges_only = false;
};

// A get per epoch, one after the other; the same, each by a thread of its own, as Swale reads its epochs at
// once; a scan.
enum class Way { kGets, kParallelGets, kRange };

// A thread for each epoch but the first, which the caller gets itself. They wait for the next key without a
// lock.
class Team {
 public:
  Team(Store& store, uint32_t epochs) : store_(store), values_(epochs) {
    for (uint32_t epoch = 1; epoch < epochs; ++epoch) threads_.emplace_back([this, epoch] { serve(epoch); });
  }
  ~Team() {
    key_ = kStop;
    start();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  uint32_t get_each(uint64_t key, Value* values) {
    key_ = key;
    found_ = 0;
    busy_ = static_cast<uint32_t>(threads_.size());
    start();
    get(0);
    for (uint32_t busy; (busy = busy_.load()) != 0;) busy_.wait(busy);
    std::copy(values_.begin(), values_.end(), values);
    return found_;
  }

 private:
  static constexpr uint64_t kStop = ~uint64_t{0};

  void start() {
    round_.fetch_add(1);
    round_.notify_all();
  }
  void get(uint32_t epoch) { found_ += store_.get(key_, epoch, &values_[epoch]) ? 1 : 0; }
  void serve(uint32_t epoch) {
    for (uint32_t seen = 0;;) {
      round_.wait(seen);
      ++seen;
      if (key_ == kStop) return;
      get(epoch);
      if (busy_.fetch_sub(1) == 1) busy_.notify_one();
    }
  }

  Store& store_;
  std::vector<Value> values_;
  std::atomic<uint64_t> key_{0};
  std::atomic<uint32_t> round_{0}, busy_{0}, found_{0};
  std::vector<std::thread> threads_;
};

uint32_t get_each(Store& store, uint64_t key, uint32_t epochs, Value* values) {
  uint32_t found = 0;
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) found += store.get(key, epoch, &values[epoch]) ? 1 : 0;
  return found;
}

// team: for parallel gets alone.
double query_us(Store& store, Way way, const Work& work, uint64_t key, Team* team = nullptr) {
  std::vector<Value> values(work.data.epochs);
  const double begin = now_s();
  const uint32_t found = way == Way::kRange  ? store.get_range(key, work.data.epochs, values.data())
                         : way == Way::kGets ? get_each(store, key, work.data.epochs, values.data())
                                             : team->get_each(key, values.data());
  const double took = now_s() - begin;
  if (found != work.data.epochs) die(fmt::format("WRONG ANSWER: key {} has {} values", key, found));
  for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
    work.data.expect(key, epoch, values[epoch].data(), kValueBytes);
  }
  return took * 1e6;
}

nlohmann::json costs(const Store& store, const Work& work, const Stopwatch& stopwatch) {
  const double wall_s = stopwatch.wall_s();
  nlohmann::json line = costs_of(work.data.records(), wall_s, stopwatch.cpu());
  line["compression"] = store.compression();
  line["bytes_ratio"] = static_cast<double>(bytes_on_disk(work.path)) / (work.data.records() * kRecordBytes);
  return line;
}

nlohmann::json run_load(Store& store, const Work& work) {
  remove_all(work.path);
  std::filesystem::create_directories(work.path);
  const Stopwatch stopwatch;
  store.open_for_writing(work.path, work.data.keys * work.data.epochs);
  for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
    work.data.for_each(epoch, [&](const Record& record) { store.put(record.key, epoch, record.value); });
    store.end_epoch();
  }
  store.finish_writing();
  return costs(store, work, stopwatch);
}

nlohmann::json run_compact(Store& store, const Work& work) {
  if (!store.can_compact()) die(work.store + " cannot be compacted");
  const Stopwatch stopwatch;
  store.open_for_writing(work.path, work.data.keys * work.data.epochs);
  store.compact();
  store.finish_writing();
  return costs(store, work, stopwatch);
}

// The figures of one way of asking. Enough keys are asked before to have every table open.
nlohmann::json run_queries(Store& store, Way way, const Work& work) {
  store.open_for_reading(work.path, Reading::kCold);
  uint64_t n = work.first + 1'000'000 * static_cast<uint64_t>(way);
  const auto ask = [&](uint64_t number, Team& team) {
    return query_us(store, way, work, work.data.query_key(number), &team);
  };
  std::vector<double> cold, fetched, warm;
  {
    Team team(store, way == Way::kParallelGets ? work.data.epochs : 1);
    for (int i = 0; i < 1000; ++i) ask(n++, team);
    for (uint64_t i = 0; i < work.samples; ++i) {
      evict(work.path);
      const uint64_t before = storage_bytes_read();
      cold.push_back(ask(n++, team));
      fetched.push_back(static_cast<double>(storage_bytes_read() - before));
    }
  }
  store.close();
  preload(work.path);
  store.open_for_reading(work.path, Reading::kWarm);
  for (int pass = 0; pass < 2; ++pass) {  // the first one fills the store's own cache
    Team team(store, way == Way::kParallelGets ? work.data.epochs : 1);
    warm.clear();
    for (uint64_t i = 0; i < 10 * work.samples; ++i) warm.push_back(ask(n + i, team));
  }
  store.close();
  return {{"cold_us", summary(cold)}, {"cold_fetched_bytes", summary(fetched)}, {"warm_us", summary(warm)}};
}

nlohmann::json run_open_once(Store& store, const Work& work) {
  keep_code_resident();
  evict(work.path);
  const bool all = work.drop_all && drop_all_caches();
  const double begin = now_s();
  store.open_for_reading(work.path, Reading::kWarm);
  const double opened = now_s();
  const double query = query_us(store, Way::kRange, work, work.data.query_key(work.first));
  return {{"ms", (opened - begin) * 1e3 + query * 1e-3}, {"all_caches_dropped", all}};
}

nlohmann::json run_query(Store& store, const Work& work) {
  nlohmann::json line = {{"range", run_queries(store, Way::kRange, work)}};
  if (!work.ranges_only) {
    line["gets"] = run_queries(store, Way::kGets, work);
    line["parallel_gets"] = run_queries(store, Way::kParallelGets, work);
  }
  std::vector<double> ms;
  for (uint64_t i = 0; i < work.samples / 10 + 1; ++i) {
    ms.push_back(
        run_fresh({"--mode", "open-once", "--store", work.store, "--path", work.path, "--keys",
                   std::to_string(work.data.keys), "--epochs", std::to_string(work.data.epochs), "--first",
                   std::to_string(work.first + 5'000'000 + i), "--drop-all", work.drop_all ? "1" : "0",
                   "--values", kValueKindNames[static_cast<size_t>(work.data.values)]})
            .at("ms"));
  }
  line["open_and_query_ms"] = summary(ms);
  return line;
}

nlohmann::json run(const Work& work) {
  const std::unique_ptr<Store> store = make_store(work.store);
  if (store == nullptr) die("--store: " + work.store);
  if (work.mode == "load") return run_load(*store, work);
  if (work.mode == "compact") return run_compact(*store, work);
  if (work.mode == "query") return run_query(*store, work);
  if (work.mode == "open-once") return run_open_once(*store, work);
  die("--mode: " + work.mode);
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.store = arguments.text("store");
  work.path = arguments.text("path");
  work.mode = arguments.text("mode");
  work.data = dataset_of(arguments, Canary::kAllowed);
  work.samples = arguments.number("samples", 200);
  work.first = arguments.number("first", 0);
  work.drop_all = arguments.number("drop-all", 1) != 0;
  work.ranges_only = arguments.text("ways", "all") == "range";
  arguments.expect_no_more();
  nlohmann::json line = run(work);
  line["store"] = work.store;
  report_as("store", work.mode, line);
  return 0;
}
