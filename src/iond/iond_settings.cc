#include "iond/iond_settings.h"

#include <array>

#include "iond/striping.h"

namespace swale::iond {
namespace {

constexpr std::array kRows = {
    OptionRow{.name = "iond.stripe",
              .type = OptionType::kBytes,
              .default_value = "1M",
              .min = static_cast<double>(kStripeBytesMin),
              .max = static_cast<double>(kStripeBytesMax),
              .help = "bytes of a file on one I/O server before the next one follows, a multiple of 4K; the "
                      "same on all ranks; a file keeps its own"},
    OptionRow{.name = "iond.deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.01,
              .max = 86'400,
              .help = "how long a request waits for its I/O server before it fails and names the server"},
    OptionRow{.name = "iond.threads",
              .type = OptionType::kInt,
              .default_value = "4",
              .min = 1,
              .max = 256,
              .help = "threads of an I/O server that answer requests"},
    OptionRow{.name = "iond.open_files",
              .type = OptionType::kInt,
              .default_value = "65536",
              .min = 1,
              .max = 1e9,
              .help = "files that an I/O server has open at a time, for all its clients"},
    OptionRow{.name = "iond.watch_s",
              .type = OptionType::kSeconds,
              .default_value = "5",
              .min = 0.01,
              .max = 3'600,
              .help = "how often an I/O server asks ranks that have not closed whether they live, so that "
                      "it ends without dead ones"}};

}  // namespace

std::span<const OptionRow> iond_option_rows() { return kRows; }

IondOptions iond_options(const Config& config) {
  IondOptions options;
  options.stripe_bytes = config.get_bytes("iond.stripe");
  options.deadline = config.get_nanos("iond.deadline_s");
  options.threads = static_cast<uint32_t>(config.get_int("iond.threads"));
  options.open_files_max = static_cast<size_t>(config.get_int("iond.open_files"));
  options.watch = config.get_nanos("iond.watch_s");
  return options;
}

}  // namespace swale::iond
