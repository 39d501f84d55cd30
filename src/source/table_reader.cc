#include "source/table_reader.h"

#include <algorithm>

#include "base/coding.h"

namespace swale::source {

void sort_candidates(std::vector<uint32_t>* candidates, size_t from) {
  const auto begin = candidates->begin() + static_cast<ptrdiff_t>(from);
  std::sort(begin, candidates->end());
  candidates->erase(std::unique(begin, candidates->end()), candidates->end());
}

Result<uint64_t> TableIndex::tail_bytes(Bytes trailer, uint64_t table_bytes, std::string_view where) {
  SWALE_ASSIGN_OR_RETURN(const TableTrailer decoded, decode_trailer(trailer, where));
  const uint64_t bytes = decoded.index_bytes() + kTrailerBytes;
  if (bytes > table_bytes) {
    return corruption("{}: an index of {} shards does not fit {} bytes", where, decoded.shard_count,
                      table_bytes);
  }
  return bytes;
}

Result<TableIndex> TableIndex::decode(Bytes tail, uint64_t table_bytes, std::string_view where) {
  if (tail.size() < kTrailerBytes) {
    return corruption("{}: an auxiliary table of {} bytes is cut off", where, tail.size());
  }
  TableIndex index;
  SWALE_ASSIGN_OR_RETURN(index.trailer_, decode_trailer(tail.substr(tail.size() - kTrailerBytes), where));
  const uint64_t index_bytes = index.trailer_.index_bytes();
  if (index_bytes + kTrailerBytes > tail.size() || tail.size() > table_bytes) {
    return corruption("{}: an index of {} shards does not fit {} bytes", where, index.trailer_.shard_count,
                      table_bytes);
  }
  const Bytes ends = tail.substr(tail.size() - kTrailerBytes - index_bytes, index_bytes);
  const uint64_t id = index.trailer_.params.table_id;
  if (const uint32_t found = index_crc(id, ends); found != index.trailer_.index_crc) {
    return corruption("{}: index of an auxiliary table: checksum {:08x}, expected {:08x}", where, found,
                      index.trailer_.index_crc);
  }
  uint64_t last = 0;
  index.ends_.reserve(index.trailer_.shard_count);
  for (size_t i = 0; i < index.trailer_.shard_count; ++i) {
    const uint32_t end = get_u32(ends.data() + 4 * i);
    if (end < last || end > table_bytes - index_bytes - kTrailerBytes) {
      return corruption("{}: index of an auxiliary table: shard {} ends at {}", where, i, end);
    }
    last = end;
    index.ends_.push_back(end);
  }
  return index;
}

ShardPlace TableIndex::place(uint32_t number) const {
  const uint64_t begin = number == 0 ? 0 : ends_[number - 1];
  return {number, begin, static_cast<uint32_t>(ends_[number] - begin)};
}

ShardPlace TableIndex::place_of(uint64_t kept) const {
  return place(shard_number(kept, trailer_.shard_bits));
}

Result<TableReader> TableReader::open(io::File& file, uint64_t offset, uint64_t bytes) {
  const std::string where = fmt::format("{}: offset {}", file.path(), offset);
  if (bytes < kTrailerBytes || bytes > kTableBytesMax) {
    return corruption("{}: an auxiliary table cannot have {} bytes", where, bytes);
  }
  std::string tail(std::min<uint64_t>(bytes, kTailBytes), '\0');
  Cost cost{1, tail.size()};
  SWALE_RETURN_IF_ERROR(io::read_exactly(file, offset + bytes - tail.size(), tail));
  SWALE_ASSIGN_OR_RETURN(
      const uint64_t needed,
      TableIndex::tail_bytes(Bytes(tail).substr(tail.size() - kTrailerBytes), bytes, where));
  if (needed > tail.size()) {
    tail.resize(needed);
    SWALE_RETURN_IF_ERROR(io::read_exactly(file, offset + bytes - needed, tail));
    cost = {2, cost.bytes + needed};
  }
  SWALE_ASSIGN_OR_RETURN(TableIndex index, TableIndex::decode(tail, bytes, where));
  return TableReader(file, offset, std::move(index), cost);
}

std::string TableReader::where() const { return fmt::format("{}: offset {}", file_->path(), offset_); }

Status TableReader::read_shard(uint32_t number, std::string* out) const {
  const ShardPlace place = index_.place(number);
  out->resize(place.bytes);
  return io::read_exactly(*file_, offset_ + place.offset, *out);
}

Result<Shard> TableReader::open_shard(Bytes bytes, uint32_t number) const {
  return Shard::open(bytes, trailer().params, trailer().shard_bits, number, where());
}

Status TableReader::candidates(uint64_t kept, std::vector<uint32_t>* out, Cost* cost) const {
  const size_t from = out->size();
  Status status = append_candidates(kept, out, cost);
  if (status.ok()) {
    sort_candidates(out, from);
    if (out->size() > from && out->back() >= trailer().params.sources) {
      status = corruption("{}: the auxiliary table names source {} of {}", where(), out->back(),
                          trailer().params.sources);
    }
  }
  if (!status.ok()) out->resize(from);
  return status;
}

Status TableReader::append_candidates(uint64_t kept, std::vector<uint32_t>* out, Cost* cost) const {
  const bool cuckoo = trailer().params.scheme == Scheme::kCuckoo;
  const uint32_t first = cuckoo ? 0 : index_.place_of(kept).number;
  const uint32_t end = cuckoo ? trailer().shard_count : first + 1;
  std::string bytes;
  for (uint32_t number = first; number < end; ++number) {
    SWALE_RETURN_IF_ERROR(read_shard(number, &bytes));
    if (cost != nullptr) *cost = {cost->reads + 1, cost->bytes + bytes.size()};
    SWALE_ASSIGN_OR_RETURN(const Shard shard, open_shard(bytes, number));
    shard.candidates(kept, out);
  }
  return ok_status();
}

Status TableReader::verify() const {
  std::string bytes;
  for (uint32_t number = 0; number < trailer().shard_count; ++number) {
    SWALE_RETURN_IF_ERROR(read_shard(number, &bytes));
    SWALE_RETURN_IF_ERROR(open_shard(bytes, number).status());
  }
  return ok_status();
}

}  // namespace swale::source
