#include "imd/check/repair_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/coding.h"
#include "imd/read/reader_values.h"
#include "run/block.h"
#include "run/value_pages.h"

namespace swale::imd {
namespace {

constexpr uint64_t kChunkBlocks = 256;

// Takes one block after the other.
class InventoryTaker {
 public:
  InventoryTaker(PartitionNumber partition, std::string path)
      : partition_(partition), path_(std::move(path)) {}

  Status take(BlockNumber number, Bytes block) {
    const bool zeros = std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; });
    if (!zeros) found_.end_block = number + 1;
    if (cursor_) {
      const Status fed = feed(block);
      if (fed.ok()) return {};
      give_up(fed);
    }
    // What is no part of the run before may be the first block of one.
    const auto header = run::decode_run_header(block, partition_, number, path_);
    if (header.ok()) {
      run_ = {.header = *header, .first_block = number};
      cursor_.emplace(partition_, number, path_, header->epoch_id);
      if (const Status fed = feed(block); !fed.ok()) give_up(fed);
      return {};
    }
    return header.status().code() == Code::kUnsupported ? header.status() : Status();
  }

  // Whether a run has begun and not ended: then every block is taken.
  bool in_run() const { return cursor_.has_value(); }

  DataInventory finish(uint64_t blocks) {
    if (cursor_) give_up(cursor_->finish());
    found_.blocks = blocks;
    return std::move(found_);
  }

 private:
  Status feed(Bytes block) {
    SWALE_RETURN_IF_ERROR(cursor_->feed(block, [this](const run::ScannedRecord& record) {
      run_.digest += record.digest();
      if (record.large) {
        const auto large = run::decode_stored_value(record.run->values, record.value, path_);
        run_.large.add({1, large.ok() ? large->pointer.value_bytes : 0});
      }
      return true;
    }));
    if (cursor_->between_runs()) {
      found_.runs.push_back(run_);
      cursor_.reset();
    }
    return {};
  }

  void give_up(const Status& why) {
    ++found_.torn_runs;
    if (found_.first_damage.ok()) found_.first_damage = why;
    cursor_.reset();
  }

  const PartitionNumber partition_;
  const std::string path_;
  DataInventory found_;
  FoundRun run_;
  std::optional<run::RunCursor> cursor_;
};

// Where the magic of a value's head stands next; `size` if nowhere.
Result<uint64_t> next_value_magic(io::File& values, uint64_t from, uint64_t size) {
  char magic[4];
  put_u32(magic, run::kValueMagic);
  std::vector<char> chunk(kChunkBlocks * run::kBlockBytes);
  while (from < size && size - from >= sizeof(magic)) {
    // The magic may end in what follows a hole.
    const uint64_t next = values.next_data(from);
    if (next >= size) return size;
    if (next - from >= sizeof(magic)) {
      from = next - sizeof(magic) + 1;
      continue;
    }
    const MutableBytes out(chunk.data(), std::min<uint64_t>(chunk.size(), size - from));
    SWALE_RETURN_IF_ERROR(io::read_exactly(values, from, out));
    const size_t at = view(out).find({magic, sizeof(magic)});
    if (at != Bytes::npos) return from + at;
    from += out.size() - sizeof(magic) + 1;
  }
  return size;
}

}  // namespace

Result<DataInventory> take_inventory(io::File& data, PartitionNumber partition,
                                     const InventoryProgressFn& progress) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, data.size());
  const uint64_t blocks = bytes / run::kBlockBytes;
  std::vector<char> chunk(kChunkBlocks * run::kBlockBytes);
  InventoryTaker taker(partition, data.path());
  uint64_t count = 0;
  for (BlockNumber first(0); first < blocks; first += count) {
    const uint64_t hole_end = std::min(data.next_data(first * run::kBlockBytes) / run::kBlockBytes, blocks);
    if (!taker.in_run() && hole_end > first) {
      count = hole_end - first;
      if (progress) progress(count * run::kBlockBytes);
      continue;
    }
    count = std::min(kChunkBlocks, blocks - first);
    const MutableBytes out(chunk.data(), count * run::kBlockBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(data, first * run::kBlockBytes, out));
    for (uint64_t i = 0; i < count; ++i)
      SWALE_RETURN_IF_ERROR(taker.take(first + i, view(out.subspan(i * run::kBlockBytes, run::kBlockBytes))));
    if (progress) progress(out.size());
  }
  return taker.finish(blocks);
}

