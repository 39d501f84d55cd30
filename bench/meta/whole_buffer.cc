#include "bench/meta/whole_buffer.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/codec.h"
#include "base/rng.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/meta/column_codecs.h"
#include "bench/meta/index_store.h"
#include "meta/index/codec.h"
#include "meta/index/merge.h"
#include "meta/index/tree.h"

namespace swale::bench {
namespace {

constexpr size_t kBufferEntries = 256 * 1024;  // as ShardOptions
constexpr size_t kBlockGets = 100'000, kWholeGets = 20;

std::vector<meta::Entry> buffer_of(const Workload& workload) {
  std::vector<meta::Entry> entries;
  std::vector<meta::Extent> message;
  for (uint64_t batch = 0; batch < workload.batches() && entries.size() < kBufferEntries; ++batch) {
    for (size_t m = 0; m < kBatch / kMessage; ++m) {
      workload.message(batch, m, &message);
      for (const meta::Extent& each : message)
        entries.push_back({each.offset, each.length, each.place.address, 0, each.place.log, 0});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const meta::Entry& a, const meta::Entry& b) { return a.offset < b.offset; });
  return entries;
}

struct Whole {
  std::string packed;
  size_t raw_bytes = 0, rows = 0;
};
using WholeColumns = std::array<std::vector<uint64_t>, 4>;  // offset, length, log, address

Whole compress_whole(const std::vector<meta::Entry>& entries) {
  WholeColumns columns;
  for (const meta::Entry& each : entries) {
    const uint64_t row[] = {each.offset, each.length, each.log, each.address};
    for (size_t c = 0; c < columns.size(); ++c) columns[c].push_back(row[c]);
  }
  std::string raw;
  for (const auto& column : columns) meta::append_second_differences(column, &raw);
  Compressor zstd = take(Compressor::create(Codec::kZstd));
  Whole whole{std::string(raw.size() + 1024, '\0'), raw.size(), entries.size()};
  whole.packed.resize(zstd.compress(raw, whole.packed));
  return whole;
}

meta::Place get_whole(const Whole& whole, uint64_t offset) {
  std::string raw(whole.raw_bytes, '\0');
  if (!decompress(Codec::kZstd, whole.packed, raw)) die("the whole buffer does not decompress");
  Decoder decoder(raw);
  WholeColumns columns;
  for (auto& column : columns) {
    column.resize(whole.rows);
    if (!meta::read_second_differences(&decoder, column)) die("the whole buffer does not decode");
  }
  const auto row = std::upper_bound(columns[0].begin(), columns[0].end(), offset) - columns[0].begin() - 1;
  const auto i = static_cast<size_t>(row);
  return {static_cast<meta::LogId>(columns[2][i]), columns[3][i] + offset - columns[0][i]};
}

double seconds_of(const Stopwatch& watch) { return watch.cpu().total_s(); }

}  // namespace

nlohmann::json whole_buffer(const Workload& workload, bool canary) {
  const std::vector<meta::Entry> entries = buffer_of(workload);
  const auto count = static_cast<double>(entries.size());
  meta::FileTable files;
  files.index_of(kBenchFile);

  Stopwatch watch;
  auto tree = std::make_shared<meta::Tree>();
  const auto cutter = take(meta::BlockCutter::create(meta::BlockCodec::kAuto, files,
                                                     [&](const meta::Key& first, Bytes block, size_t) {
                                                       tree->add(first, block);
                                                       return ok_status();
                                                     }));
  if (const Status added = cutter->add(entries, true); !added.ok()) die(added.to_string());
  tree->finish();
  const double block_put_s = seconds_of(watch);

  watch = Stopwatch();
  const Whole whole = compress_whole(entries);
  const double whole_put_s = seconds_of(watch);

  Rng rng(7);
  const auto check = [&](const meta::Entry& expected, const meta::Place& found, size_t get) {
    if (found != meta::Place{expected.log, expected.address} || (canary && get == 5))
      die(fmt::format("WRONG ANSWER: offset {}", expected.offset));
  };
  watch = Stopwatch();
  for (size_t i = 0; i < kBlockGets; ++i) {
    const meta::Entry& wanted = entries[rng.below(entries.size())];
    const size_t block = tree->index().find({kBenchFile, wanted.offset});
    const meta::BlockView view = take(tree->view(block));
    const meta::Entry row = view.row(view.find(kBenchFile, wanted.offset));
    check(wanted, {row.log, row.address + wanted.offset - row.offset}, i);
  }
  const double block_get_s = seconds_of(watch);
  watch = Stopwatch();
  for (size_t i = 0; i < kWholeGets; ++i) {
    const meta::Entry& wanted = entries[rng.below(entries.size())];
    check(wanted, get_whole(whole, wanted.offset), i);
  }
  const double whole_get_s = seconds_of(watch);
  nlohmann::json line = {
      {"entries", entries.size()},
      {"blocks", tree->blocks()},
      {"block_bytes_per_entry", static_cast<double>(tree->stored_bytes()) / count},
      {"whole_bytes_per_entry", static_cast<double>(whole.packed.size()) / count},
      {"block_put_ns", block_put_s / count * 1e9},
      {"whole_put_ns", whole_put_s / count * 1e9},
      {"block_get_ns", block_get_s / kBlockGets * 1e9},
      {"whole_get_ns", whole_get_s / kWholeGets * 1e9},
      {"block_merge_bytes", meta::kBlockRowsMax * sizeof(meta::Entry)},  // of one buffer, decoded at a time
      {"whole_merge_bytes", entries.size() * sizeof(meta::Entry)}};
  line.update(column_codecs(entries));
  return line;
}

}  // namespace swale::bench
