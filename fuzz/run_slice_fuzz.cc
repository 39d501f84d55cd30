// Damaged slices whose checksums fit, under damaged segment records that a footer's decoder lets pass: every
// candidate lies within the epoch.
#include <algorithm>

#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/footer.h"
#include "run/segment_reader.h"

namespace swale::run::fuzz::run_slice_fuzz {
namespace {

// The record as a reader would get it: through a footer.
std::optional<SegmentRecord> through_footer(const SegmentRecord& segment) {
  constexpr uint64_t kOffset = uint64_t{1} << 30;
  FooterPart part;
  part.trailer.version = kFormatVersion;
  part.trailer.partition = kPartition;
  part.trailer.offset = kOffset;
  part.trailer.record_count = 1;
  part.records = {segment};
  const auto decoded = decode_footer(encode_footer(part), kPartition, kOffset, "fuzz");
  if (!decoded.ok()) return std::nullopt;
  return decoded->records[0];
}

// Gives the bytes at the location a checksum that fits, and returns them.
std::string resealed(const Logs& logs, const SegmentRecord& segment, const SliceLocation& location) {
  std::string bytes =
      logs.index.substr(std::min<uint64_t>(location.offset, logs.index.size()), location.bytes);
  bytes.resize(location.bytes);
  const uint32_t total_bytes = get_u32(bytes.data() + offsetof(SliceHeader, total_bytes));
  const size_t covered = std::min<size_t>(total_bytes, bytes.size());
  if (covered < sizeof(SliceHeader)) return bytes;
  put_u32(bytes.data() + offsetof(SliceHeader, slice), location.slice);
  put_u32(bytes.data(),
          crc32c_extend(segment_seed(kPartition, segment), Bytes(bytes).substr(4, covered - 4)));
  return bytes;
}

void run(Bytes input) {
  static const Logs logs[] = {make_logs({{9000, 0}, {20, 0}}, true),
                              make_logs({{3000, 9}, {20, 2}}, false),
                              make_logs({{40, 16'000}}, false),
                              make_logs({{5, 4}}, true),
                              make_logs({{3000, 40}, {20, 2}}, true, {Codec::kNone, IndexKind::kBloom, 10}),
                              make_logs({{3000, 90}}, false, {Codec::kLz4, IndexKind::kBlockedBloom, 8}),
                              make_logs({{2000, 90}}, false, {Codec::kNone, IndexKind::kPapers, 0})};
  if (input.size() < 12) return;
  const Logs& base = logs[static_cast<uint8_t>(input[0]) % std::size(logs)];
  SegmentRecord changed = base.segment;
  if ((input[1] & 1) != 0) {
    std::string bytes(sizeof(changed), '\0');
    put_fixed(bytes.data(), changed);
    apply_edits(input.substr(12, 6), 0, &bytes);
    changed = get_fixed<SegmentRecord>(bytes.data());
  }
  const auto segment = through_footer(changed);
  if (!segment || segment->stride > kMiB) return;
  const Hash rest = get_u64(input.data() + 2);
  const auto location = locate_slice(*segment, rest);
  if (!location) return;
  std::string bytes = resealed(base, *segment, *location);
  if (bytes.size() > sizeof(SliceHeader)) {
    // Mostly the headers of the slice and its pieces.
    std::string front = bytes.substr(0, 100);
    apply_edits(input.substr(std::min<size_t>(18, input.size())), 4, &front);
    bytes.replace(0, front.size(), front);
    const uint32_t total_bytes = get_u32(bytes.data() + 4);
    const size_t covered = std::min<size_t>(total_bytes, bytes.size());
    if (covered < sizeof(SliceHeader)) return;
    put_u32(bytes.data(),
            crc32c_extend(segment_seed(kPartition, *segment), Bytes(bytes).substr(4, covered - 4)));
  }
  auto slice = Slice::open(*segment, kPartition, *location, bytes, "fuzz");
  if (!slice.ok()) return;
  if (const auto overflow = slice->overflow()) {
    if (overflow->bytes > kMiB) return;
    std::string rest_bytes =
        base.index.substr(std::min<uint64_t>(overflow->offset, base.index.size()), overflow->bytes);
    rest_bytes.resize(overflow->bytes);
    char number[4];
    put_u32(number, location->slice);
    const uint32_t seed = crc32c_extend(segment_seed(kPartition, *segment), {number, 4});
    put_u32(rest_bytes.data(), crc32c_extend(seed, Bytes(rest_bytes).substr(4)));
    if (!slice->attach_overflow(rest_bytes).ok()) return;
  }
  (void)slice->candidates(rest, [&](const Candidate& candidate) {
    require(candidate.block >= segment->data_block &&
            candidate.block + candidate.block_count <= segment->data_block + segment->data_blocks &&
            candidate.block_count >= 1 && candidate.block_count <= kCandidateBlocksMax);
  });
}

}  // namespace

SWALE_FUZZ_TARGET(run_slice_fuzz) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace swale::run::fuzz::run_slice_fuzz
