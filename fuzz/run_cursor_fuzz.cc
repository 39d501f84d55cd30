// Damaged data logs whose checksums fit: the cursor and the matching of candidates stay within their bytes.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/block.h"
#include "run/run_cursor.h"

namespace swale::run::fuzz::run_cursor_fuzz {
namespace {

void reseal(std::string* data) {
  RunHeader header = get_fixed<RunHeader>(data->data());
  header.crc32c = crc32c_extend(partition_seed(kPartition), Bytes(*data).substr(0, 60));
  put_u32(data->data() + 60, header.crc32c);
  for (size_t at = 0; at < data->size(); at += kBlockBytes) {
    const Bytes covered = Bytes(*data).substr(at, kBlockBytes - 4);
    put_u32(data->data() + at + kBlockBytes - 4,
            crc32c_extend(epoch_seed(kPartition, header.epoch_id), covered));
  }
}

void run(Bytes input) {
  static const Logs logs[] = {make_logs({{200, 40}}, true), make_logs({{50, 600}}, false),
                              make_logs({{3, 16'000}}, false),
                              make_logs({{2000, 40}}, true, {Codec::kLz4, IndexKind::kSketch, 0}),
                              make_logs({{20, 16'000}}, false, {Codec::kZstd, IndexKind::kSketch, 0})};
  if (input.size() < 8) return;
  std::string data = logs[static_cast<uint8_t>(input[0]) % std::size(logs)].data;
  Candidate candidate{.block_count = 1 + static_cast<uint8_t>(input[1]) % kCandidateBlocksMax,
                      .slot = get_u16(input.data() + 2),
                      .value_bytes = static_cast<uint8_t>(input[4]),
                      .key_bytes = static_cast<uint8_t>(input[5])};
  candidate.packed = candidate.variable() && (input[6] & 1) != 0;
  const bool any = (input[6] & 2) != 0;
  if (any) candidate.slot = kAnySlot;
  if (!candidate.variable()) candidate.block_count = 1;
  apply_edits(input.substr(8), 0, &data);
  reseal(&data);

  RunCursor cursor(kPartition, BlockNumber(0), "fuzz");
  uint64_t bytes = 0;
  const Status walked = cursor.feed(data, [&](const ScannedRecord& record) {
    bytes += hash_bytes(record.key) + hash_bytes(record.value);  // touches them all
    return true;
  });
  if (walked.ok()) (void)cursor.finish();
  BlockWalk walk;
  const Bytes blocks = Bytes(data).substr(0, candidate.block_count * kBlockBytes);
  if (any) {
    (void)RecordMatch::each_in_verified(candidate, blocks, "hot key!", &walk, "fuzz",
                                        [&](const RecordView& record) {
                                          require(hash_bytes(record.value) + bytes + 1 != bytes);
                                          return true;
                                        });
    return;
  }
  const auto match = RecordMatch::in_verified(candidate, blocks, "hot key!", &walk, "fuzz");
  if (match.ok() && *match) require(hash_bytes((*match)->value) + bytes + 1 != bytes);
}

}  // namespace

SWALE_FUZZ_TARGET(run_cursor_fuzz) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace swale::run::fuzz::run_cursor_fuzz
