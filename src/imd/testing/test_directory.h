// A massive directory made by hand for tests of the reader: partitions × ways × runs × segments from a list
// of records, with the classes of src/run and no writer; and a model of what it holds.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "imd/format/generation.h"
#include "imd/format/manifest.h"
#include "io/device.h"
#include "run/footer.h"
#include "run/memtable.h"
#include "run/run_builder.h"
#include "run/run_sort.h"
#include "run/segment_builder.h"

namespace swale::imd::test {

using Records = std::vector<std::pair<std::string, std::string>>;
// of one epoch: values in the order of appends
using Model = std::map<std::string, std::vector<std::string>>;

inline std::string text_key(uint64_t number) { return "key-" + std::to_string(number); }

class TestDirectory {
 public:
  struct Shape {
    size_t records_per_run = 1'000;
    size_t runs_per_segment = 1'000;
    enum { kCommitted, kUncommitted } fate = kCommitted;
    bool first_run_indexed_twice = false;  // and the second one never
  };

  TestDirectory(io::Device& device, std::string directory)
      : device_(device),
        directory_(std::move(directory)),
        memtable_(run::Memtable::create(4 * kMiB, 64 * 1024).value()),
        scratch_(run::RunScratch::create(64 * 1024).value()),
        sketch_memory_(run::SketchArena::create(16 * kMiB).value()) {
    EXPECT_TRUE(io::make_directories(device_, directory_).ok());
    commit();
  }

  // The number of the job that writes now.
  uint32_t job() const { return manifest.jobs.back().number; }
  LogId log(PartitionNumber partition) const { return {job(), partition}; }

  void begin_job(uint32_t ranks, uint32_t ways = 1) {
    const uint32_t number = manifest.jobs.empty() ? 1 : job() + 1;
    manifest.jobs.push_back(
        {number, fmt::format("{:016x}", 0x1000 + manifest.jobs.size()), ranks, ways, "hash"});
    EXPECT_TRUE(io::make_directories(device_, part_folder(directory_, PartitionNumber(0))).ok());
    commit();
  }

  void write_epoch(const Records& records, const Shape& shape) {
    const JobEntry& job = manifest.jobs.back();
    EpochEntry epoch;
    epoch.epoch = EpochNumber(static_cast<uint32_t>(manifest.epochs.size()));
    epoch.job = static_cast<uint32_t>(manifest.jobs.size() - 1);
    epoch.epoch_id = hash_bytes(fmt::format("epoch {}", ++epochs_begun_));
    epoch.step = epoch.epoch * 10;
    epoch.time = epoch.epoch * 0.5;
    std::vector<std::vector<Records>> parts(job.ranks, std::vector<Records>(job.ways));
    for (const auto& [key, value] : records) {
      const HashChoice home = choose(hash_bytes(key), job.ranks);
      parts[home.index][choose(home.rest, job.ways).index].emplace_back(key, value);
      ++epoch.records;
      epoch.data_bytes += key.size() + value.size();
      epoch.digest += record_digest(key + value, key.size());
    }
    for (PartitionNumber p(0); p < parts.size(); ++p) write_partition(p, parts[p], epoch, shape);
    if (shape.fate != Shape::kCommitted) return;
    manifest.epochs.push_back(epoch);
    models.emplace_back();
    for (const auto& [key, value] : records) models.back()[key].push_back(value);
    commit();
  }
  void write_epoch(const Records& records) { write_epoch(records, Shape()); }

  // Makes a generation of `manifest` as it is now: of the job that writes, or of the directory's maker.
  void commit() {
    manifest.generation = manifest.jobs.empty() ? 0 : job();
    manifest.continues = manifest.generation == 0 ? 0 : manifest.generation - 1;
    manifest.epochs_promised = manifest.epochs.size();
    ASSERT_TRUE(io::make_directories(device_, job_folder(directory_, manifest.generation)).ok());
    static_cast<void>(device_.remove(epoch_log_path(directory_, manifest.generation)));
    ASSERT_TRUE(write_generation(device_, directory_, manifest, manifest.continues).ok());
  }

  Manifest manifest;
  std::vector<Model> models;  // by epoch

 private:
  struct Part {
    std::unique_ptr<io::File> data;
    std::unique_ptr<io::File> index;
    BlockNumber end_block = {};
    uint64_t index_bytes = 0;
    std::unique_ptr<run::FooterBuilder> footer;
  };

  Part& part(PartitionNumber partition) {
    Part& part = parts_[log(partition)];
    if (!part.data) {
      part.data = device_.open(data_log_path(directory_, log(partition)), io::OpenMode::kCreate).value();
      part.index = device_.open(index_log_path(directory_, log(partition)), io::OpenMode::kCreate).value();
      part.footer = std::make_unique<run::FooterBuilder>(partition);
    }
    return part;
  }

