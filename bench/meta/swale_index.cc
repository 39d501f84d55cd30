// Swale's segment index as a store of the bench: the client's run detection, the shard, and what turns
// answers into one place for each get. All of it is on one thread, so that its CPU time is that of client and
// server together.
#include <fmt/format.h>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/meta/index_store.h"
#include "io/posix_device.h"
#include "meta/index/run_detector.h"
#include "meta/index/shard.h"

namespace swale::bench {
namespace {

class SwaleIndex final : public IndexStore {
 public:
  SwaleIndex(bool detect, meta::BlockCodec codec, bool cluster) : detect_(detect) {
    options_.codec = codec;
    options_.cluster_reads = cluster;
  }

  void open(const std::string& path, bool) override {
    device_ = std::make_unique<io::PosixDevice>();
    options_.directory = path;
    auto shard = meta::Shard::open(*device_, options_, &recovery_);
    check(shard.status());
    shard_ = *std::move(shard);
  }

  void put(std::span<const meta::Extent> message) override {
    meta::Put put{kBenchFile, message, {}, {}};
    if (detect_) {
      batch_.clear();
      detector_.add(message, &batch_);
      detector_.finish(&batch_);
      put = {kBenchFile, batch_.extents, batch_.runs, batch_.run_at};
    }
    while (!shard_->accepts()) background();
    const auto group = shard_->put({1, ++number_}, std::span(&put, 1));
    check(group.status());
  }

  void end_batch() override {
    check(shard_->commit());
    background();
  }

  void drain() override { check(shard_->drain()); }

  void get(Messages messages, std::vector<meta::Place>* out) override {
    // Each client detects runs in what it asks for; the server answers the extents of all clients together.
    batches_.resize(messages.size());
    ranges_.clear();
    for (size_t m = 0; m < messages.size(); ++m) detect_queries(messages[m], &batches_[m]);
    if (!ranges_.empty()) check(shard_->lookup(ranges_, size_t{1} << 30, &found_));
    size_t extent = 0;
    for (size_t m = 0; m < messages.size(); ++m) {
      const size_t first = out->size();
      out->resize(first + messages[m].size(), meta::Place{~0u, 0});
      if (!messages[m].empty()) answer(batches_[m], messages[m][0].length, out->data() + first, &extent);
    }
  }

  nlohmann::json about() override {
    const meta::ShardState state = shard_->state();
    const meta::ShardCounters& counters = shard_->counters();
    return {{"runs", state.runs},
            {"run_layers", state.run_layers_max},
            {"entries", state.filed_entries + state.compressed_entries + state.buffered_entries},
            {"index_memory_bytes", state.index_memory_bytes},
            {"buffer_memory_bytes", state.buffer_memory_bytes},
            {"file_bytes", state.file_bytes},
            {"snapshot_bytes", state.snapshot_bytes},
            {"log_bytes_written", counters.log_bytes},
            {"flushed_bytes", counters.flushed_bytes},
            {"merged_bytes", counters.merged_bytes},
            {"blocks_copied", counters.blocks_copied},
            {"reads", counters.reads},
            {"read_bytes", counters.read_bytes},
            {"blocks_wanted", counters.blocks_wanted},
            {"blocks_read", counters.blocks_read},
            {"recovered_groups", recovery_.groups},
            {"recovered_entries", recovery_.entries}};
  }

  uint64_t overlap() override {
    const meta::ShardState state = shard_->state();
    return state.layers + state.run_layers_max;
  }

  void close() override { shard_.reset(); }

 private:
  void background() {
    while (auto work = shard_->next_background()) {
      work->run();
      check(shard_->finish(std::move(work)));
    }
  }

  void detect_queries(const std::vector<meta::Extent>& message, meta::DetectedBatch* batch) {
    batch->clear();
    // A detector joins what continues in file and log: the offset stands for the address.
    queries_.assign(message.begin(), message.end());
    for (meta::Extent& query : queries_) query.place = {0, query.offset};
    if (detect_) {
      detector_.add(queries_, batch);
      detector_.finish(batch);
    } else {
      batch->extents = queries_;
    }
    for (const meta::Extent& query : batch->extents)
      ranges_.push_back({kBenchFile, query.offset, query.length});
  }

