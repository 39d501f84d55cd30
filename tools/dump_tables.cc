#include <algorithm>
#include <vector>

#include "source/table_reader.h"
#include "tools/bytes_text.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

struct FoundTable {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  source::TableTrailer trailer;
};

// The table that ends at `end` of the file.
Result<FoundTable> table_before(io::File& file, uint64_t end) {
  const std::string where = fmt::format("{}, table before {}", file.path(), end);
  if (end < source::kTrailerBytes) return corruption("{}: no table ends there", where);
  std::string tail(source::kTrailerBytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, end - tail.size(), tail));
  FoundTable found;
  SWALE_ASSIGN_OR_RETURN(found.trailer, source::decode_trailer(tail, where));
  const uint64_t tail_bytes = source::kTrailerBytes + found.trailer.index_bytes();
  if (tail_bytes > end) return corruption("{}: its index would begin before the file", where);
  tail.resize(tail_bytes);
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, end - tail_bytes, tail));
  // The last entry of the index says where the shards end.
  found.bytes = get_u32(tail.data() + found.trailer.index_bytes() - sizeof(uint32_t)) + tail_bytes;
  if (found.bytes > end) return corruption("{}: it would begin before the file", where);
  found.offset = end - found.bytes;
  SWALE_RETURN_IF_ERROR(source::TableIndex::decode(tail, found.bytes, where).status());
  return found;
}

}  // namespace

// Only a table's end says where it begins: they are found from the last one on. What lies before a damaged
// one is not found.
Status dump_tables(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  std::vector<FoundTable> tables;
  Status damage;
  uint64_t end = size;
  while (end > 0 && damage.ok()) {
    Result<FoundTable> table = table_before(*file, end);
    damage = table.status();
    if (!table.ok()) break;
    end = table->offset;
    tables.push_back(std::move(*table));
  }
  if (!damage.ok()) out->damage(end, damage);
  std::reverse(tables.begin(), tables.end());
  for (const FoundTable& table : tables) {
    out->progress(table.offset, size);
    const source::TableParams& params = table.trailer.params;
    out->line({{"what", "table"},
               {"offset", table.offset},
               {"bytes", table.bytes},
               {"epoch", params.epoch.value()},
               {"table_id", hex16(params.table_id)},
               {"sources", params.sources},
               {"fingerprint_bits", params.fingerprint_bits},
               {"shards", table.trailer.shard_count},
               {"keys", table.trailer.keys},
               {"pairs", table.trailer.pairs}});
    const auto reader = source::TableReader::open(*file, table.offset, table.bytes);
    const Status whole = reader.ok() ? reader->verify() : reader.status();
    if (!whole.ok()) out->damage(table.offset, whole);
  }
  return {};
}

}  // namespace swale::tools
