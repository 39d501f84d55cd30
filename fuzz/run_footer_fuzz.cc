// Damaged index logs whose footer pages have checksums that fit.
#include "base/crc32c.h"
#include "fuzz/run_fuzz_support.h"
#include "io/memory_device.h"
#include "run/footer.h"

namespace swale::run::fuzz {
namespace {

// A sealed page and two tail pages.
std::string make_footers() {
  FooterBuilder builder(kPartition);
  for (uint32_t epoch = 0; epoch < 57; ++epoch) require(builder.add({.epoch = epoch}).ok());
  std::string log = builder.encode(0);
  require(builder.add({.index_offset = log.size(), .epoch = 57}).ok());
  return log + builder.encode(log.size());
}

void run(Bytes input) {
  static const std::string footers = make_footers();
  std::string log = footers;
  apply_edits(input, 0, &log);
  for (size_t at = 0; at < log.size(); at += kFooterPageBytes) {
    put_u64(log.data() + at + offsetof(FooterPage, page_offset), at);
    const Bytes covered = Bytes(log).substr(at, kFooterPageBytes - 4);
    put_u32(log.data() + at + kFooterPageBytes - 4, crc32c_extend(partition_seed(kPartition), covered));
  }
  io::MemoryDevice device;
  const auto file = device.open("/index", io::OpenMode::kCreate).value();
  require(file->pwrite(0, log).ok());
  const auto footer = read_footer(*file, kPartition);
  if (!footer.ok()) return;
  require(footer->segments.size() <= kSegmentsMax && footer->end_offset <= log.size());
  FooterBuilder again = FooterBuilder::resume(kPartition, *footer, footer->segments.size() / 2);
  require(again.encode(round_up(log.size(), kIndexAlignment)).size() % kFooterPageBytes == 0);
}

}  // namespace
}  // namespace swale::run::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  swale::run::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
