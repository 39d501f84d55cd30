// The patterns of bench-meta: who writes which segment, in which order, and what a get must answer.
//
// A server sees batches of 64 k entries: 16 messages of 4,096 entries, each from another client (metakv, IV:
// clients write at the same time, so that neighbours in the file arrive far apart).
//   strided   16 clients, 1 KiB each in turn (IOR)             1024 clients with --clients 1024
//   tile      4 x 4 tiles, rows of 64 elements of 4 KiB (MPI-Tile-IO)
//   btio      q x q processes with diagonal cells; lines of a cell are the entries (class E: q = 20, 1020^3
//             points of 40 bytes)
//   segmented each client a contiguous part
//   random    1 KiB, every segment written once, by a random client
//
// Threads: none of its own; a Workload is immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "meta/index/types.h"

namespace swale::bench {

inline constexpr size_t kMessage = 4096;
inline constexpr size_t kBatch = 65536;

class Workload {
 public:
  Workload(const std::string& pattern, uint64_t entries, uint64_t clients);

  uint64_t entries() const { return entries_; }
  uint64_t segment() const { return segment_; }  // bytes of every entry
  uint64_t clients() const { return clients_; }
  uint64_t batches() const { return (messages_.size() + kBatch / kMessage - 1) / (kBatch / kMessage); }

  // Message m of batch b: consecutive entries of one client, in the order in which it writes. Empty beyond
  // the end.
  void message(uint64_t batch, uint64_t m, std::vector<meta::Extent>* out) const;
  // 4,096 entries to get: the same for patterns, random ones of all for `random`.
  void gets(uint64_t batch, uint64_t m, std::vector<meta::Extent>* out) const;

 private:
  struct Message {
    uint32_t client;
    uint64_t first;
    uint32_t count;
  };
  meta::Extent entry(uint32_t client, uint64_t number) const;

  std::string pattern_;
  uint64_t entries_ = 0, clients_ = 0, segment_ = 1024, q_ = 0, line_ = 0, points_ = 0;
  std::vector<Message> messages_;
  std::vector<uint32_t> permutation_, owner_place_;  // random: segment of an entry; entry of a segment
};

}  // namespace swale::bench