Result<std::vector<FoundValues>> take_value_inventory(io::File& values, PartitionNumber writer) {
  std::vector<FoundValues> found;
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, values.size());
  for (uint64_t at = 0; at < size;) {
    const Result<run::ValueHead> head = read_value_head(values, writer, at);
    if (!head.ok() || head->end_offset() > size) {
      if (!head.ok() && head.status().code() != Code::kCorruption) return head.status();
      SWALE_ASSIGN_OR_RETURN(at, next_value_magic(values, at + 1, size));
      continue;
    }
    if (found.empty() || found.back().epoch_id != head->epoch_id)
      found.push_back({head->epoch, head->epoch_id, {.offset = at, .bytes = 0, .values = 0}});
    at = head->end_offset();
    run::ValueRange& range = found.back().range;
    range.bytes = at - range.offset;
    const Status whole = check_value(values, *head, [](uint64_t) {});
    if (!whole.ok() && whole.code() != Code::kCorruption) return whole;
    range.values += whole.ok() ? 1 : 0;
  }
  return found;
}

// The value that began last before pages that are not whole is gone, once, however many of its pages are.
Result<std::vector<FoundValues>> take_page_inventory(io::File& pages, PartitionNumber writer) {
  std::vector<FoundValues> found;
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, pages.size());
  const uint64_t count = size / run::kValuePageBytes;
  std::vector<char> chunk(kChunkBlocks * run::kValuePageBytes);
  uint64_t chunk_pages = 0;
  bool last_counted = false;  // the last value that began, among range.values
  for (uint64_t first = 0; first < count; first += chunk_pages) {
    chunk_pages = std::min(kChunkBlocks, count - first);
    const MutableBytes out(chunk.data(), chunk_pages * run::kValuePageBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(pages, first * run::kValuePageBytes, out));
    for (uint64_t i = 0; i < chunk_pages; ++i) {
      const Bytes page = view(out).substr(i * run::kValuePageBytes, run::kValuePageBytes);
      if (!run::verify_value_page(page, writer, first + i, pages.path()).ok()) continue;
      const run::ValuePageTrailer trailer = run::value_page_trailer(page);
      const uint64_t offset = (first + i) * run::kValuePageBytes;
      if (found.empty() || found.back().epoch_id != trailer.epoch_id) {
        found.push_back({trailer.epoch, trailer.epoch_id, {.offset = offset, .bytes = 0, .values = 0}});
        last_counted = false;
      }
      run::ValueRange& range = found.back().range;
      const bool gap = range.end_offset() != offset;
      if (gap && std::exchange(last_counted, false)) --range.values;
      range.values += trailer.values;
      last_counted = last_counted || trailer.values > 0;
      range.bytes = offset + run::kValuePageBytes - range.offset;
    }
  }
  return found;
}

Status walk_run(io::File& data, const FoundRun& found, const RunRecordFn& record, const RunBlocksFn& blocks) {
  std::vector<char> chunk(std::min<uint64_t>(kChunkBlocks, found.header.blocks) * run::kBlockBytes);
  run::RunCursor cursor(found.header.partition, found.first_block, data.path(), found.header.epoch_id);
  for (BlockNumber at = found.first_block; at < found.end_block();) {
    const uint64_t count = std::min(kChunkBlocks, found.end_block() - at);
    const MutableBytes out(chunk.data(), count * run::kBlockBytes);
    SWALE_RETURN_IF_ERROR(io::read_exactly(data, at * run::kBlockBytes, out));
    SWALE_RETURN_IF_ERROR(cursor.feed(view(out), [&](const run::ScannedRecord& scanned) {
      if (record) record(scanned);
      return true;
    }));
    if (blocks) blocks(view(out));
    at += count;
  }
  return cursor.finish();
}

Status copy_run(io::File& from, const FoundRun& found, io::File& to, BlockNumber first_block) {
  const uint32_t seed = run::epoch_seed(found.header.partition, found.header.epoch_id);
  BlockNumber at = first_block;
  Status written;
  SWALE_RETURN_IF_ERROR(walk_run(from, found, {}, [&](Bytes blocks) {
    std::string copy(blocks);
    for (size_t i = 0; i < copy.size(); i += run::kBlockBytes) {
      const run::BlockTrailer trailer = run::block_trailer(copy.data() + i);
      run::seal_block(copy.data() + i, seed, at + i / run::kBlockBytes, trailer.first_ordinal, trailer.count,
                      trailer.first_start);
    }
    if (written.ok()) written = to.pwrite(at * run::kBlockBytes, copy);
    at += copy.size() / run::kBlockBytes;
  }));
  return written;
}

Status copy_file_bytes(io::File& from, uint64_t first, uint64_t bytes, io::File& to) {
  std::vector<char> chunk(std::min<uint64_t>(bytes, kChunkBlocks * run::kBlockBytes));
  for (uint64_t done = 0; done < bytes; done += chunk.size()) {
    const MutableBytes part(chunk.data(), std::min<uint64_t>(chunk.size(), bytes - done));
    SWALE_RETURN_IF_ERROR(io::read_exactly(from, first + done, part));
    SWALE_RETURN_IF_ERROR(to.pwrite(first + done, view(part)));
  }
  return {};
}

}  // namespace swale::imd
