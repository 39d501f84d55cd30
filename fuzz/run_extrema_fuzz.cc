// Damaged segments of field extrema whose checksums fit, and the blocks that they name.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/extrema_reader.h"

namespace swale::run::fuzz::run_extrema_fuzz {
namespace {

struct Made {
  std::string data;
  std::string bytes;
  SegmentRecord segment;
};

Made make(bool uniform) {
  Made made;
  made.data = make_logs({{6'000, 60}, {40, 60}}, uniform).data;
  ExtremaGroup group(std::vector<FieldPlace>{{"x", FieldType::kU4, 0}, {"y", FieldType::kF8, 8}},
                     kGroupBlocksMax);
  for (size_t at = 0; at < made.data.size();) {
    const uint32_t blocks = get_fixed<RunHeader>(made.data.data() + at).blocks;
    group.begin_run(BlockNumber(at / kBlockBytes), blocks);
    group.add_blocks(Bytes(made.data).substr(at, blocks * kBlockBytes));
    at += blocks * kBlockBytes;
  }
  const auto blocks = static_cast<uint32_t>(made.data.size() / kBlockBytes);
  ExtremaSegmentBuilder builder(
      group, {.partition = kPartition, .epoch_id = kEpochId, .ways = 1, .data_blocks = blocks}, 0);
  std::vector<char> out(16 * kIndexPageBytes);
  while (const size_t produced = builder.fill(out)) made.bytes.append(out.data(), produced);
  made.segment = builder.record();
  return made;
}

void seal(char* part, size_t bytes, uint32_t seed) {
  put_u32(part, crc32c_extend(seed, Bytes(part, bytes).substr(4)));
}

void run(Bytes input) {
  static const Made both[] = {make(false), make(true)};
  if (input.empty()) return;
  const Made& made = both[input[0] & 1];
  std::string bytes = made.bytes;
  apply_edits(input.substr(1), 0, &bytes);
  seal(bytes.data(), made.segment.stride, extrema_seed(kPartition, made.segment, kHeadPart));
  const auto head =
      decode_extrema_head(made.segment, kPartition, Bytes(bytes).substr(0, made.segment.stride), "index");
  if (!head.ok()) return;
  for (uint32_t f = 0; f < head->fields.size(); ++f) {
    for (const Extreme which : {Extreme::kLargest, Extreme::kSmallest}) {
      for (uint32_t piece = 0; piece < piece_count(head->fields[f].listed); ++piece) {
        const PiecePlace place = piece_place(*head, f, which, piece);
        require(place.offset + place.bytes <= bytes.size());
        seal(bytes.data() + place.offset, place.bytes,
             extrema_seed(kPartition, made.segment, piece_part(f, which, piece)));
        const auto entries = decode_extrema_piece(*head, kPartition, f, which, piece,
                                                  Bytes(bytes).substr(place.offset, place.bytes), "index");
        if (!entries.ok()) return;
        for (const PieceEntry& entry : *entries) {
          const GroupRun& of = head->run_of(entry.block);
          const BlockNumber block = of.first_block + (entry.block - of.group_block);
          require(block < made.data.size() / kBlockBytes);
          const auto more = records_of_block(
              of, block, Bytes(made.data).substr(block * kBlockBytes, 2 * kBlockBytes),
              [](uint32_t, const RecordView& record) { require(record.key.size() <= kKeyBytesMax); }, "data");
          if (more.ok()) require(*more <= 1);
        }
      }
    }
  }
}

}  // namespace

SWALE_FUZZ_TARGET(run_extrema_fuzz) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace swale::run::fuzz::run_extrema_fuzz
