// A partition in memory for tests: runs and segments are appended to two strings, and looked up in them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "io/memory_device.h"
#include "run/block.h"
#include "run/footer.h"
#include "run/layout.h"
#include "run/memtable.h"
#include "run/packed_run_builder.h"
#include "run/run_builder.h"
#include "run/run_cursor.h"
#include "run/run_sort.h"
#include "run/segment_builder.h"
#include "run/segment_reader.h"

namespace swale::run::test {

using Records = std::vector<std::pair<std::string, std::string>>;

inline std::string random_bytes(Rng& rng, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(rng.next());
  return bytes;
}

// The rest for a partition with 3 ranks and one way, whether or not the key belongs to this partition.
inline Hash rest_of(Bytes key) { return choose(choose(hash_bytes(key), 3).rest, 1).rest; }

inline Records random_records(Rng& rng, size_t count, size_t key_bytes, size_t value_bytes) {
  Records records;
  records.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    // One after the other: compilers differ in the order of arguments, and golden files depend on it.
    std::string key = random_bytes(rng, key_bytes);
    records.emplace_back(std::move(key), random_bytes(rng, value_bytes));
  }
  return records;
}

inline bool append(Memtable& memtable, Bytes key, Bytes value) {
  std::string encoded(encoded_record_bytes(key.size(), value.size()), '\0');
  encode_record(key, value, encoded.data());
  RecordView view;
  EXPECT_EQ(parse_record(encoded, &view), RecordParse::kOk);
  return memtable.append(rest_of(key), view);
}

struct Found {
  std::vector<std::string> values;  // of true candidates, in the order the index names them
  size_t candidates = 0;
  size_t false_candidates = 0;
  uint64_t decompressed = 0;  // blocks
  Status status;
};

class PartitionInMemory {
 public:
  static constexpr uint64_t kEpochId = 0x1122334455667788;

  explicit PartitionInMemory(PartitionNumber partition = PartitionNumber(7),
                             size_t arena_bytes = Memtable::kArenaBytesMax)
      : footer(partition),
        partition_(partition),
        memtable_(Memtable::create(arena_bytes, Memtable::kRecordsMax).value()),
        scratch_(RunScratch::create(Memtable::kRecordsMax).value()) {}

  // Each fill is `fill_blocks` long, so that records cross the seams between fills.
  void add_run(const Records& records, size_t fill_blocks = 3) {
    memtable_.clear();
    for (const auto& [key, value] : records) ASSERT_TRUE(append(memtable_, key, value));
    const RunPlacement placement{.partition = partition_,
                                 .first_block = BlockNumber(data.size() / kBlockBytes),
                                 .epoch = epoch,
                                 .epoch_id = kEpochId + epoch,
                                 .way = 0,
                                 .run = static_cast<uint32_t>(sketches.size()),
                                 .ranks = partition_ + 1,
                                 .with_tails = layout.filtered()};
    std::vector<char> packed;
    Compressor compressor = Compressor::create(layout.compression).value();
    std::unique_ptr<RunOutput> builder;
    if (layout.compression != Codec::kNone) {  // even if it is not worth it
      packed.resize(packed_bytes_max(memtable_.encoded_bytes()));
      auto packer = std::make_unique<PackedRunBuilder>(memtable_, scratch_, sketch_memory, compressor, packed,
                                                       RunPlacement{.with_tails = layout.filtered()});
      packer->pack();
      packer->place(placement);
      builder = std::move(packer);
    } else {
      builder = std::make_unique<RunBuilder>(memtable_, scratch_, sketch_memory, placement);
    }
    const size_t before = data.size();
    std::vector<char> out(fill_blocks * kBlockBytes, '\x5a');
    while (const size_t produced = builder->fill(out)) data.append(out.data(), produced);
    ASSERT_TRUE(builder->done());
    ASSERT_EQ(data.size() - before, builder->block_count() * kBlockBytes);
    digest += builder->digest();
    sketches.push_back(builder->sketch());
  }

