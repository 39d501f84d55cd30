#include "imd/read/arena.h"

#include <algorithm>
#include <new>
#include <utility>

namespace swale::imd {

char* Arena::take(size_t bytes) {
  taken_ += bytes;
  while (piece_ < pieces_.size() && pieces_[piece_].bytes - used_ < bytes) {
    ++piece_;
    used_ = 0;
  }
  if (piece_ == pieces_.size()) {
    const size_t piece_bytes = std::max(bytes, kPieceBytes);
    pieces_.push_back(make_piece(piece_bytes));
  }
  char* const memory = pieces_[piece_].memory.data() + used_;
  used_ += bytes;
  return memory;
}

Arena::Piece Arena::make_piece(size_t bytes) {
  Result<Buffer> memory = Buffer::allocate(bytes);
  if (!memory.ok()) throw std::bad_alloc();
  return {std::move(*memory), bytes};
}

void Arena::touch() {
  if (pieces_.empty()) pieces_.push_back(make_piece(kPieceBytes));
  pieces_.front().memory.touch();
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
