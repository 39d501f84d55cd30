#include "imd/read/reader_settings.h"

#include <array>

#include "base/bytes.h"
#include "imd/read/read_cache.h"

namespace swale::imd {
namespace {

constexpr std::array kRows = {
    OptionRow{.name = "imd.reads_in_flight",
              .type = OptionType::kInt,
              .default_value = "64",
              .min = 1,
              .max = 65'536,
              .help = "read requests that a reader has in flight at once"},
    OptionRow{.name = "imd.map",
              .type = OptionType::kEnum,
              .default_value = "never",
              .choices = "auto|never",
              .help = "auto: logs on local file systems are mapped, so bytes in the page cache are found "
                      "without a system call; a page that the device fails to deliver, or that another "
                      "process cuts off, then raises SIGBUS in this process"},
    OptionRow{.name = "imd.cache",
              .type = OptionType::kBytes,
              .default_value = "32M",
              .min = 0,
              .max = 1024 * kGiB,
              .help = "memory of this process in which readers keep verified slices and blocks, for all of "
                      "them together: the largest that one of them gives; 0: this reader keeps none"}};

}  // namespace

std::span<const OptionRow> reader_option_rows() { return kRows; }

ReaderOptions reader_options(const Config& config) {
  ReaderOptions options;
  options.reads_in_flight_max = static_cast<size_t>(config.get_int("imd.reads_in_flight"));
  options.map =
      config.get_string("imd.map") == "auto" ? ReaderOptions::Map::kAuto : ReaderOptions::Map::kNever;
  options.cache = ReadCache::of_this_process(config.get_bytes("imd.cache"));
  return options;
}

}  // namespace swale::imd
