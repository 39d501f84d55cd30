// Damaged index logs whose footers have checksums that fit.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "io/memory_device.h"
#include "run/footer.h"

namespace swale::run::fuzz::run_footer_fuzz {
namespace {

// Footers one behind the other, the last ones with extents.
std::string make_footers() {
  FooterBuilder builder(kPartition);
  std::string log;
  for (uint32_t epoch = 0; epoch < 40; ++epoch) {
    require(
        builder.add({.index_offset = log.size(), .epoch_id = epoch * kEpochId, .epoch = EpochNumber(epoch)})
            .ok());
    log += builder.encode(log.size());
  }
  return log;
}

// Gives trailers and the bytes before them checksums that fit, wherever there is a trailer's magic.
void seal(std::string* log) {
  const uint32_t seed = partition_seed(kPartition);
  for (size_t at = 0; at + sizeof(FooterTrailer) <= log->size(); at += kIndexUnit) {
    char* const trailer = log->data() + at;
    if (get_u64(trailer) != kFooterMagic) continue;
    const uint64_t body_bytes = get_u32(trailer + offsetof(FooterTrailer, bytes)) - sizeof(FooterTrailer);
    if (body_bytes <= at) {
      put_u32(trailer + offsetof(FooterTrailer, body_crc32c),
              crc32c_extend(seed, Bytes(*log).substr(at - body_bytes, body_bytes)));
    }
    put_u32(trailer + offsetof(FooterTrailer, crc32c),
            crc32c_extend(seed, {trailer, offsetof(FooterTrailer, crc32c)}));
  }
}

void run(Bytes input) {
  static const std::string footers = make_footers();
  std::string log = footers;
  if (input.empty()) return;
  // A quarter changes only the last footer, which any reader meets.
  const size_t begin = (input[0] & 3) == 0 ? log.size() - get_u32(log.data() + log.size() - 32) : 0;
  apply_edits(input.substr(1), begin, &log);
  seal(&log);
  io::MemoryDevice device;
  const auto file = device.open("/index", io::OpenMode::kCreate).value();
  require(file->pwrite(0, log).ok());
  const auto footer = read_footer(*file, kPartition);
  if (!footer.ok()) return;
  require(footer->segments.size() <= kSegmentsMax && footer->end_offset <= log.size());
}

}  // namespace

SWALE_FUZZ_TARGET(run_footer_fuzz) {
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}

}  // namespace swale::run::fuzz::run_footer_fuzz
