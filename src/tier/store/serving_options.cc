#include "tier/store/serving_options.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "io/disk_preset.h"

namespace swale::tier {
namespace {

constexpr uint64_t kSegmentBytesMin = 64 * kKiB;
constexpr double kDay = 86'400;

constexpr std::array kTierOptionRows = {
    OptionRow{
        .name = "tier.policy",
        .type = OptionType::kEnum,
        .default_value = "swale",
        .choices = "swale|ssdup+|ssdup|ssd|ssd-overflow|backing",
        .help =
            "which writes go to the SSD: Swale's choice, those of the papers (ssdup+, ssdup), all of them "
            "(ssd waits while the log is full, ssd-overflow does not), or none (backing)"},
    OptionRow{.name = "tier.durability",
              .type = OptionType::kEnum,
              .default_value = "page-cache",
              .choices = "page-cache|group|sync",
              .help = "what a write that has returned survives: a kill of the process (page-cache), or a "
                      "power cut, too, after one sync for many writes (group) or for each (sync)"},
    OptionRow{.name = "tier.size",
              .type = OptionType::kBytes,
              .default_value = "1G",
              .min = 16.0 * kMiB,
              .max = 16.0 * 1024 * kGiB,
              .help = "size of the log, when it is made; it keeps its size"},
    OptionRow{
        .name = "tier.segments",
        .type = OptionType::kInt,
        .default_value = "16",
        .min = 1,
        .max = 65'535,
        .help =
            "parts of the log that are flushed and erased as a whole, when it is made; 2: the papers' two "
            "regions"},
    OptionRow{.name = "tier.preset",
              .help = "the file of swale tier measure that says what the backing directory's disk costs; "
                      "without it, a modern hard disk"},
    OptionRow{.name = "tier.dirty_age_s",
              .type = OptionType::kSeconds,
              .default_value = "600",
              .min = 0.1,
              .max = 30 * kDay,
              .help = "what has been in the log alone for this long is flushed, whatever the traffic"},
    OptionRow{
        .name = "tier.idle_flush_s",
        .type = OptionType::kSeconds,
        .default_value = "10",
        .min = 0.1,
        .max = 30 * kDay,
        .help = "a segment that nothing was written to for this long is flushed although it is not full"},
    OptionRow{.name = "tier.memory",
              .type = OptionType::kBytes,
              .default_value = "256M",
              .min = 1.0 * kMiB,
              .max = 1024.0 * kGiB,
              .help = "memory of the map that says where bytes are in the log; while the map is larger, no "
                      "more writes go to the SSD"},
    OptionRow{.name = "tier.writes",
              .type = OptionType::kInt,
              .default_value = "256",
              .min = 1,
              .max = 65'536,
              .help = "buffers for writes under way, in a mapped file on the SSD; a write takes one for "
                      "each tier.write_bytes"},
    OptionRow{.name = "tier.write_bytes",
              .type = OptionType::kBytes,
              .default_value = "256K",
              .min = 4.0 * kKiB,
              .max = kWriteBytesMax,
              .help = "size of each buffer of tier.writes; longer writes are divided"},
    OptionRow{.name = "tier.queue",
              .type = OptionType::kInt,
              .default_value = "64",
              .min = 1,
              .max = 65'536,
              .help = "writes that wait for the backing directory at a time, sorted by their places"},
    OptionRow{.name = "tier.merge_bytes",
              .type = OptionType::kBytes,
              .default_value = "512K",
              .min = 4.0 * kKiB,
              .max = 64.0 * kMiB,
              .help = "waiting writes that are neighbours are written as one, up to so many bytes"},
    OptionRow{.name = "tier.in_flight",
              .type = OptionType::kInt,
              .default_value = "1",
              .min = 1,
              .max = 1024,
              .help = "operations that the backing directory's disk has at a time"},
    OptionRow{.name = "tier.flush_in_flight",
              .type = OptionType::kInt,
              .default_value = "16",
              .min = 1,
              .max = 1024,
              .help = "pieces between the log and the backing directory at a time, during a flush"},
    OptionRow{.name = "tier.wear_bytes_per_day",
              .type = OptionType::kBytes,
              .default_value = "0",
              .min = 0,
              .max = 1e15,
              .help = "bytes that go to the SSD in a day at most, so that it lives as long as its maker "
                      "promises; 0: without limit"},
    OptionRow{.name = "tier.open_files",
              .type = OptionType::kInt,
              .default_value = "65536",
              .min = 1,
              .max = 1e9,
              .help = "files that are open or have bytes in the log, a descriptor each"},
    OptionRow{
        .name = "tier.group_commit_s",
        .type = OptionType::kSeconds,
        .default_value = "2ms",
        .min = 0,
        .max = 60,
        .help = "with tier.durability=group: how long a write waits for others that the same sync serves"},
    OptionRow{.name = "tier.retry_s",
              .type = OptionType::kSeconds,
              .default_value = "1",
              .min = 0.001,
              .max = kDay,
              .help = "how long a flush waits after a failure before it tries again"},
    OptionRow{.name = "tier.quiet_writes",
              .type = OptionType::kInt,
              .default_value = "100",
              .min = 0,
              .max = 1e9,
              .help = "with fewer direct writes a second than this, the backing directory counts as idle"},
    OptionRow{.name = "tier.stream",
              .type = OptionType::kInt,
              .default_value = "128",
              .min = 2,
              .max = 65'536,
              .help = "requests whose random percentage the detector measures as one"},
    OptionRow{.name = "tier.guard_above",
              .type = OptionType::kInt,
              .default_value = "0",
              .min = 0,
              .max = 100,
              .help = "ssdup+: only streams above this random percentage go to the SSD; the authors' "
                      "program has 45"},
    OptionRow{.name = "tier.guard_below",
              .type = OptionType::kInt,
              .default_value = "0",
              .min = 0,
              .max = 100,
              .help = "ssdup+: streams below this random percentage never go to the SSD; the authors' "
                      "program has 30"},
    OptionRow{.name = "tier.watermark_high",
              .type = OptionType::kInt,
              .default_value = "45",
              .min = 0,
              .max = 100,
              .help = "ssdup: from this random percentage on, streams go to the SSD"},
    OptionRow{.name = "tier.watermark_low",
              .type = OptionType::kInt,
              .default_value = "30",
              .min = 0,
              .max = 100,
              .help = "ssdup: from this random percentage down, streams go to the backing directory again"}};

uint32_t count_of(const Config& config, std::string_view name) {
  return static_cast<uint32_t>(config.get_int(name));
}
double share_of(const Config& config, std::string_view name) {
  return static_cast<double>(config.get_int(name)) / 100;
}

Durability durability_of(const Config& config) {
  const std::string& word = config.get_string("tier.durability");
  return word == "sync"    ? Durability::kSync
         : word == "group" ? Durability::kGroupCommit
                           : Durability::kPageCache;
}

void set_limits(const Config& config, Options* engine) {
  engine->queue_slots = count_of(config, "tier.queue");
  engine->merge_bytes_max = static_cast<uint32_t>(config.get_bytes("tier.merge_bytes"));
  engine->backing_depth = count_of(config, "tier.in_flight");
  engine->flush_pieces_max = count_of(config, "tier.flush_in_flight");
  engine->map_bytes_max = config.get_bytes("tier.memory");
  engine->ssd_bytes_per_day = config.get_bytes("tier.wear_bytes_per_day");
  engine->group_commit_ns = config.get_nanos("tier.group_commit_s");
  engine->retry_ns = config.get_nanos("tier.retry_s");
  engine->idle_flush_ns = config.get_nanos("tier.idle_flush_s");
  engine->age_flush_ns = config.get_nanos("tier.dirty_age_s");
  engine->quiet_requests_per_second = count_of(config, "tier.quiet_writes");
  engine->detector.stream_requests = count_of(config, "tier.stream");
  engine->detector.guard_above = share_of(config, "tier.guard_above");
  engine->detector.guard_below = share_of(config, "tier.guard_below");
  engine->detector.watermark_high = share_of(config, "tier.watermark_high");
  engine->detector.watermark_low = share_of(config, "tier.watermark_low");
}

// What no single row can say.
Status check_together(const Config& config, const Options& engine) {
  const bool all_to_ssd = engine.policy == Policy::kSsdBlocking || engine.policy == Policy::kSsdOverflowing;
  if (engine.segment_count < 2 && !all_to_ssd)
    return invalid_argument(
        "tier.segments=1 with tier.policy={}: expected at least 2 segments, of which one is "
        "written while another is flushed",
        policy_name(engine.policy));
  if (engine.segment_bytes < kSegmentBytesMin)
    return invalid_argument("tier.segments={} with tier.size={}: segments of {} bytes; expected at least {}",
                            config.text("tier.segments"), config.text("tier.size"), engine.segment_bytes,
                            kSegmentBytesMin);
  if (engine.detector.watermark_low > engine.detector.watermark_high)
    return invalid_argument("tier.watermark_low={} is above tier.watermark_high={}",
                            config.text("tier.watermark_low"), config.text("tier.watermark_high"));
  return {};
}

// All but tier.preset.
Result<StoreOptions> without_preset(const Config& config, const std::string& ssd_directory,
                                    const std::string& backing_directory) {
  StoreOptions options;
  options.ssd_directory = ssd_directory;
  options.backing_directory = backing_directory;
  Options& engine = options.engine;
  SWALE_ASSIGN_OR_RETURN(engine.policy, parse_policy(config.get_string("tier.policy")));
  engine.durability = durability_of(config);
  engine.segment_count = count_of(config, "tier.segments");
  engine.segment_bytes = config.get_bytes("tier.size") / engine.segment_count / 4096 * 4096;
  set_limits(config, &engine);
  SWALE_RETURN_IF_ERROR(check_together(config, engine));
  options.queue_slots = count_of(config, "tier.writes");
  options.slot_bytes = static_cast<uint32_t>(
      std::min<uint64_t>(config.get_bytes("tier.write_bytes"), engine.segment_bytes / 4));
  options.open_files_max = static_cast<size_t>(config.get_int("tier.open_files"));
  return options;
}

}  // namespace

std::span<const OptionRow> tier_option_rows() { return kTierOptionRows; }

Result<StoreOptions> tier_store_options(const Config& config, io::Device& device,
                                        const std::string& ssd_directory,
                                        const std::string& backing_directory) {
  SWALE_ASSIGN_OR_RETURN(StoreOptions options, without_preset(config, ssd_directory, backing_directory));
  if (const std::string& preset = config.get_string("tier.preset"); !preset.empty()) {
    SWALE_ASSIGN_OR_RETURN(const io::DiskPreset measured, io::read_disk_preset(device, preset));
    options.engine.backing = measured.bed.disk;
  }
  return options;
}

StoreOptions serving_options(const std::string& ssd_directory, const std::string& backing_directory,
                             uint64_t log_bytes) {
  const auto config = Config::make(kTierOptionRows, fmt::format("tier.size={}", log_bytes),
                                   [](const char*) -> const char* { return nullptr; });
  assert(config.ok());
  auto options = without_preset(*config, ssd_directory, backing_directory);
  assert(options.ok());
  return *std::move(options);
}

}  // namespace swale::tier
