#include "meta/store/settings.h"

#include <array>

#include "base/bytes.h"

namespace swale::meta {
namespace {

constexpr std::array kRows = {
    OptionRow{.name = "meta.servers_per_node",
              .type = OptionType::kInt,
              .default_value = "1",
              .min = 1,
              .max = 1024,
              .help = "metadata servers on each node, when a store is made; it keeps their number"},
    OptionRow{
        .name = "meta.range",
        .type = OptionType::kBytes,
        .default_value = "64M",
        .min = 4096,
        .max = 9e15,
        .help = "bytes of a file that one server owns before the next one follows, when a store is made"},
    OptionRow{
        .name = "meta.ring",
        .type = OptionType::kEnum,
        .default_value = "auto",
        .choices = "auto|ring|direct|plain",
        .help =
            "how requests for attributes reach the root of a file: combined along the ring, combined by the "
            "node's delegate alone (for comparison), or not combined; auto: plain for fewer than 64 ranks, "
            "else ring"},
    OptionRow{.name = "meta.deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.01,
              .max = 86'400,
              .help = "how long an operation waits for its servers before it fails and names them"},
    OptionRow{.name = "meta.detect_runs",
              .type = OptionType::kBool,
              .default_value = "yes",
              .help = "find regular patterns in puts and store each as one run (no: for comparison)"},
    OptionRow{.name = "meta.files_max",
              .type = OptionType::kInt,
              .default_value = "16777216",
              .min = 1,
              .max = 4e9,
              .help = "files whose attributes one server keeps in memory, about 350 bytes each"},
    OptionRow{
        .name = "meta.lock_lease_s",
        .type = OptionType::kSeconds,
        .default_value = "60",
        .min = 1,
        .max = 3'600,
        .help =
            "the next job may take the store's swale.lock over when its holder has not renewed it for this "
            "long; the holder renews it six times as often"},
    OptionRow{.name = "meta.lock_wait_s",
              .type = OptionType::kSeconds,
              .default_value = "90",
              .min = 0,
              .max = 7'200,
              .help = "how long opening a store looks whether another job's lock is renewed; 0: one look"},
    OptionRow{.name = "meta.cache",
              .type = OptionType::kBytes,
              .default_value = "64M",
              .min = 1 << 20,
              .max = 1e12,
              .help = "memory of one server for blocks of the index that were read"},
    OptionRow{
        .name = "meta.sync",
        .type = OptionType::kBool,
        .default_value = "yes",
        .help = "sync the log before a put or a change of attributes is acknowledged (no: for comparison; a "
                "crash of the machine then loses what was acknowledged)"}};

}  // namespace

std::span<const OptionRow> store_option_rows() { return kRows; }

StoreOptions store_options(const Config& config) {
  StoreOptions options;
  options.servers_per_node = static_cast<uint32_t>(config.get_int("meta.servers_per_node"));
  options.range_bytes = config.get_bytes("meta.range");
  const std::string& ring = config.get_string("meta.ring");
  if (ring != "auto")
    options.ring = ring == "ring" ? RingMode::kRing : ring == "direct" ? RingMode::kDirect : RingMode::kPlain;
  options.deadline = config.get_nanos("meta.deadline_s");
  options.detect_runs = config.get_bool("meta.detect_runs");
  options.files_max = static_cast<size_t>(config.get_int("meta.files_max"));
  options.lease.lease = config.get_nanos("meta.lock_lease_s");
  options.lease.wait = config.get_nanos("meta.lock_wait_s");
  options.shard.cache_bytes = config.get_bytes("meta.cache");
  options.shard.sync_log = config.get_bool("meta.sync");
  return options;
}

}  // namespace swale::meta
