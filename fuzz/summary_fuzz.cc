// Summaries of field extrema (jobs/NNNN/extrema): the first byte chooses between the input as a file, with
// its checksum made right, and as what travels in a DURABLE message; the rest is the input.
#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/extrema_summary.h"

namespace swale::summary_fuzz {

SWALE_FUZZ_TARGET(summary_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  if (input.empty()) return 0;
  const bool file = input[0] % 2 == 0;
  input.remove_prefix(1);
  if (file) {
    std::string bytes(input);
    append_u32(&bytes, crc32c(input));
    const uint64_t id = input.size() >= 20 ? get_u64(input.data() + 12) : 0;
    const auto summary = imd::ExtremaSummary::decode_file(bytes, id, "file");
    if (summary.ok())
      fuzz::require(imd::ExtremaSummary::decode_file(summary->encode_file(id), id, "again").ok());
    return 0;
  }
  Decoder in(input);
  imd::ExtremaSummary summary = imd::ExtremaSummary::read(&in);
  if (!in.ok()) return 0;
  std::string bytes;
  summary.append_to(&bytes);
  Decoder again(bytes);
  fuzz::require(imd::ExtremaSummary::read(&again) == summary && again.finished());
  const imd::ExtremaSummary copy = summary;
  summary.merge(copy);
  return 0;
}

}  // namespace swale::summary_fuzz
