// Partition: which server owns which bytes of which file, and how requests that span servers are split.
//
// A file is cut into ranges of `range_bytes`. Range r of a file belongs to server (first + r) mod servers,
// where the first is chosen by the file's id. So each server has an equal share of every large file, and
// small files spread. Attributes are kept by the file's root, which is chosen by the file's name: whoever has
// a name needs no id to ask.
//
// An extent inside one range goes to its owner. Everything else is a run, and goes whole to each server that
// owns a range which the run touches. A server answers for ranges that it owns and for no others, so bytes
// that were stored by several servers are answered once.
//
// Threads: immutable. Errors: check() says which numbers cannot work; the rest cannot fail, but for
// std::bad_alloc.
#pragma once

#include <cassert>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "meta/index/run_detector.h"
#include "meta/index/shard.h"

namespace swale::meta {

using Server = uint32_t;

inline constexpr uint32_t kServersMax = 1 << 16;
inline constexpr uint64_t kRangeBytesMin = 4096;

// One server's share of a put, in the order of the whole put.
struct ServerPut {
  Server server = 0;
  DetectedBatch items;
};

class Partition {
 public:
  static Status check(uint32_t servers, uint64_t range_bytes);
  // Requires numbers that pass check().
  Partition(uint32_t servers, uint64_t range_bytes) : servers_(servers), range_bytes_(range_bytes) {
    assert(check(servers, range_bytes).ok());
  }

  uint32_t servers() const { return servers_; }
  uint64_t range_bytes() const { return range_bytes_; }
  Server root_of(std::string_view name) const;
  Server first_of(const FileId& file) const;
  Server server_of(const FileId& file, uint64_t offset) const {
    return static_cast<Server>((first_of(file) + offset / range_bytes_) % servers_);
  }

  // The servers that own a range which the run touches, each once. May name others if the run has more than
  // 64 blocks a server and meets few of them: what they store is never asked for.
  void owners_of(const FileId& file, const Run& run, std::vector<Server>* out) const;

  // Divides a put among its servers. Requires valid runs and extents.
  std::vector<ServerPut> split(const FileId& file, const DetectedBatch& batch) const;

 private:
  const uint32_t servers_;
  const uint64_t range_bytes_;
};

// The ranges of one server, for the scans of its shard.
class ServerRanges final : public Ownership {
 public:
  ServerRanges(const Partition* partition, Server server) : partition_(*partition), server_(server) {}
  std::pair<uint64_t, uint64_t> next_owned(const FileId& file, uint64_t from) const override;

 private:
  const Partition& partition_;
  const Server server_;
};

// Joins the answers of several servers for one range: sorted by offset, pieces that continue each other
// joined.
void merge_extents(std::vector<Extent>* pieces);

}  // namespace swale::meta