  void answer(const meta::DetectedBatch& batch, uint64_t segment, meta::Place* places, size_t* extent) {
    batch.for_each(
        [&](const meta::Extent& query) {
          for (size_t i = *extent == 0 ? 0 : found_.ends[*extent - 1]; i < found_.ends[*extent]; ++i)
            fill(found_.extents[i], query.offset, segment, places);
          ++*extent;
          places += query.length / segment;
        },
        [&](const meta::Run& query) {
          answer_.clear();
          check(shard_->lookup_runs(kBenchFile, std::span(&query, 1), 1 << 20, &answer_, nullptr));
          for (const meta::Run& part : answer_) fill_run(query, part, segment, places);
          places += meta::blocks_of(query) * (query.length / segment);
        });
  }

  static void fill(const meta::Extent& part, uint64_t begin, uint64_t segment, meta::Place* places) {
    meta::Place* to = places + (part.offset - begin) / segment;
    for (uint64_t done = 0; done < part.length; done += segment)
      *to++ = {part.place.log, part.place.address + done};
  }

  // The answer's blocks, each at the gets that it answers. Both ascend.
  static void fill_run(const meta::Run& query, const meta::Run& part, uint64_t segment, meta::Place* places) {
    const uint64_t each = query.length / segment;
    const bool same =
        part.offset == query.offset && part.length == query.length && part.levels == query.levels;
    bool whole = same;
    for (uint32_t l = 0; l < query.levels && whole; ++l)
      whole = part.level[l].count == query.level[l].count && part.level[l].stride == query.level[l].stride;
    if (whole) {
      fill_level(part, part.levels, part.place, segment, &places);
      return;
    }
    const uint64_t blocks = meta::blocks_of(part);
    for (uint64_t i = 0; i < blocks; ++i) {
      const meta::Extent block = meta::block_at(part, i);
      const uint64_t number = meta::first_block_after(query, block.offset);
      fill(block, meta::block_at(query, number).offset, segment, places + number * each);
    }
  }
  static void fill_level(const meta::Run& run, uint32_t levels, meta::Place place, uint64_t segment,
                         meta::Place** to) {
    if (levels == 0) {
      for (uint64_t done = 0; done < run.length; done += segment)
        *(*to)++ = {place.log, place.address + done};
      return;
    }
    const meta::Level level = run.level[levels - 1];
    if (levels == 1 && run.length == segment) {
      for (uint64_t i = 0; i < level.count; ++i, place.address += level.address_stride) *(*to)++ = place;
      return;
    }
    for (uint64_t i = 0; i < level.count; ++i, place.address += level.address_stride)
      fill_level(run, levels - 1, place, segment, to);
  }

  const bool detect_;
  meta::ShardOptions options_;
  std::unique_ptr<io::PosixDevice> device_;
  std::unique_ptr<meta::Shard> shard_;
  meta::RecoveryReport recovery_;
  meta::RunDetector detector_;
  meta::DetectedBatch batch_;
  std::vector<meta::DetectedBatch> batches_;
  std::vector<meta::Extent> queries_;
  std::vector<meta::Range> ranges_;
  std::vector<meta::Run> answer_;
  meta::Found found_;
  uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<IndexStore> make_swale_index(const std::string& name) {
  using meta::BlockCodec;
  if (name == "swale") return std::make_unique<SwaleIndex>(true, BlockCodec::kAuto, true);
  if (name == "swale-no-runs") return std::make_unique<SwaleIndex>(false, BlockCodec::kAuto, true);
  if (name == "swale-no-clusters") return std::make_unique<SwaleIndex>(false, BlockCodec::kAuto, false);
  const std::pair<const char*, BlockCodec> codecs[] = {{"swale-frame", BlockCodec::kFrame},
                                                       {"swale-zstd", BlockCodec::kDeltaZstd}};
  for (const auto& [known, codec] : codecs) {
    if (name == known) return std::make_unique<SwaleIndex>(false, codec, true);
  }
  return nullptr;
}

}  // namespace swale::bench
