#include "tools/tier_choices.h"

#include "base/bytes.h"
#include "capi/options.h"
#include "io/disk_preset.h"
#include "io/posix_device.h"
#include "tier/store/serving_options.h"

namespace swale::tools {
namespace {

constexpr uint64_t kSizeMin = 16 * kMiB;
constexpr uint64_t kSizeMax = 16 * 1024 * kGiB;

}  // namespace

void TierChoices::add_size(OptionSet command) {
  command
      .add_option("--size", size,
                  "of a log that is made, in bytes, or with K, M, G (1,024); by default 1G (tier.size)")
      .size_between(kSizeMin, kSizeMax)
      .type_name("BYTES");
}

void TierChoices::add_options(OptionSet command, const std::string& help) {
  command.add_option("--options", options, help).type_name("TEXT").may_be_empty();
}

void TierChoices::add_to(OptionSet command, const std::string& end, Folders folders) {
  Option of_log = command.add_option("--ssd", ssd, "the directory of the log").type_name("DIR");
  if (folders == Folders::kRequired) of_log.required();
  Option of_files =
      command.add_option("--backing", backing, "the directory of the files; must be there").type_name("DIR");
  if (folders == Folders::kRequired) of_files.required();
  add_size(command);
  command.add_option("--policy", policy, "which writes go to the SSD; by default swale (tier.policy)")
      .one_of({"swale", "ssdup+", "ssdup", "ssd", "ssd-overflow", "backing"});
  command
      .add_option(
          "--durability", durability,
          "when a write is answered: page-cache (survives SIGKILL), group or sync (survive power loss); "
          "by default page-cache (tier.durability)")
      .one_of({"page-cache", "group", "sync"});
  command
      .add_option(end, at_end,
                  "keep: the log stays as it is; drain: everything is written to the backing directory; by "
                  "default keep")
      .one_of({"keep", "drain"});
  command
      .add_option(
          "--preset", preset,
          "what the backing device costs, measured by swale tier measure; by default, that of a modern hard "
          "disk (tier.preset)")
      .type_name("FILE");
}

std::string TierChoices::preset_name() const {
  if (!preset.empty()) return preset;
  const auto config = capi::config_of(capi::Call::kTier, text(), capi::process_environment);
  return config.ok() ? config->get_string("tier.preset") : std::string();
}

std::string TierChoices::text() const {
  std::string text = options;
  if (!policy.empty()) text += ",tier.policy=" + policy;
  if (!durability.empty()) text += ",tier.durability=" + durability;
  if (size != 0) text += fmt::format(",tier.size={}", size);
  return text;
}

Result<tier::StoreOptions> TierChoices::store_options(const Config& config, const std::string& ssd_directory,
                                                      const std::string& backing_directory) const {
  io::PosixDevice device;
  SWALE_ASSIGN_OR_RETURN(tier::StoreOptions wanted,
                         tier::tier_store_options(config, device, ssd_directory, backing_directory));
  if (preset.empty()) return wanted;
  SWALE_ASSIGN_OR_RETURN(const io::DiskPreset measured, io::read_disk_preset(device, preset));
  wanted.engine.backing = measured.bed.disk;
  return wanted;
}

Result<tier::StoreOptions> TierChoices::store_options(const std::string& ssd_directory,
                                                      const std::string& backing_directory) const {
  SWALE_RETURN_IF_ERROR(capi::check_process_variables());
  SWALE_ASSIGN_OR_RETURN(const Config config,
                         capi::config_of(capi::Call::kTier, text(), capi::process_environment));
  return store_options(config, ssd_directory, backing_directory);
}

tier::Store::AtClose TierChoices::at_close() const {
  return at_end == "drain" ? tier::Store::AtClose::kDrain : tier::Store::AtClose::kKeep;
}

}  // namespace swale::tools
