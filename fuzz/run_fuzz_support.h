// Valid logs for the fuzz targets to damage. An input is a list of edits, so that libFuzzer starts from bytes
// that decode; checksums are made to fit again afterwards, or nothing behind them would ever be reached.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "run/layout.h"
#include "run/memtable.h"
#include "run/packed_run_builder.h"
#include "run/run_builder.h"
#include "run/segment_builder.h"

namespace swale::run::fuzz {

inline constexpr PartitionNumber kPartition(7);
inline constexpr uint64_t kEpochId = 99;

inline void require(bool condition) {
  if (!condition) std::abort();
}

struct Logs {
  std::string data;
  std::string index;
  SegmentRecord segment;
};

// One run per entry; each of `records` records with values of up to `value_bytes_max` bytes (all of one size
// if uniform). A hot key makes slices overflow.
inline Logs make_logs(const std::vector<std::pair<size_t, size_t>>& runs, bool uniform,
                      const Layout& layout = {}) {
  Rng rng(1);
  auto memtable = Memtable::create(kMiB, 20'000).value();
  auto scratch = RunScratch::create(20'000).value();
  auto arena = SketchArena::create(4 * kMiB).value();
  auto compressor = Compressor::create(layout.compression).value();
  std::vector<char> packed(packed_bytes_max(kMiB));
  std::vector<RunSketch> sketches;
  Logs logs;
  std::vector<char> out(16 * kBlockBytes);
  for (const auto& [records, value_bytes_max] : runs) {
    memtable.clear();
    for (size_t i = 0; i < records; ++i) {
      std::string key = "hot key!";
      if (i % 2 == 0) put_u64(key.data(), rng.next());
      const std::string value(uniform ? value_bytes_max : rng.below(value_bytes_max + 1), 'v');
      std::string encoded(encoded_record_bytes(key.size(), value.size()), '\0');
      encode_record(key, value, encoded.data());
      RecordView view;
      require(parse_record(encoded, &view) == RecordParse::kOk && memtable.append(hash_bytes(key), view));
    }
    const RunPlacement placement{.partition = kPartition,
                                 .first_block = BlockNumber(logs.data.size() / kBlockBytes),
                                 .epoch_id = kEpochId,
                                 .way = 0,
                                 .run = static_cast<uint32_t>(sketches.size()),
                                 .ranks = kPartition + 1,
                                 .with_tails = layout.filtered()};
    std::unique_ptr<RunOutput> run;
    if (layout.compression != Codec::kNone) {
      auto builder = std::make_unique<PackedRunBuilder>(
          memtable, scratch, arena, compressor, MutableBytes(packed.data(), packed.size()), placement);
      builder->pack();
      builder->place(placement);
      run = std::move(builder);
    } else {
      run = std::make_unique<RunBuilder>(memtable, scratch, arena, placement);
    }
    while (const size_t produced = run->fill(out)) logs.data.append(out.data(), produced);
    sketches.push_back(run->sketch());
  }
  SegmentBuilder builder(sketches, {.partition = kPartition,
                                    .epoch_id = kEpochId,
                                    .way = 0,
                                    .ways = 1,
                                    .data_blocks = static_cast<uint32_t>(logs.data.size() / kBlockBytes),
                                    .layout = layout});
  while (const size_t produced = builder.fill(out)) logs.index.append(out.data(), produced);
  logs.segment = builder.record(0);
  return logs;
}

// Input: (u16 position, u8 value)*; positions wrap around.
inline void apply_edits(Bytes input, size_t begin, std::string* bytes) {
  for (; input.size() >= 3 && bytes->size() > begin; input.remove_prefix(3)) {
    (*bytes)[begin + get_u16(input.data()) % (bytes->size() - begin)] = input[2];
  }
}

}  // namespace swale::run::fuzz
