#include "imd/reader_scan.h"

#include <algorithm>
#include <vector>

namespace swale::imd {

Status scan_epoch(const PartitionLogs& logs, const EpochEntry& epoch, const ReaderOptions& options,
                  ReadCounters& counters, const ScanFn& fn, bool* stopped) {
  uint64_t expected = 0;
  for (const run::SegmentRecord& segment : logs.segments_of(epoch.epoch)) expected += segment.records;
  const PartitionLogs::BlockRange blocks = logs.blocks_of(epoch.epoch);
  run::RunCursor cursor(logs.partition, blocks.first, logs.data->path(), epoch.epoch_id);
  const uint64_t chunk_blocks = std::max<uint64_t>(options.scan_chunk_bytes / run::kBlockBytes, 1);
  std::vector<char> chunk(std::min(chunk_blocks, blocks.count) * run::kBlockBytes);
  ReadQueue reads(options.reads_in_flight_max);
  for (uint64_t done = 0; done < blocks.count && !cursor.stopped();) {
    const uint64_t count = std::min(chunk_blocks, blocks.count - done);
    const MutableBytes out(chunk.data(), count * run::kBlockBytes);
    reads.add(*logs.data, (blocks.first + done) * run::kBlockBytes, out, 0);
    SWALE_RETURN_IF_ERROR(reads.finish());
    counters.reads.add();
    counters.bytes_read.add(out.size());
    SWALE_RETURN_IF_ERROR(cursor.feed(view(out), fn));
    done += count;
  }
  *stopped = cursor.stopped();
  SWALE_RETURN_IF_ERROR(cursor.finish());
  if (!*stopped && cursor.records() != expected) {
    return corruption("{}: epoch {} has {} records from offset {} on, {} has {}; run `swale verify`",
                      logs.data->path(), epoch.epoch, cursor.records(), blocks.first * run::kBlockBytes,
                      logs.index->path(), expected);
  }
  return {};
}

}  // namespace swale::imd
