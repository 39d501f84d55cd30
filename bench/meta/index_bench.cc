// bench_meta_index: puts and gets of file segments, ours or a rival's, on one thread of the caller.
//   --store NAME       rival_index.cc and swale_index.cc list them
//   --path DIR         of the store
//   --pattern strided|tile|btio|segmented|random   --entries N   --clients N
//   --mode load        puts, a sync every 64 k, then drain; what is on disk and in memory afterwards
//          crash       puts without a drain; the process ends at once
//          recover     opens what crash left
//          buffer      one full write buffer, in blocks and as a whole (whole_buffer.h); no store, no path
//          clusters    the blocks of a batch in regions, by three methods (cluster_methods.h); no store, no
//                      path
//          get         --gets N, warm (asked twice, the second time counts), or --cold 1: nothing resident
//   --canary 1         expects one wrong place, so that whoever checks answers can be seen to do so
// Times are the process's CPU (all threads) without what generates the entries, and wall time without it.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/meta/cluster_methods.h"
#include "bench/meta/index_store.h"
#include "bench/meta/whole_buffer.h"
#include "bench/meta/workload.h"

namespace swale::bench {
namespace {

struct Work {
  std::string store, path, mode;
  uint64_t gets = 0;
  bool cold = false, canary = false;
};

// Costs of a process without those of its generator.
class Meter {
 public:
  template <class Generate>
  void aside(const Generate& generate) {
    const double cpu = thread_cpu_s(), wall = now_s();
    generate();
    aside_cpu_ += thread_cpu_s() - cpu;
    aside_wall_ += now_s() - wall;
  }
  void restart() { stopwatch_ = Stopwatch(), aside_cpu_ = aside_wall_ = 0; }
  nlohmann::json costs(uint64_t operations) const {
    const double cpu = stopwatch_.cpu().total_s() - aside_cpu_;
    const double wall = stopwatch_.wall_s() - aside_wall_;
    return {{"operations", operations},
            {"cpu_ns", cpu / static_cast<double>(operations) * 1e9},
            {"wall_ns", wall / static_cast<double>(operations) * 1e9},
            {"cpu_s", cpu},
            {"wall_s", wall}};
  }

 private:
  Stopwatch stopwatch_;
  double aside_cpu_ = 0, aside_wall_ = 0;
};

std::unique_ptr<IndexStore> make_store(const std::string& name) {
  auto store = make_swale_index(name);
  if (!store) store = make_rival_index(name);
  if (!store) die("--store: " + name);
  return store;
}

constexpr size_t kMessages = kBatch / kMessage;

nlohmann::json load(const Work& work, const Workload& workload, bool drain) {
  remove_all(work.path);
  std::filesystem::create_directories(work.path);
  const auto store = make_store(work.store);
  std::vector<std::vector<meta::Extent>> messages(kMessages);
  const uint64_t memory = memory_bytes(), written = storage_bytes_written();
  Meter meter;
  store->open(work.path, false);
  for (uint64_t batch = 0; batch < workload.batches(); ++batch) {
    meter.aside([&] {
      for (size_t m = 0; m < kMessages; ++m) workload.message(batch, m, &messages[m]);
    });
    for (const auto& message : messages) {
      if (!message.empty()) store->put(message);
    }
    store->end_batch();
  }
  nlohmann::json line = meter.costs(workload.entries());
  line["before_drain"] = line;
  line["overlap"] = store->overlap();
  if (!drain) {
    report_as("meta_index", work.mode, line);
    ::_exit(0);
  }
  store->drain();
  line.update(meter.costs(workload.entries()));
  const auto entries = static_cast<double>(workload.entries());
  line["written_bytes_per_entry"] = static_cast<double>(storage_bytes_written() - written) / entries;
  line["about"] = store->about();
  line["memory_grown_bytes"] = static_cast<int64_t>(memory_bytes()) - static_cast<int64_t>(memory);
  store->close();
  line["bytes_on_disk"] = disk_use(work.path).size_bytes;
  line["bytes_per_entry"] = static_cast<double>(disk_use(work.path).size_bytes) / entries;
  return line;
}

nlohmann::json recover(const Work& work, const Workload& workload) {
  const auto store = make_store(work.store);
  evict(work.path);
  Meter meter;
  store->open(work.path, false);
  nlohmann::json line = meter.costs(workload.entries());
  line["about"] = store->about();
  line["entries_per_second"] = static_cast<double>(workload.entries()) / line["wall_s"].get<double>();
  store->close();
  return line;
}

// Asks for --gets segments and compares each answer.
nlohmann::json ask(const Work& work, const Workload& workload, IndexStore& store, uint64_t first_batch) {
  std::vector<std::vector<meta::Extent>> messages(kMessages);
  std::vector<meta::Place> places;
  Meter meter;
  meter.restart();
  uint64_t done = 0;
  for (uint64_t batch = first_batch; done < work.gets; ++batch) {
    meter.aside([&] {
      for (size_t m = 0; m < kMessages; ++m) workload.gets(batch % workload.batches(), m, &messages[m]);
      places.clear();
    });
    store.get(messages, &places);
    meter.aside([&] {
      size_t at = 0;
      for (const auto& message : messages) {
        for (const meta::Extent& expected : message) {
          const bool wrong = places[at] != expected.place;
          if (wrong || (work.canary && at == 17))
            die(fmt::format("WRONG ANSWER: offset {}: expected log {} address {}, found log {} address {}",
                            expected.offset, expected.place.log, expected.place.address, places[at].log,
                            places[at].address));
          ++at;
        }
      }
      done += at;
    });
  }
  return meter.costs(done);
}

nlohmann::json get(const Work& work, const Workload& workload) {
  const auto store = make_store(work.store);
  if (work.cold) {
    keep_code_resident();
    evict(work.path);
    store->open(work.path, true);
    evict(work.path);
    const uint64_t before = storage_bytes_read();
    nlohmann::json line = ask(work, workload, *store, 0);
    line["fetched_bytes"] = storage_bytes_read() - before;
    line["about"] = store->about();
    store->close();
    return line;
  }
  preload(work.path);
  store->open(work.path, false);
  ask(work, workload, *store, 0);
  nlohmann::json line = ask(work, workload, *store, 0);
  line["about"] = store->about();
  store->close();
  return line;
}

nlohmann::json run(const Work& work, const Workload& workload) {
  if (work.mode == "load") return load(work, workload, true);
  if (work.mode == "crash") return load(work, workload, false);
  if (work.mode == "recover") return recover(work, workload);
  if (work.mode == "get") return get(work, workload);
  if (work.mode == "buffer") return whole_buffer(workload, work.canary);
  if (work.mode == "clusters") return cluster_methods();
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
  work.gets = arguments.number("gets", 1 << 20);
  work.cold = arguments.number("cold", 0) != 0;
  work.canary = arguments.number("canary", 0) != 0;
  const Workload workload(arguments.text("pattern"), arguments.number("entries", 4 << 20),
                          arguments.number("clients", 16));
  arguments.expect_no_more();
  nlohmann::json line = run(work, workload);
  line["store"] = work.store;
  report_as("meta_index", work.mode, line);
  return 0;
}