  // What an uncommitted epoch leaves: its blocks are overwritten by the next epoch, its segments and footer
  // stay as dead bytes in the index log, and the next footer does not list them.
  void write_partition(PartitionNumber partition, const std::vector<Records>& ways, const EpochEntry& epoch,
                       const Shape& shape) {
    Part& out = part(partition);
    const BlockNumber first_block = out.end_block;
    run::FooterBuilder footer = *out.footer;
    uint32_t run_number = 0;
    for (uint32_t way = 0; way < ways.size(); ++way) {
      std::vector<run::RunSketch> sketches;
      const auto end_segment = [&] {
        run::SegmentParams params;
        params.partition = partition;
        params.epoch = epoch.epoch;
        params.epoch_id = epoch.epoch_id;
        params.way = static_cast<uint16_t>(way);
        params.ways = static_cast<uint16_t>(ways.size());
        params.data_block = first_block;
        params.data_blocks = static_cast<uint32_t>(out.end_block - first_block);
        if (shape.first_run_indexed_twice && sketches.size() > 1) sketches[1] = sketches[0];
        run::SegmentBuilder builder(sketches, params);
        const uint64_t offset = out.index_bytes = run::segment_offset(out.index_bytes, builder.size_bytes());
        drain(builder, *out.index, &out.index_bytes);
        ASSERT_TRUE(footer.add(builder.record(offset)).ok());
        sketch_memory_.clear();
        sketches.clear();
      };
      for (size_t at = 0; at < ways[way].size(); at += shape.records_per_run) {
        if (sketches.size() == shape.runs_per_segment) end_segment();
        memtable_.clear();
        for (size_t i = at; i < std::min(ways[way].size(), at + shape.records_per_run); ++i)
          append(ways[way][i]);
        run::RunBuilder builder(memtable_, scratch_, sketch_memory_,
                                {.partition = partition,
                                 .first_block = out.end_block,
                                 .epoch = epoch.epoch,
                                 .epoch_id = epoch.epoch_id,
                                 .way = static_cast<uint16_t>(way),
                                 .run = run_number++,
                                 .ranks = manifest.jobs.back().ranks,
                                 .ways = static_cast<uint16_t>(ways.size())});
        uint64_t bytes = out.end_block * run::kBlockBytes;
        drain(builder, *out.data, &bytes);
        out.end_block = BlockNumber(bytes / run::kBlockBytes);
        sketches.push_back(builder.sketch());
      }
      end_segment();
    }
    const bool committed = shape.fate == Shape::kCommitted;
    const std::string page = footer.encode(out.index_bytes);
    ASSERT_TRUE(out.index->pwrite(out.index_bytes, page).ok());
    out.index_bytes += page.size();
    if (committed) {
      *out.footer = std::move(footer);
    } else {
      out.end_block = first_block;
    }
  }

  void append(const std::pair<std::string, std::string>& record) {
    std::string encoded(run::encoded_record_bytes(record.first.size(), record.second.size()), '\0');
    run::encode_record(record.first, record.second, encoded.data());
    run::RecordView view;
    ASSERT_EQ(run::parse_record(encoded, &view), run::RecordParse::kOk);
    const JobEntry& job = manifest.jobs.back();
    const HashChoice home = choose(hash_bytes(record.first), job.ranks);
    ASSERT_TRUE(memtable_.append(choose(home.rest, job.ways).rest, view))
        << "memtable of the test is too small";
  }

  template <class Builder>
  static void drain(Builder& builder, io::File& file, uint64_t* at) {
    std::vector<char> buffer(16 * run::kBlockBytes);
    while (const size_t produced = builder.fill(buffer)) {
      ASSERT_TRUE(file.pwrite(*at, {buffer.data(), produced}).ok());
      *at += produced;
    }
  }

  io::Device& device_;
  const std::string directory_;
  run::Memtable memtable_;
  run::RunScratch scratch_;
  run::SketchArena sketch_memory_;
  std::map<LogId, Part> parts_;
  uint64_t epochs_begun_ = 0;
};

// `count` records of keys 0..keys-1 at random; every value names its place in the list.
inline Records numbered_records(Rng& rng, size_t count, uint64_t keys, size_t value_bytes_max,
                                bool uniform = false) {
  Records records;
  for (size_t i = 0; i < count; ++i) {
    std::string value = fmt::format("{:08}/", i);
    if (!uniform) value.resize(rng.below(value_bytes_max + 1), 'v');
    const uint64_t key = rng.below(keys);
    records.emplace_back(uniform ? fmt::format("{:08}", key) : text_key(key), value);
  }
  return records;
}

}  // namespace swale::imd::test
