// A packed block with any bytes for its piece, and any trailer: decompressing stays within its bytes, and
// what it accepts has the size that the trailer promises.
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/block.h"
#include "run/packed_block.h"

namespace swale::run::fuzz::run_packed_fuzz {
namespace {

// Input: u8 how | u16 piece_bytes | u16 row_bytes | u8 codec | the stored piece, or edits of a valid one.
void run(Bytes input) {
  static const Logs logs[] = {make_logs({{3000, 40}}, true, {Codec::kLz4, IndexKind::kSketch, 0}),
                              make_logs({{3000, 40}}, true, {Codec::kZstd, IndexKind::kSketch, 0}),
                              make_logs({{20, 16'000}}, false, {Codec::kLz4, IndexKind::kSketch, 0})};
  if (input.size() < 6) return;
  const auto how = static_cast<uint8_t>(input[0]);
  const Logs& base = logs[how % 3];
  std::string block = base.data.substr(how / 3 % (base.data.size() / kBlockBytes) * kBlockBytes, kBlockBytes);
  const Bytes rest = input.substr(6);
  if ((how & 0x80) != 0) {
    apply_edits(rest, 0, &block);
  } else {
    const size_t begin = block_trailer(block.data()).first_ordinal == 0 ? sizeof(RunHeader) : 0;
    const Bytes stored = rest.substr(0, kPackedBytesMax - begin);
    block.replace(begin, stored.size(), stored);
    put_fixed(block.data() + kPackedBytesMax,
              PackedTrailer{.stored_bytes = static_cast<uint16_t>(stored.size()),
                            .piece_bytes = get_u16(input.data() + 1),
                            .row_bytes = get_u16(input.data() + 3),
                            .codec = static_cast<Codec>(input[5]),
                            .reserved = 0});
  }
  std::vector<char> piece{'x'};
  if (append_piece(block, BlockNumber(5), "fuzz", &piece).ok()) {
    require(piece.size() == 1 + size_t{packed_trailer(block.data()).piece_bytes});
  } else {
    require(piece.size() == 1);
  }
}

}  // namespace

SWALE_FUZZ_TARGET(run_packed_fuzz) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace swale::run::fuzz::run_packed_fuzz
