// bench_meta_client: puts and gets of a metadata store as a program makes them, client and server in
// processes of their own.
//   --store S      swale (the C interface), or a rival behind the same requests: leveldb-4m, leveldb-64m,
//                  leveldb-iterator, rocksdb
//   --pattern P, --entries N, --clients N   as workload.h says
//   --ranks N      processes that call (16, as the workload has clients); one more has the server
//   --gets N       how many are timed, after as many that are not
//   --dir D        where the store is made; removed first
//   --rest S       after the puts the server has not computed for S seconds (2); 0: gets begin at once
//   --canary 1     an answer is taken for wrong: the program must fail
// CPU is that of all processes: of puts until the server has come to rest, of gets until every answer was
// read. Prints one JSON object.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/meta/client_store.h"
#include "bench/meta/workload.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"

namespace swale::bench {
namespace {

struct Work {
  std::string store, directory;
  int callers = 16;
  uint64_t gets = 0;
  uint64_t rests_s = 2;
  bool canary = false;
};

struct Costs {
  double cpu_s = 0, wall_s = 0;
};
// What each rank has found; in memory that all share.
struct Outcome {
  Costs put[kRanksMax], get[kRanksMax];
  uint64_t gets[kRanksMax];
  uint64_t memory_before, memory_after;  // resident, of the server's process
  char about[8192];
};

constexpr size_t kMessages = kBatch / kMessage;

std::unique_ptr<ClientStore> make_store(const std::string& name) {
  auto store = name == "swale" ? make_swale_client() : make_rival_client(name);
  if (!store) die("--store: " + name);
  return store;
}

// Until the process has not computed for so long.
void wait_at_rest(uint64_t seconds) {
  constexpr double kIdleCpu = 0.004;  // in a look of 200 ms
  for (uint64_t quiet = 0; quiet < 5 * seconds;) {
    const double before = cpu_of(RUSAGE_SELF).total_s();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    quiet = cpu_of(RUSAGE_SELF).total_s() - before < kIdleCpu ? quiet + 1 : 0;
  }
}

// The messages of a caller; only what `act` does is timed.
template <class Fill, class Act>
Costs each_message(const Workload& workload, const Work& work, int rank, uint64_t entries, const Fill& fill,
                   const Act& act) {
  Costs costs;
  std::vector<meta::Extent> message;
  uint64_t done = 0, number = 0;
  for (uint64_t batch = 0; done < entries; ++batch) {
    for (size_t m = 0; m < kMessages; ++m, ++number) {
      if (number % static_cast<uint64_t>(work.callers) != static_cast<uint64_t>(rank - 1)) continue;
      fill(batch % workload.batches(), m, &message);
      if (message.empty()) continue;
      const Stopwatch watch;
      act(message);
      costs.cpu_s += watch.cpu().total_s();
      costs.wall_s += watch.wall_s();
    }
    done += kBatch;
  }
  return costs;
}

Costs ask(const Workload& workload, const Work& work, ClientStore& store, int rank, uint64_t* count) {
  std::vector<meta::Place> places;
  *count = 0;
  return each_message(
      workload, work, rank, work.gets,
      [&](uint64_t batch, size_t m, std::vector<meta::Extent>* out) {
        workload.gets(batch, m, out);
        places.assign(out->size(), {});
      },
      [&](const std::vector<meta::Extent>& message) {
        store.get(message, places);
        for (size_t i = 0; i < message.size(); ++i) {
          const bool wrong = places[i] != message[i].place;
          if (wrong || (work.canary && i == 17))
            die(fmt::format("WRONG ANSWER: offset {}: expected log {} address {}, found log {} address {}",
                            message[i].offset, message[i].place.log, message[i].place.address, places[i].log,
                            places[i].address));
        }
        *count += message.size();
      });
}

void run_rank(const Work& work, const Workload& workload, int rank, RankBarrier& barrier, Outcome* outcome) {
  const auto store = make_store(work.store);
  store->open(rank, work.callers + 1, work.directory);
  if (rank == 0) outcome->memory_before = memory_bytes();
  // The server's process is timed as a whole, between barriers; it does nothing else.
  const auto phase = [&](Costs* costs, bool rests, const auto& act) {
    barrier.wait();
    const Stopwatch watch;
    if (rank != 0) *costs = act();
    barrier.wait();
    if (rank != 0) return;
    if (rests) wait_at_rest(work.rests_s);
    *costs = {watch.cpu().total_s(), watch.wall_s()};
  };
  phase(&outcome->put[rank], true, [&] {
    return each_message(
        workload, work, rank, workload.entries(),
        [&](uint64_t batch, size_t m, std::vector<meta::Extent>* out) { workload.message(batch, m, out); },
        [&](const std::vector<meta::Extent>& message) { store->put(message); });
  });
  barrier.wait();
  if (rank == 0) {
    outcome->memory_after = memory_bytes();
    const std::string about = store->about().dump();
    if (about.size() >= sizeof(outcome->about)) die("statistics too long");
    std::copy(about.begin(), about.end(), outcome->about);
  }
  for (int turn = 0; turn < 2; ++turn)  // the first warms up
    phase(&outcome->get[rank], false,
          [&] { return ask(workload, work, *store, rank, &outcome->gets[rank]); });
  barrier.wait();
  store->close();
}

nlohmann::json line_of(const Work& work, const Workload& workload, const Outcome& outcome) {
  double put_cpu = 0, get_cpu = 0;
  uint64_t gets = 0;
  for (int rank = 0; rank <= work.callers; ++rank) {
    put_cpu += outcome.put[rank].cpu_s;
    get_cpu += outcome.get[rank].cpu_s;
    gets += rank == 0 ? 0 : outcome.gets[rank];
  }
  const auto entries = static_cast<double>(workload.entries());
  return {{"program", "meta_client"},
          {"store", work.store},
          {"callers", work.callers},
          {"entries", workload.entries()},
          {"gets", gets},
          {"put_cpu_ns", put_cpu / entries * 1e9},
          {"get_cpu_ns", get_cpu / static_cast<double>(gets) * 1e9},
          {"put_server_cpu_ns", outcome.put[0].cpu_s / entries * 1e9},
          {"get_server_cpu_ns", outcome.get[0].cpu_s / static_cast<double>(gets) * 1e9},
          {"get_wall_ns", outcome.get[0].wall_s / static_cast<double>(gets) * 1e9},
          {"memory_grown_bytes", static_cast<int64_t>(outcome.memory_after - outcome.memory_before)},
          {"about", nlohmann::json::parse(outcome.about)}};
}

int run(Arguments& arguments) {
  Work work;
  work.store = arguments.text("store");
  work.directory = arguments.text("dir");
  work.callers = static_cast<int>(arguments.number("ranks", 16));
  work.gets = arguments.number("gets", 1 << 20);
  work.rests_s = arguments.number("rest", 2);
  work.canary = arguments.number("canary", 0) != 0;
  const Workload workload(arguments.text("pattern"), arguments.number("entries", 4 << 20),
                          arguments.number("clients", 16));
  arguments.expect_no_more();
  if (work.callers < 1 || work.callers >= kRanksMax) die("--ranks: too many");
  remove_all(work.directory);
  std::filesystem::create_directories(work.directory);
  auto* outcome = static_cast<Outcome*>(
      ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (outcome == MAP_FAILED) die("no memory");
  register_network();
  run_ranks(work.callers + 1, [&](int rank, RankReport&, RankBarrier& barrier) {
    run_rank(work, workload, rank, barrier, outcome);
  });
  nlohmann::json line = line_of(work, workload, *outcome);
  line["bytes_on_disk"] = disk_use(work.directory).size_bytes;
  remove_all(work.directory);
  report(line);
  return 0;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  swale::bench::Arguments arguments(argc, argv);
  return swale::bench::run(arguments);
}
