#include "imd/write/writer_settings.h"

#include <array>
#include <charconv>
#include <string>

#include "base/bytes.h"
#include "imd/write/memory_plan.h"

namespace swale::imd {
namespace {

constexpr std::array kRows = {
    OptionRow{
        .name = "imd.memory",
        .type = OptionType::kBytes,
        .default_value = "0",
        .min = 0,
        .max = 64.0 * kGiB,
        .help = "memory of the pipeline on each rank; 0: 3 % of the machine's divided by the ranks on it, at "
                "most 64M"},
    OptionRow{.name = "imd.ways",
              .type = OptionType::kInt,
              .default_value = "1",
              .min = 1,
              .max = 64,
              .help = "indexing threads of each rank; more than one helps where storage outruns a core"},
    OptionRow{.name = "imd.frame_bytes",
              .type = OptionType::kBytes,
              .default_value = "32K",
              .min = kFrameBytesMin,
              .max = kFrameBytesMax,
              .help = "records travel between ranks in frames of at most this many bytes"},
    OptionRow{.name = "imd.window",
              .type = OptionType::kInt,
              .default_value = "4",
              .min = 1,
              .max = 64,
              .help = "frames in flight to one peer before the sender waits"},
    OptionRow{.name = "imd.collective_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "0",
              .min = 0,
              .max = 604'800,
              .help = "how long the end of an epoch or the close of a directory waits for living ranks that "
                      "do not come to the same call; 0: without limit"},
    OptionRow{.name = "imd.key",
              .type = OptionType::kEnum,
              .default_value = "as_made",
              .choices = "as_made|u64|i64|text|bytes",
              .help = "what keys are, told when the directory is made, for tools that take and show them: "
                      "little-endian numbers of 8 bytes (u64, i64), text, or bytes (as_made: not told then, "
                      "as bytes)"},
    OptionRow{.name = "imd.schema",
              .help = "what a value consists of, told when the directory is made: name:type[xCOUNT][:unit] "
                      "separated by ';', little-endian and packed; types f4 f8 i1 i2 i4 i8 u1 u2 u4 u8. "
                      "Values of another length are refused: _:N is padding of N bytes, _:* at the end "
                      "allows any length"},
    OptionRow{.name = "imd.extrema",
              .help =
                  "at most 8 fields of imd.schema, separated by ';', whose largest and smallest numbers are "
                  "found quickly"},
    OptionRow{.name = "imd.format",
              .type = OptionType::kEnum,
              .default_value = "as_made",
              .choices = "as_made|base|indirect|lossy",
              .help = "what travels to the rank that indexes a key, chosen when the directory is made "
                      "(as_made: base then): records (base); keys and pointers, so that values of 12 bytes "
                      "and more stay with the rank that appends them and take one more read (indirect); or "
                      "3 bytes of each key, so that records stay (lossy)"},
    OptionRow{
        .name = "imd.compression",
        .type = OptionType::kEnum,
        .default_value = "as_made",
        .choices = "as_made|none|lz4|zstd",
        .help = "compression of blocks, chosen when the directory is made (as_made: none then); blocks that "
                "do not shrink are left as they are"},
    OptionRow{
        .name = "imd.index",
        .type = OptionType::kEnum,
        .default_value = "as_made",
        .choices = "as_made|sketch|bloom|blocked_bloom|papers",
        .help = "how records are found, chosen when the directory is made (as_made: sketch then); the others "
                "are for comparison only"},
    OptionRow{.name = "imd.bloom_bits",
              .type = OptionType::kInt,
              .default_value = "-1",
              .min = -1,
              .max = run::kBloomBitsMax,
              .help =
                  "for comparison only: bits per record of Bloom filters, chosen when the directory is made; "
                  "0: no filters, only block fences; -1: 10, or as made"},
    OptionRow{.name = "imd.partitioner",
              .default_value = "hash",
              .help = "the name of the function that swale_dir_open_partitioned was given"},
    OptionRow{.name = "imd.lock_lease_s",
              .type = OptionType::kSeconds,
              .default_value = "60",
              .min = 1,
              .max = 3'600,
              .help = "the next job may take swale.lock over when its holder, which renews it six times as "
                      "often, has not renewed it for this long; rank 0's value counts"},
    OptionRow{.name = "imd.lock_wait_s",
              .type = OptionType::kSeconds,
              .default_value = "90",
              .min = 0,
              .max = 7'200,
              .help = "how long opening watches another writer's swale.lock before it fails with "
                      "SWALE_BUSY; it fails sooner if it sees a renewal; rank 0's value counts"},
    OptionRow{.name = "imd.steps",
              .type = OptionType::kEnum,
              .default_value = "increasing",
              .choices = "increasing|any",
              .help = "increasing: a step that is not greater than the last epoch's is an error, so that a "
                      "restart without imd.resume_after is noticed; any: steps may repeat; all ranks give "
                      "the same"},
    OptionRow{
        .name = "imd.resume_after",
        .help =
            "a step: drop the first epoch with a greater step and all epochs after it, before anything is "
            "written; all ranks give the same"}};

Result<std::optional<int64_t>> step_of(const std::string& text) {
  if (text.empty()) return std::optional<int64_t>();
  int64_t step = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, step);
  if (failure != std::errc() || stop != end) {
    return invalid_argument("imd.resume_after=\"{}\": expected a 64-bit integer, the last step to keep",
                            text);
  }
  return std::optional<int64_t>(step);
}

}  // namespace

std::span<const OptionRow> writer_option_rows() { return kRows; }

Result<WriterOptions> writer_options(const Config& config) {
  WriterOptions options;
  options.memory_bytes = config.get_bytes("imd.memory");
  options.ways = static_cast<uint32_t>(config.get_int("imd.ways"));
  options.frame_bytes = config.get_bytes("imd.frame_bytes");
  options.window = static_cast<uint16_t>(config.get_int("imd.window"));
  options.format = run::format_named(config.get_string("imd.format"));
  options.compression = codec_named(config.get_string("imd.compression"));
  options.index = run::index_named(config.get_string("imd.index"));
  if (const int64_t bits = config.get_int("imd.bloom_bits"); bits >= 0)
    options.bloom_bits = static_cast<uint32_t>(bits);
  options.lease.lease = config.get_nanos("imd.lock_lease_s");
  options.lease.wait = config.get_nanos("imd.lock_wait_s");
  if (const Nanos limit = config.get_nanos("imd.collective_deadline_s"); limit != 0)
    options.collective_deadline = limit;
  options.partitioner.name = config.get_string("imd.partitioner");
  SWALE_ASSIGN_OR_RETURN(
      options.schema, run::Schema::parse(config.get_string("imd.schema"), config.get_string("imd.extrema")));
  options.schema.key = run::key_type_named(config.get_string("imd.key"));
  if (config.get_string("imd.steps") == "increasing") options.steps = WriterOptions::Steps::kIncreasing;
  SWALE_ASSIGN_OR_RETURN(options.resume_after, step_of(config.get_string("imd.resume_after")));
  return options;
}

}  // namespace swale::imd
