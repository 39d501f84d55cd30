#include "imd/read/arena.h"

#include <algorithm>
#include <cstring>

namespace swale::imd {

char* Arena::take(size_t bytes) {
  taken_ += bytes;
  while (piece_ < pieces_.size() && pieces_[piece_].bytes - used_ < bytes) {
    ++piece_;
    used_ = 0;
  }
  if (piece_ == pieces_.size()) {
    const size_t piece_bytes = std::max(bytes, kPieceBytes);
    pieces_.push_back({std::make_unique_for_overwrite<char[]>(piece_bytes), piece_bytes});
  }
  char* const memory = pieces_[piece_].memory.get() + used_;
  used_ += bytes;
  return memory;
}

void Arena::touch() {
  reset();
  std::memset(take(kPieceBytes), 0, kPieceBytes);
  reset();
}

void Arena::trim(size_t bytes_max) {
  reset();
  size_t kept = 0;
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (kept + piece.bytes > bytes_max) return true;
    kept += piece.bytes;
    return false;
  });
}

}  // namespace swale::imd
