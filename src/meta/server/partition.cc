#include "meta/server/partition.h"

#include <algorithm>
#include <cassert>

#include "base/hash.h"
#include "meta/index/lattice.h"

namespace swale::meta {

Status Partition::check(uint32_t servers, uint64_t range_bytes) {
  if (servers == 0 || servers > kServersMax) {
    return invalid_argument("{} metadata servers: expected 1 to {}", servers, kServersMax);
  }
  if (range_bytes < kRangeBytesMin || range_bytes > kOffsetEnd) {
    return invalid_argument("ranges of {} bytes: expected {} to 2^63", range_bytes, kRangeBytesMin);
  }
  return {};
}

Server Partition::root_of(std::string_view name) const {
  return choose(hash_bytes_seeded(name, 0x6d657461), servers_).index;
}

// Ids count on: they are mixed, so that they spread.
Server Partition::first_of(const FileId& file) const {
  char bytes[8];
  put_u64(bytes, file.high * 0x9e3779b97f4a7c15 ^ file.low);
  return choose(hash_eight_bytes(bytes), servers_).index;
}

void Partition::owners_of(const FileId& file, const Run& run, std::vector<Server>* out) const {
  assert(valid(run));
  const Server root = first_of(file);
  const uint64_t blocks = blocks_of(run);
  const auto mark = [&](uint64_t range, std::vector<bool>* seen) {
    const auto server = static_cast<Server>((root + range) % servers_);
    if ((*seen)[server]) return;
    (*seen)[server] = true;
    out->push_back(server);
  };
  const size_t before = out->size();
  std::vector<bool> seen(servers_);
  uint64_t at = run.offset;
  for (uint64_t step = 0; step < 64 * uint64_t{servers_}; ++step) {
    const uint64_t index = first_block_after(run, at);
    if (index >= blocks) return;
    const Extent block = block_at(run, index);
    const uint64_t first = std::max(block.offset, at) / range_bytes_;
    const uint64_t last = (block.offset + block.length - 1) / range_bytes_;
    for (uint64_t range = first; range <= last && range - first < servers_; ++range) mark(range, &seen);
    if (out->size() - before == servers_) return;
    at = (last + 1) * range_bytes_;
  }
  for (uint64_t range = 0; range < servers_; ++range) mark(range, &seen);
}

std::vector<ServerPut> Partition::split(const FileId& file, const DetectedBatch& batch) const {
  assert(batch.run_at.size() == batch.runs.size());
  std::vector<ServerPut> puts;
  std::vector<int32_t> place(servers_, -1);
  const auto put_of = [&](Server server) -> DetectedBatch& {
    if (place[server] < 0) {
      place[server] = static_cast<int32_t>(puts.size());
      puts.push_back({server, {}});
    }
    return puts[static_cast<size_t>(place[server])].items;
  };
  std::vector<Server> owners;
  const auto add_run = [&](const Run& run) {
    owners.clear();
    owners_of(file, run, &owners);
    for (const Server owner : owners) {
      DetectedBatch& items = put_of(owner);
      items.run_at.push_back(items.extents.size());
      items.runs.push_back(run);
    }
  };
  const auto add_extent = [&](const Extent& extent) {
    assert(extent.length > 0 && extent.length <= kOffsetEnd - extent.offset);
    const uint64_t range = extent.offset / range_bytes_;
    if ((extent.offset + extent.length - 1) / range_bytes_ != range) return add_run(run_of(extent));
    put_of(server_of(file, extent.offset)).extents.push_back(extent);
  };
  batch.for_each(add_extent, add_run);
  return puts;
}

std::pair<uint64_t, uint64_t> ServerRanges::next_owned(const FileId& file, uint64_t from) const {
  const uint64_t servers = partition_.servers();
  const uint64_t bytes = partition_.range_bytes();
  if (from >= kOffsetEnd) return {kOffsetEnd, kOffsetEnd};
  if (servers == 1) return {0, kOffsetEnd};
  const uint64_t range = from / bytes;
  const uint64_t owner = (partition_.first_of(file) + range) % servers;
  const uint64_t ahead = (server_ + servers - owner) % servers;
  // Ranges above the end: 2^63 / 4096 of them fit with ease.
  const uint64_t first = range + ahead;
  if (first > (kOffsetEnd - 1) / bytes) return {kOffsetEnd, kOffsetEnd};
  const uint64_t begin = first * bytes;
  assert(partition_.server_of(file, begin) == server_);
  return {begin, begin + std::min(bytes, kOffsetEnd - begin)};
}

void merge_extents(std::vector<Extent>* pieces) {
  if (pieces->empty()) return;
  std::sort(pieces->begin(), pieces->end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  size_t last = 0;
  for (size_t i = 1; i < pieces->size(); ++i) {
    Extent& before = (*pieces)[last];
    const Extent& piece = (*pieces)[i];
    if (continues(before, piece)) {
      before.length += piece.length;
    } else {
      (*pieces)[++last] = piece;
    }
  }
  pieces->resize(last + 1);
}

}  // namespace swale::meta
