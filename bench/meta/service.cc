// bench_meta_service: the metadata store between real processes, and the model of many of them.
//   --part point      two ranks in shared memory: one gets single segments from the other's server, of a
//                     regular file and of one without a pattern
//   --part sealed     gets of a sealed regular file, without a server
//   --part storm      --ranks N processes, each rank asks for the attributes of one file: --ring
//                     ring|direct|plain
//   --part detect     run detection: CPU of an entry
//   --part model      storms, Fig. 12 of metakv, on the model (sim/meta_model.h)
//   --part scaling    bursts of puts and gets, Fig. 9 and 10, on the model. --mdhim-ns and --swale-ns: what
//                     was measured of one server, as PUT,PUT_SERVER,GET,GET_SERVER: CPU ns of a client for an
//                     entry, of the server for an item (MDHIM: an entry; Swale: a run)
//   --dir D           where the store is made (all but these); removed first
//   --gets N          how many
// Prints one JSON object. make bench-meta runs it; keys are judged there.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "io/posix_device.h"
#include "meta/store/store.h"
#include "sim/meta_model.h"

namespace swale::bench {
namespace {

constexpr const char* kParts[] = {"point", "sealed", "storm", "model", "detect", "scaling"};
constexpr const char* kRings[] = {"ring", "direct", "plain"};
constexpr uint64_t kWriters = 16;
constexpr uint64_t kSegmentBytes = 1024;

// What the ranks measured; in memory that they share.
struct Outcome {
  struct Latency {
    double us_p50, us_p99;
  };
  Latency regular, random;
  double ns_sealed, ns_sealed_random;
  uint64_t gets, runs;
  double storm_us[kRanksMax][64];
  double cpu_s[kRanksMax];
};

std::vector<meta::Extent> strided(uint64_t writer, uint64_t count) {
  std::vector<meta::Extent> segments;
  for (uint64_t i = 0; i < count; ++i) {
    segments.push_back({(i * kWriters + writer) * kSegmentBytes,
                        kSegmentBytes,
                        {static_cast<meta::LogId>(writer), i * kSegmentBytes}});
  }
  return segments;
}

// Where a cell of an irregular file stands: no two of them by a rule that runs could follow.
meta::Place irregular_place(uint64_t cell) {
  uint64_t mixed = (cell + 1) * 0x9e3779b97f4a7c15;
  mixed ^= mixed >> 29;
  mixed *= 0xbf58476d1ce4e5b9;
  return {static_cast<meta::LogId>(mixed >> 60), (mixed >> 20) % (uint64_t{1} << 30) * kSegmentBytes};
}

void check_segment(const meta::Extent& found, uint64_t cell, const meta::Place& place) {
  if (found.offset != cell * kSegmentBytes || found.length != kSegmentBytes || found.place != place)
    die("a wrong segment");
}

constexpr uint64_t kCount = 64'000;  // segments of each writer

void fill(meta::Client* client, meta::File* file) {
  for (uint64_t writer = 0; writer < kWriters; ++writer) check(client->put(file, strided(writer, kCount)));
  check(client->close(file, 0).status());
}

// One file is regular, so that gets find runs; the other one is not, so that they find blocks.
void point(int rank, meta::Store& store, net::Job& job, uint64_t gets, Outcome* outcome) {
  for (const bool irregular : {false, true}) {
    auto client = store.client();
    // A file whose first range is on the other rank.
    std::string name = irregular ? "irregular" : "f";
    auto file = take(client->open(name, meta::Client::kCreate, 0644, 0));
    while (store.partition().first_of(file.attributes.file) != 1)
      file = take(client->open(name += "f", meta::Client::kCreate, 0644, 0));
    const auto place_of = [&](uint64_t cell) {
      return irregular
                 ? irregular_place(cell)
                 : meta::Place{static_cast<meta::LogId>(cell % kWriters), cell / kWriters * kSegmentBytes};
    };
    if (rank == 0) {
      for (uint64_t writer = 0; writer < kWriters; ++writer) {
        std::vector<meta::Extent> segments = strided(writer, kCount);
        for (meta::Extent& each : segments) each.place = place_of(each.offset / kSegmentBytes);
        check(client->put(&file, segments));
      }
      check(client->close(&file, 0).status());
      std::this_thread::sleep_for(std::chrono::seconds(3));  // the server comes to rest
    }
    check(job.allgather("").status());
    if (rank == 0) {
      Rng rng(1);
      std::vector<double> us;
      meta::Found found;
      for (uint64_t i = 0; i < gets + gets / 10; ++i) {
        const uint64_t cell =
            rng.below(std::min(kWriters * kCount, store.partition().range_bytes() / kSegmentBytes));
        const meta::ByteRange range{cell * kSegmentBytes, kSegmentBytes};
        const double begin = now_s();
        check(client->get(file, std::span(&range, 1), &found));
        if (i >= gets / 10) us.push_back((now_s() - begin) * 1e6);
        if (found.extents.size() != 1) die("not one segment");
        check_segment(found.extents[0], cell, place_of(cell));
      }
      outcome->gets = gets;
      (irregular ? outcome->random : outcome->regular) =
          Outcome::Latency{percentile(us, 0.5), percentile(us, 0.99)};
    }
    check(job.allgather("").status());
  }
}

void sealed(meta::Store& store, uint64_t gets, Outcome* outcome) {
  auto client = store.client();
  auto file = take(client->open("f", meta::Client::kCreate, 0644, 0));
  fill(client.get(), &file);
  check(client->seal(&file));
  if (!file.table) die("the sealed file has no table");
  outcome->runs = file.table->runs().size();
  // As a program walks through its own part, and in random order.
  for (const bool random : {false, true}) {
    Rng rng(1);
    uint32_t hint = 0;
    uint64_t sum = 0;
    const double begin = thread_cpu_s();  // the machine may be busy
    for (uint64_t i = 0; i < gets; ++i) {
      const uint64_t cell = random ? rng.below(kWriters * kCount) : i % kCount * kWriters + 3;
      const auto found = file.table->find(cell * kSegmentBytes, &hint);
      if (!found) die("a hole");
      sum += found->place.address ^ cell / kWriters * kSegmentBytes;
    }
    const double ns = (thread_cpu_s() - begin) / static_cast<double>(gets) * 1e9;
    if (sum != 0) die("a wrong address");
    (random ? outcome->ns_sealed_random : outcome->ns_sealed) = ns;
  }
  outcome->gets = gets;
}

// All ranks ask at once, again and again.
void storm(int rank, meta::Store& store, net::Job& job, uint64_t rounds, RankBarrier& barrier,
           Outcome* outcome) {
  auto client = store.client();
  auto file = take(client->open("f", meta::Client::kCreate, 0644, 0));
  check(job.allgather("").status());
  for (uint64_t round = 0; round < std::min<uint64_t>(rounds, 64); ++round) {
    barrier.wait();
    const double begin = now_s();
    check(client->stat("f").status());
    outcome->storm_us[rank][round] = (now_s() - begin) * 1e6;
  }
  check(job.allgather("").status());
}

nlohmann::json storm_line(const Outcome& outcome, int ranks, uint64_t rounds) {
  std::vector<double> slowest;
  for (uint64_t round = 0; round < std::min<uint64_t>(rounds, 64); ++round) {
    double most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, outcome.storm_us[rank][round]);
    slowest.push_back(most);
  }
  return summary(slowest);
}

// ---- run detection

double detect_ns(const std::vector<meta::Extent>& entries, uint64_t* items) {
  double best = 1e9;
  meta::DetectedBatch batch;
  for (int round = 0; round < 7; ++round) {
    batch.clear();
    meta::RunDetector detector;
    const double begin = thread_cpu_s();
    detector.add(entries, &batch);
    detector.finish(&batch);
    best = std::min(best, (thread_cpu_s() - begin) / static_cast<double>(entries.size()) * 1e9);
  }
  *items = batch.size();
  return best;
}

// Batches of 64,000 entries: the memory of the output is touched by the first round.
nlohmann::json detect() {
  std::vector<meta::Extent> tile, btio, random;
  Rng rng(1);
  for (uint64_t i = 0; i < kCount; ++i) {
    tile.push_back({(i / 64 * 256 + i % 64) * 4096, 4096, {1, i * 4096}});
    btio.push_back({i / 400 * 700'000 + i / 20 % 20 * 6'480 + i % 20 * 40, 40, {1, i * 40}});
    random.push_back({rng.below(1 << 22) * kSegmentBytes, kSegmentBytes, {1, i * kSegmentBytes}});
  }
  nlohmann::json line;
  for (const auto& [name, entries] : {std::pair{"strided", strided(3, kCount)}, std::pair{"tile", tile},
                                      std::pair{"btio", btio}, std::pair{"random", random}}) {
    uint64_t items = 0;
    line[std::string("detect_ns_") + name] = detect_ns(entries, &items);
    line[std::string("items_") + name] = items;
  }
  return line;
}

// ---- the model

nlohmann::json fig12() {
  nlohmann::json rows = nlohmann::json::array();
  const std::pair<sim::StormMethod, const char*> methods[] = {
      {sim::StormMethod::kPaperPlain, "paper_plain"}, {sim::StormMethod::kPaperDirect, "paper_direct"},
      {sim::StormMethod::kPaperRing, "paper_ring"},   {sim::StormMethod::kOursPlain, "plain"},
      {sim::StormMethod::kOursDirect, "direct"},      {sim::StormMethod::kOursRing, "ring"}};
  for (uint32_t servers_per_node = 1; servers_per_node <= 16; servers_per_node *= 2) {
    nlohmann::json row = {{"servers_per_node", servers_per_node}, {"servers", 64 * servers_per_node}};
    for (const auto& [method, name] : methods) {
      sim::StormParams params;
      params.method = method;
      params.servers_per_node = servers_per_node;
      row[name] = static_cast<double>(run_storm(params).slowest) / 1e3;
    }
    rows.push_back(row);
  }
  return rows;
}

nlohmann::json storm_scaling() {
  nlohmann::json rows = nlohmann::json::array();
  for (uint32_t nodes = 1; nodes <= 16'384; nodes *= 4) {
    nlohmann::json row = {{"servers", nodes}, {"clients", nodes * 16}};
    for (const auto& [method, name] : {std::pair{sim::StormMethod::kPaperPlain, "paper_plain"},
                                       std::pair{sim::StormMethod::kPaperRing, "paper_ring"},
                                       std::pair{sim::StormMethod::kOursRing, "ring"}}) {
      sim::StormParams params;
      params.method = method;
      params.nodes = nodes;
      row[name] = static_cast<double>(run_storm(params).slowest) / 1e3;
    }
    rows.push_back(row);
  }
  return rows;
}

// What was measured of one server: CPU of a client for an entry, and of the server for an item.
struct IndexCosts {
  double put_client_ns, put_server_ns, get_client_ns, get_server_ns;
};

IndexCosts costs_of(const std::string& text) {
  IndexCosts costs{};
  char end = 0;
  if (std::sscanf(text.c_str(), "%lf,%lf,%lf,%lf%c", &costs.put_client_ns, &costs.put_server_ns,
                  &costs.get_client_ns, &costs.get_server_ns, &end) != 4)
    die("expected PUT,PUT_SERVER,GET,GET_SERVER: " + text);
  return costs;
}

// Strong scaling: 64 M segments of 1,024 clients on 1 to 64 servers; weak: 32,768 segments a client. MDHIM's
// entries travel one by one, of ours a run once to each server.
nlohmann::json index_scaling(bool strong, const IndexCosts& mdhim, const IndexCosts& ours) {
  nlohmann::json rows = nlohmann::json::array();
  for (uint32_t nodes = 1; nodes <= 64; nodes *= 2) {
    const uint64_t entries = strong ? (uint64_t{64} << 20) / (16 * nodes) : 32'768;
    nlohmann::json row = {{"servers", nodes}, {"clients", nodes * 16}, {"entries", entries * nodes * 16}};
    for (const bool runs : {false, true}) {
      const IndexCosts& costs = runs ? ours : mdhim;
      const std::string name = runs ? "swale" : "mdhim";
      sim::BurstParams params;
      params.nodes = nodes;
      params.entries = entries;
      params.items_per_entry = runs ? 1.0 / static_cast<double>(entries) : 1;
      params.wire_bytes = 40;
      params.client_ns = costs.put_client_ns;
      params.server_ns = costs.put_server_ns;
      row[name + "_put_ms"] = static_cast<double>(run_burst(params)) / 1e6;
      params.client_ns = costs.get_client_ns;
      params.server_ns = costs.get_server_ns;
      row[name + "_get_ms"] = static_cast<double>(run_burst(params)) / 1e6;
    }
    rows.push_back(row);
  }
  return rows;
}

nlohmann::json scaling(const IndexCosts& mdhim, const IndexCosts& ours) {
  return {{"fig9_strong", index_scaling(true, mdhim, ours)},
          {"fig10_weak", index_scaling(false, mdhim, ours)}};
}

nlohmann::json model() {
  const nlohmann::json rows = fig12();
  const auto& one = rows[0];
  return {
      {"ring_speedup_vs_plain_1024_clients", one["paper_plain"].get<double>() / one["ring"].get<double>()},
      {"paper_ring_speedup_vs_plain", one["paper_plain"].get<double>() / one["paper_ring"].get<double>()},
      {"fig12_us", rows},
      {"storm_scaling_us", storm_scaling()}};
}

int run(Arguments& arguments) {
  const size_t part = arguments.choice("part", kParts);
  const uint64_t gets = arguments.number("gets", part == 1 ? 2'000'000 : part == 2 ? 30 : 20'000);
  const int ranks = static_cast<int>(arguments.number("ranks", part == 0 ? 2 : part == 1 ? 1 : 8));
  const size_t ring = arguments.choice("ring", kRings);
  nlohmann::json line = {{"program", "meta_service"}, {"part", kParts[part]}};
  if (part == 3) {
    arguments.expect_no_more();
    line.update(model());
    report(line);
    return 0;
  }
  if (part == 4) {
    arguments.expect_no_more();
    line.update(detect());
    report(line);
    return 0;
  }
  if (part == 5) {
    const IndexCosts mdhim = costs_of(arguments.text("mdhim-ns")),
                     ours = costs_of(arguments.text("swale-ns"));
    arguments.expect_no_more();
    line.update(scaling(mdhim, ours));
    report(line);
    return 0;
  }
  const std::string directory = arguments.text("dir");
  arguments.expect_no_more();
  remove_all(directory);
  auto* outcome = static_cast<Outcome*>(
      ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  register_network();
  run_ranks(ranks, [&](int rank, RankReport&, RankBarrier& barrier) {
    const auto job = open_job(ranks);
    io::PosixDevice device;
    {
      meta::StoreOptions options;
      options.servers_per_node = 1024;  // a server on each rank
      options.ring = static_cast<meta::RingMode>(ring);
      const auto store = take(meta::Store::open(*job, device, directory, options));
      if (part == 0) point(rank, *store, *job, gets, outcome);
      if (part == 1) sealed(*store, gets, outcome);
      if (part == 2) storm(rank, *store, *job, gets, barrier, outcome);
      check(store->close());
    }
    check(job->close());
  });
  remove_all(directory);
  if (part == 0) {
    line.update({{"gets", outcome->gets},
                 {"point_get_us_p50", outcome->random.us_p50},
                 {"point_get_us_p99", outcome->random.us_p99},
                 {"regular_get_us_p50", outcome->regular.us_p50},
                 {"regular_get_us_p99", outcome->regular.us_p99}});
  } else if (part == 1) {
    line.update({{"gets", outcome->gets},
                 {"runs", outcome->runs},
                 {"sealed_get_ns", outcome->ns_sealed},
                 {"sealed_get_ns_random", outcome->ns_sealed_random}});
  } else {
    line.update(
        {{"ring", kRings[ring]}, {"ranks", ranks}, {"slowest_us", storm_line(*outcome, ranks, gets)}});
  }
  report(line);
  return 0;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  swale::bench::Arguments arguments(argc, argv);
  return swale::bench::run(arguments);
}
