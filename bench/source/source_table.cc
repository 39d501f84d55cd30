// bench_source: one auxiliary table of one home: made from batches as they come, written to a file, and asked
// for every key. Reports one line.
//   --file PATH         where the table goes (replaced); PATH.spill beside it
//   --keys N  --sources P  --runs G  --scheme ribbon|maplet|cuckoo  --bits R  --shard-keys K
//   --ranks uniform|skewed|correlated
//   --memory BYTES      of the PairStore
//   --moved PERMILLE    makes a delta: so many of the keys have moved to another rank since the table
// Processor time is that of the home alone: taking batches in, decoding, sorting, building, writing. Memory
// is what the table's code has allocated, counted by operator new.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/counted_new.h"
#include "bench/measure.h"
#include "io/posix_device.h"
#include "source/pair_store.h"
#include "source/table_builder.h"

namespace swale::bench {
namespace {

using source::Pair;

struct Options {
  std::string file;
  uint64_t keys;
  uint32_t sources;
  uint32_t runs;
  source::Scheme scheme;
  uint32_t bits;
  uint32_t shard_keys;
  size_t ranks;
  uint64_t memory;
  uint64_t moved;
};

uint64_t kept_of(uint64_t key) {
  char bytes[8];
  put_u64(bytes, key);
  return source::kept_hash(hash_eight_bytes(bytes));
}

// The source of every key. Uniform: by chance. Skewed: rank r has a share proportional to 1 / (r + 1).
// Correlated: keys that follow one another are at one rank.
std::vector<uint32_t> sources_of_keys(const Options& options) {
  std::vector<uint32_t> sources(options.keys);
  Rng rng(17);
  double sum = 0;
  std::vector<double> shares;
  for (uint32_t i = 0; options.ranks == 1 && i < options.sources; ++i) shares.push_back(sum += 1.0 / (i + 1));
  for (uint64_t key = 0; key < options.keys; ++key) {
    if (options.ranks == 0) {
      sources[key] = static_cast<uint32_t>(rng.below(options.sources));
    } else if (options.ranks == 1) {
      const double at = static_cast<double>(rng.next() >> 11) * 0x1p-53 * sum;
      sources[key] =
          static_cast<uint32_t>(std::upper_bound(shares.begin(), shares.end(), at) - shares.begin());
    } else {
      sources[key] = static_cast<uint32_t>(key * options.sources / options.keys);
    }
  }
  return sources;
}

// The keys in the order of their sources.
std::vector<uint32_t> by_source(const std::vector<uint32_t>& sources, uint32_t count) {
  std::vector<uint32_t> starts(size_t{count} + 1), order(sources.size());
  for (const uint32_t at : sources) ++starts[at + 1];
  for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  for (uint32_t key = 0; key < sources.size(); ++key) order[starts[sources[key]]++] = key;
  return order;
}

struct Taken {
  double cpu_s = 0;     // of the home
  double encode_s = 0;  // of the senders
  uint64_t wire_bytes = 0;
  uint64_t batches = 0;
};

// Sends every key to the store, in batches of at most 4,096 keys of one source.
Taken send_all(source::PairStore* store, const std::vector<uint32_t>& sources,
               const std::vector<uint32_t>& order) {
  constexpr size_t kBatchKeys = 4096;
  Taken taken;
  std::vector<Pair> pairs, scratch(kBatchKeys);
  std::string batch;
  pairs.reserve(kBatchKeys);
  batch.reserve(source::kBatchBytesMax);
  for (size_t at = 0; at < order.size();) {
    const uint32_t from = sources[order[at]];
    pairs.clear();
    for (; at < order.size() && sources[order[at]] == from && pairs.size() < kBatchKeys; ++at) {
      pairs.push_back(source::make_pair(kept_of(order[at]), 0));
    }
    batch.clear();
    const double begin = thread_cpu_s();
    source::encode_batch(EpochNumber(0), from, pairs, scratch, &batch);
    const double encoded = thread_cpu_s();
    check(store->add(batch));
    taken.cpu_s += thread_cpu_s() - encoded;
    taken.encode_s += encoded - begin;
    taken.wire_bytes += batch.size();
    ++taken.batches;
  }
  return taken;
}

// All shards in memory, as a warm reader has them.
class WarmTable {
 public:
  explicit WarmTable(const source::TableReader& reader)
      : reader_(reader), bytes_(reader.trailer().shard_count) {
    for (uint32_t i = 0; i < bytes_.size(); ++i) {
      check(reader.read_shard(i, &bytes_[i]));
      auto shard = reader.open_shard(bytes_[i], i);
      check(shard.status());
      shards_.push_back(std::move(*shard));
    }
  }
  void candidates(uint64_t kept, std::vector<uint32_t>* out) const {
    if (reader_.trailer().params.scheme == source::Scheme::kCuckoo) {
      for (const source::Shard& shard : shards_) shard.candidates(kept, out);
    } else {
      shards_[reader_.index().place_of(kept).number].candidates(kept, out);
    }
  }