  void finish_epoch(size_t fill_pages = 2) {
    SegmentBuilder builder(sketches,
                           {.partition = partition_,
                            .epoch = epoch,
                            .epoch_id = kEpochId + epoch,
                            .way = 0,
                            .ways = 1,
                            .data_block = epoch_block_,
                            .data_blocks = static_cast<uint32_t>(data.size() / kBlockBytes - epoch_block_),
                            .layout = layout});
    index.resize(segment_offset(index.size(), builder.size_bytes()));
    const SegmentRecord record = builder.record(index.size());
    std::vector<char> out(fill_pages * kIndexPageBytes, '\x5a');
    const size_t before = index.size();
    while (const size_t produced = builder.fill(out)) index.append(out.data(), produced);
    ASSERT_EQ(index.size() - before, builder.size_bytes());
    segments.push_back(record);
    ASSERT_TRUE(footer.add(record).ok());
    index += footer.encode(index.size());
    sketch_memory.clear();
    sketches.clear();
    epoch_block_ = BlockNumber(data.size() / kBlockBytes);
    ++epoch;
  }

  Result<Slice> open_slice(const SegmentRecord& segment, const SliceLocation& location) const {
    auto slice = Slice::open(segment, partition_, location,
                             Bytes(index).substr(location.offset, location.bytes), "index");
    if (slice.ok()) {
      if (const auto rest = slice->overflow()) {
        SWALE_RETURN_IF_ERROR(slice->attach_overflow(Bytes(index).substr(rest->offset, rest->bytes)));
      }
    }
    return slice;
  }

  Found find(Bytes key, const SegmentRecord& segment) const {
    Found found;
    const auto location = locate_slice(segment, rest_of(key));
    if (!location) return found;
    auto slice = open_slice(segment, *location);
    if (!slice.ok()) {
      found.status = slice.status();
      return found;
    }
    BlockWalk walk;
    const Status status = slice->candidates(rest_of(key), [&](const Candidate& candidate) {
      ++found.candidates;
      const Bytes blocks =
          Bytes(data).substr(candidate.block * kBlockBytes, candidate.block_count * kBlockBytes);
      const uint32_t seed = epoch_seed(partition_, segment.epoch_id);
      if (const Status verified = verify_blocks(blocks, seed, candidate.block, "data"); !verified.ok()) {
        found.status = verified;
        return;
      }
      if (candidate.any_slot()) {
        const size_t before = found.values.size();
        const Status matched = RecordMatch::each_in_verified(candidate, blocks, key, &walk, "data",
                                                             [&](const RecordView& record) {
                                                               found.values.emplace_back(record.value);
                                                               return true;
                                                             });
        if (!matched.ok()) found.status = matched;
        found.false_candidates += found.values.size() == before ? 1 : 0;
        return;
      }
      const auto match = RecordMatch::in_verified(candidate, blocks, key, &walk, "data");
      if (!match.ok()) {
        found.status = match.status();
      } else if (*match) {
        EXPECT_EQ((*match)->key, key);
        found.values.emplace_back((*match)->value);
      } else {
        ++found.false_candidates;
      }
    });
    if (!status.ok()) found.status = status;
    found.decompressed = walk.take_decompressed();
    return found;
  }

  std::unique_ptr<io::File> index_file(Bytes content) {
    auto file = device_->open("/index-" + std::to_string(file_count_++), io::OpenMode::kCreate).value();
    EXPECT_TRUE(file->pwrite(0, content).ok());
    return file;
  }

  Layout layout;  // set it before the first run
  std::string data;
  std::string index;
  std::vector<RunSketch> sketches;
  SketchArena sketch_memory = SketchArena::create(64 * kMiB).value();  // theirs
  std::vector<SegmentRecord> segments;
  uint64_t digest = 0;
  EpochNumber epoch = {};
  FooterBuilder footer;

 private:
  PartitionNumber partition_;
  Memtable memtable_;
  RunScratch scratch_;
  BlockNumber epoch_block_;
  std::unique_ptr<io::MemoryDevice> device_ = std::make_unique<io::MemoryDevice>();
  int file_count_ = 0;
};

// The offset of the footer at the end of an index log.
inline uint64_t last_footer_offset(Bytes index) {
  return get_fixed<FooterTrailer>(index.data() + index.size() - sizeof(FooterTrailer)).offset;
}

// Every record, in storage order.
inline Records scan(const std::string& data, PartitionNumber partition, Status* status,
                    size_t chunk_blocks = 2) {
  Records records;
  RunCursor cursor(partition, BlockNumber(0), "data");
  for (size_t at = 0; at < data.size() && status->ok(); at += chunk_blocks * kBlockBytes) {
    *status =
        cursor.feed(Bytes(data).substr(at, chunk_blocks * kBlockBytes), [&](const ScannedRecord& record) {
          records.emplace_back(record.key, record.value);
          return true;
        });
  }
  if (status->ok()) *status = cursor.finish();
  return records;
}

}  // namespace swale::run::test
