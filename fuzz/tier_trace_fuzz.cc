// Traces of a mount. Input: 1 byte that says what, then bytes: of a header, of a block, or of a block's
// payload (records u32, then the payload), whose header is made. What decodes encodes to something that
// decodes to the same.
#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "tier/trace/trace_format.h"

namespace swale::tier_trace_fuzz {
namespace {

using namespace swale::tier;
using fuzz::require;

void block(Bytes bytes) {
  std::vector<TraceRecord> records;
  if (!decode_trace_block(bytes, &records).ok()) return;
  require(records.size() == decode_trace_block_header(bytes)->records);
  TraceBlockBuilder builder;
  for (const TraceRecord& record : records)
    if (!builder.add(record)) return;  // varints may be longer than need be, but not in what we write
  std::vector<TraceRecord> again;
  require(decode_trace_block(builder.take(0), &again).ok() && again == records);
}

void payload(Bytes bytes) {
  if (bytes.size() < 4 || bytes.size() - 4 > kTracePayloadMax) return;
  std::string whole = TraceBlockBuilder().take(0);
  put_u32(whole.data() + 8, static_cast<uint32_t>(bytes.size() - 4));
  put_u32(whole.data() + 12, get_u32(bytes.data()));
  whole += bytes.substr(4);
  put_u32(whole.data() + 4, crc32c(Bytes(whole).substr(8)));
  block(whole);
}

void header(Bytes bytes) {
  const auto begun = decode_trace_header(bytes);
  if (begun.ok()) require(*decode_trace_header(encode_trace_header(*begun)) == *begun);
}

}  // namespace

SWALE_FUZZ_TARGET(tier_trace_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes = swale::fuzz::as_bytes(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      header(bytes);
      break;
    case 1:
      block(bytes);
      break;
    default:
      payload(bytes);
  }
  return 0;
}

}  // namespace swale::tier_trace_fuzz
