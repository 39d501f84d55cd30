// Striping: where the bytes of a striped file are: on which server, and where in that server's part of the
// file.
//
// Stripe k is on server (first + k) mod n, behind that server's earlier stripes. So a part has no holes that
// the file has not, and what a server has of any range of the file is one range of its part.
//
// Threads: values. Limits: offsets and sizes to 2^48 (tier::kFileBytesMax).
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::iond {

inline constexpr uint64_t kStripeBytesMin = 64 * kKiB;
inline constexpr uint64_t kStripeBytesMax = 4 * kMiB;
inline constexpr uint32_t kServersMax = 4096;

struct Striping {
  uint64_t stripe_bytes = kMiB;
  uint32_t servers = 1;
  uint32_t first = 0;  // the server of the first stripe

  bool operator==(const Striping&) const = default;

  Status check() const;
  // How many of the file's first `offset` bytes `server` has.
  uint64_t part_bytes(uint32_t server, uint64_t offset) const;
  // The place in the file of byte `at` of the server's part.
  uint64_t place_of(uint32_t server, uint64_t at) const;
  // The least size of the file of which the server has so many bytes.
  uint64_t end_of(uint32_t server, uint64_t part_size) const;
  // Calls act(at, place, length) for each piece of [at, at + length) of the server's part that is one piece
  // of the file.
  template <class Act>
  void for_each_piece(uint32_t server, uint64_t at, uint64_t length, const Act& act) const {
    while (length > 0) {
      const uint64_t left = stripe_bytes - at % stripe_bytes;
      const uint64_t piece = left < length ? left : length;
      act(at, place_of(server, at), piece);
      at += piece;
      length -= piece;
    }
  }

 private:
  uint32_t turn_of(uint32_t server) const { return (server + servers - first) % servers; }
};

}  // namespace swale::iond
