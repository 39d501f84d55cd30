#include <algorithm>
#include <optional>
#include <vector>

#include "run/block.h"
#include "run/run_cursor.h"
#include "run/value_format.h"
#include "run/value_pages.h"
#include "tools/bytes_text.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

constexpr uint64_t kChunkBlocks = 256;

const char* home_name(run::HomeRule rule) {
  switch (rule) {
    case run::HomeRule::kHash:
      return "hash";
    case run::HomeRule::kPartitioner:
      return "partitioner";
    case run::HomeRule::kWriter:
      return "writer";
  }
  return "unknown";
}

const char* kind_name(run::RunKind kind) {
  return kind == run::RunKind::kUniform ? "uniform" : kind == run::RunKind::kVariable ? "variable" : "packed";
}

class DataLogDump {
 public:
  DataLogDump(PartitionNumber partition, std::string path, DumpOutput* out)
      : partition_(partition), path_(std::move(path)), out_(*out) {}

  void take(BlockNumber number, Bytes block) {
    if (cursor_) {
      if (feed(number, block)) return;
      cursor_.reset();
    }
    const auto header = run::decode_run_header(block, partition_, number, path_);
    if (header.ok()) {
      end_gap(number);
      show(*header, number);
      cursor_.emplace(partition_, number, path_);
      if (!feed(number, block)) cursor_.reset();
      return;
    }
    const bool zeros = std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; });
    if (gap_blocks_ > 0 && zeros != gap_zeros_) end_gap(number);
    if (gap_blocks_++ == 0) gap_cause_ = header.status();
    gap_zeros_ = zeros;
  }

  // Whether a run has begun and not ended: it takes every block.
  bool in_run() const { return cursor_.has_value(); }
  void skip_hole(BlockNumber number, uint64_t blocks) {
    if (gap_blocks_ > 0 && !gap_zeros_) end_gap(number);
    gap_zeros_ = true;
    gap_blocks_ += blocks;
  }

  void finish(uint64_t blocks) {
    end_gap(blocks);
    if (!cursor_) return;
    if (const Status status = cursor_->finish(); !status.ok()) out_.damage(blocks * run::kBlockBytes, status);
  }

 private:
  void show(const run::RunHeader& header, BlockNumber number) {
    out_.line({{"what", "run"},
               {"offset", number * run::kBlockBytes},
               {"run", header.run},
               {"epoch", header.epoch.value()},
               {"epoch_id", hex16(header.epoch_id)},
               {"way", header.way},
               {"ranks", header.ranks},
               {"ways", header.ways},
               {"home", home_name(header.home)},
               {"kind", kind_name(header.kind)},
               {"values", header.values == run::ValueRule::kPaged ? "in pages" : "in records"},
               {"codec", codec_name(static_cast<Codec>(header.codec))},
               {"key_bytes", header.key_bytes},
               {"value_bytes", header.value_bytes},
               {"records", header.records},
               {"blocks", header.blocks},
               {"data_bytes", header.data_bytes},
               {"crc32c", fmt::format("{:08x}", header.crc32c)}});
  }

  // False: the block does not continue its run.
  bool feed(BlockNumber number, Bytes block) {
    std::vector<Json> records;
    const Status fed = cursor_->feed(block, [&](const run::ScannedRecord& record) {
      if (!out_.options().records) return true;
      if (record.large) return take_large(record, &records);
      records.push_back({{"what", "record"},
                         {"offset", record.block * run::kBlockBytes},
                         {"ordinal", record.ordinal},
                         {"key", show_bytes(record.key)},
                         {"bytes", record.value.size()},
                         {"value", show_value(record.value, out_.options().notation)}});
      return true;
    });
    if (!fed.ok()) {
      out_.damage(number * run::kBlockBytes, fed);
      return false;
    }
    const run::BlockTrailer trailer = run::block_trailer(block.data());
    out_.line({{"what", "block"},
               {"offset", number * run::kBlockBytes},
               {"first_ordinal", trailer.first_ordinal},
               {"count", trailer.count},
               {"first_start", trailer.first_start},
               {"crc32c", fmt::format("{:08x}", trailer.crc32c)}});
    for (const Json& record : records) out_.line(record);
    if (cursor_->between_runs()) cursor_.reset();
    return true;
  }

  bool take_large(const run::ScannedRecord& record, std::vector<Json>* records) {
    const auto large = run::decode_stored_value(record.run->values, record.value, path_);
    if (!large.ok()) {
      out_.damage(record.block * run::kBlockBytes, large.status());
      return true;
    }
    Json line = {{"what", "record"},
                 {"offset", record.block * run::kBlockBytes},
                 {"ordinal", record.ordinal},
                 {"key", show_bytes(record.key)},
                 {"bytes", large->pointer.value_bytes},
                 {"first_bytes", show_value(large->prefix, out_.options().notation)},
                 {"writer", large->pointer.writer.value()}};
    if (record.run->values == run::ValueRule::kPaged) {
      line["value_position"] = large->pointer.offset;
    } else {
      line["value_offset"] = large->pointer.offset;
      line["checksum"] = fmt::format("{:08x}", large->pointer.checksum);
    }
    records->push_back(std::move(line));
    return true;
  }

  std::string show_bytes(Bytes bytes) const { return tools::show(bytes, out_.options().notation); }

  void end_gap(uint64_t number) {
    if (gap_blocks_ == 0) return;
    const uint64_t offset = (number - gap_blocks_) * run::kBlockBytes;
    if (gap_zeros_) {
      out_.line({{"what", "zeros"}, {"offset", offset}, {"blocks", gap_blocks_}});
    } else {
      out_.line({{"what", "no-run"}, {"offset", offset}, {"blocks", gap_blocks_}});
      out_.damage(offset, gap_cause_);
    }
    gap_blocks_ = 0;
  }

  const PartitionNumber partition_;
  const std::string path_;
  DumpOutput& out_;
  std::optional<run::RunCursor> cursor_;
  uint64_t gap_blocks_ = 0;
  bool gap_zeros_ = false;
  Status gap_cause_;
};

}  // namespace

Status dump_data_log(io::Device& device, const std::string& path, PartitionNumber partition,
                     DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, file->size());
  const uint64_t blocks = bytes / run::kBlockBytes;
  std::vector<char> chunk(kChunkBlocks * run::kBlockBytes);
  DataLogDump dump(partition, path, out);
  uint64_t count = 0;
  for (BlockNumber first(0); first < blocks; first += count) {
    const uint64_t hole_end = std::min(file->next_data(first * run::kBlockBytes) / run::kBlockBytes, blocks);
    if (!dump.in_run() && hole_end > first) {
      count = hole_end - first;
      dump.skip_hole(first, count);
      continue;
    }
    count = std::min(kChunkBlocks, blocks - first);
    const MutableBytes part(chunk.data(), count * run::kBlockBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(*file, first * run::kBlockBytes, part));
    out->progress(first * run::kBlockBytes, bytes);
    for (uint64_t i = 0; i < count; ++i)
      dump.take(first + i, view(part.subspan(i * run::kBlockBytes, run::kBlockBytes)));
  }
  dump.finish(blocks);
  if (bytes % run::kBlockBytes != 0) {
    out->line({{"what", "rest"}, {"offset", blocks * run::kBlockBytes}, {"bytes", bytes % run::kBlockBytes}});
  }
  return {};
}

}  // namespace swale::tools