 private:
  const source::TableReader& reader_;
  std::vector<std::string> bytes_;
  std::vector<source::Shard> shards_;
};

struct Asked {
  double probes_per_existing_key = 0;
  double false_probes_per_absent_key = 0;
  double query_ns = 0;
};

// Every key, and as many that are not there, or two million. A key that is missed ends the program.
Asked ask_all(const std::vector<const WarmTable*>& tables, const std::vector<uint32_t>& sources) {
  uint64_t existing = 0, absent = 0;
  std::vector<uint32_t> found;
  const double begin = thread_cpu_s();
  const uint64_t absent_keys = std::min<uint64_t>(sources.size(), 2'000'000);
  for (uint64_t key = 0; key < sources.size() + absent_keys; ++key) {
    found.clear();
    const uint64_t kept = kept_of(key);
    for (const WarmTable* table : tables) table->candidates(kept, &found);
    source::sort_candidates(&found, 0);
    if (key >= sources.size()) {
      absent += found.size();
      continue;
    }
    existing += found.size();
    if (!std::binary_search(found.begin(), found.end(), sources[key])) {
      die(fmt::format("key {} is missed", key));
    }
  }
  const auto keys = static_cast<double>(sources.size());
  const auto others = static_cast<double>(absent_keys);
  return {static_cast<double>(existing) / keys, static_cast<double>(absent) / others,
          (thread_cpu_s() - begin) / (keys + others) * 1e9};
}

// Bytes of a query whose reader has nothing: the mean of some.
double cold_bytes(io::File& file, uint64_t bytes) {
  const source::TableReader reader = std::move(source::TableReader::open(file, 0, bytes)).value();
  source::TableReader::Cost cost;
  std::vector<uint32_t> found;
  const uint64_t queries = reader.trailer().params.scheme == source::Scheme::kCuckoo ? 1 : 2000;
  for (uint64_t key = 0; key < queries; ++key)
    check(reader.candidates(kept_of(key * 104'729), &found, &cost));
  return static_cast<double>(reader.open_cost().bytes) +
         static_cast<double>(cost.bytes) / static_cast<double>(queries);
}

struct Made {
  Taken taken;
  double cpu_s = 0;  // in all
  uint64_t peak_bytes = 0;
  uint64_t spilled_bytes = 0;
  source::TableSummary summary;
};

Made make(const Options& options, const std::vector<uint32_t>& sources, io::File* file, io::File* spill,
          const source::TableReader* base) {
  const std::vector<uint32_t> order = by_source(sources, options.sources);
  const uint64_t before = reset_peak();
  auto store = source::PairStore::create({EpochNumber(0), options.sources, options.memory, spill});
  check(store.status());
  Made made;
  made.taken = send_all(&*store, sources, order);
  source::TableParams params;
  params.scheme = options.scheme;
  params.sources = options.sources;
  params.runs_per_rank = options.runs;
  params.fingerprint_bits = base == nullptr ? options.bits : source::kDeltaFingerprintBits;
  params.table_id = base == nullptr ? 1 : 2;
  params.base_id = base == nullptr ? 0 : 1;
  uint64_t end = 0;
  const source::ByteSink sink = [&](Bytes bytes) {
    const Status status = file->pwrite(end, bytes);
    end += bytes.size();
    return status;
  };
  const double begin = thread_cpu_s();
  if (base == nullptr) {
    auto summary = build_table(&*store, params, sink, options.shard_keys);
    check(summary.status());
    made.summary = *summary;
  } else {
    auto summary = build_delta(&*store, params, *base, sink);
    check(summary.status());
    if (!summary->has_value()) die("the delta would be too large");
    made.summary = **summary;
  }
  made.cpu_s = thread_cpu_s() - begin + made.taken.cpu_s;
  made.peak_bytes = allocations().peak_bytes - before;
  made.spilled_bytes = store->spilled_bytes();
  return made;
}

nlohmann::json line_of(const Options& options, const Made& made, const Asked& asked, double cold) {
  const auto keys = static_cast<double>(options.keys);
  return {{"keys", options.keys},
          {"sources", options.sources},
          {"bits_per_key", static_cast<double>(made.summary.bytes) * 8 / keys},
          {"table_bytes", made.summary.bytes},
          {"shards", made.summary.shards},
          {"extras", made.summary.extras},
          {"bumped", made.summary.bumped},
          {"probes_per_existing_key", asked.probes_per_existing_key},
          {"false_probes_per_absent_key", asked.false_probes_per_absent_key},
          {"query_ns", asked.query_ns},
          {"cold_bytes", cold},
          {"build_keys_per_cpu_second", keys / made.cpu_s},
          {"take_ns_per_key", made.taken.cpu_s / keys * 1e9},
          {"encode_ns_per_key", made.taken.encode_s / keys * 1e9},
          {"peak_bytes", made.peak_bytes},
          {"spilled_bytes", made.spilled_bytes},
          {"wire_bytes_per_key", static_cast<double>(made.taken.wire_bytes) / keys},
          {"keys_per_batch", keys / static_cast<double>(made.taken.batches)}};
}

std::unique_ptr<io::File> create(io::Device& device, const std::string& path) {
  remove_all(path);
  auto file = device.open(path, io::OpenMode::kCreate);
  check(file.status());
  return std::move(*file);
}

void run(const Options& options) {
  io::PosixDevice device;
  const auto file = create(device, options.file);
  const auto spill = create(device, options.file + ".spill");
  std::vector<uint32_t> sources = sources_of_keys(options);
  const Made full = make(options, sources, file.get(), spill.get(), nullptr);
  const auto reader = std::move(source::TableReader::open(*file, 0, full.summary.bytes)).value();
  const WarmTable warm(reader);
  if (options.moved == 0) {
    report(line_of(options, full, ask_all({&warm}, sources), cold_bytes(*file, full.summary.bytes)));
  } else {
    Rng rng(99);
    for (uint32_t& at : sources) {
      if (rng.chance(options.moved, 1000)) at = static_cast<uint32_t>(rng.below(options.sources));
    }
    const auto delta_file = create(device, options.file + ".delta");
    const Made delta = make(options, sources, delta_file.get(), spill.get(), &reader);
    const auto delta_reader =
        std::move(source::TableReader::open(*delta_file, 0, delta.summary.bytes)).value();
    const WarmTable delta_warm(delta_reader);
    report(line_of(options, delta, ask_all({&delta_warm, &warm}, sources),
                   cold_bytes(*delta_file, delta.summary.bytes) + cold_bytes(*file, full.summary.bytes)));
    remove_all(options.file + ".delta");
  }
  remove_all(options.file);
  remove_all(options.file + ".spill");
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  constexpr const char* kSchemes[] = {"ribbon", "maplet", "cuckoo"};
  constexpr const char* kRanks[] = {"uniform", "skewed", "correlated"};
  Options options;
  options.file = arguments.text("file");
  options.keys = arguments.number("keys", 7'812'500);
  options.runs = static_cast<uint32_t>(arguments.number("runs", 1));
  options.sources = static_cast<uint32_t>(arguments.number("sources", 4096)) * options.runs;
  options.scheme = static_cast<swale::source::Scheme>(1 + arguments.choice("scheme", kSchemes));
  options.bits = static_cast<uint32_t>(arguments.number("bits", 4));
  options.shard_keys = static_cast<uint32_t>(arguments.number("shard-keys", swale::source::kShardKeysMax));
  options.ranks = arguments.choice("ranks", kRanks);
  options.memory = arguments.number("memory", 32 * swale::kMiB);
  options.moved = arguments.number("moved", 0);
  arguments.expect_no_more();
  run(options);
}
