// Arena: the memory of one Query for slices and for blocks.
//
// Threads: none; the owner serialises calls. What take returns is the Arena's and good until reset.
#pragma once

#include <cstddef>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"

namespace swale::imd {

// Memory in pieces that do not move, kept until it is trimmed.
class Arena {
 public:
  char* take(size_t bytes);  // throws std::bad_alloc
  // Backs the first piece's pages.
  void touch();
  void reset() { piece_ = used_ = taken_ = 0; }
  size_t taken() const { return taken_; }
  void trim(size_t bytes_max);

 private:
  struct Piece {
    Buffer memory;
    size_t bytes;
  };
  static constexpr size_t kPieceBytes = 64 * kKiB;

  static Piece make_piece(size_t bytes);

  std::vector<Piece> pieces_;
  size_t piece_ = 0;  // the one being filled
  size_t used_ = 0;   // of it
  size_t taken_ = 0;  // of all
};

}  // namespace swale::imd
