#include "tools/tier_choices.h"

#include "io/disk_preset.h"
#include "io/posix_device.h"
#include "tier/store/serving_options.h"

namespace swale::tools {
namespace {

constexpr uint64_t kSizeMin = 16 * kMiB;
constexpr uint64_t kSizeMax = 16 * 1024 * kGiB;

}  // namespace

void add_log_size(OptionSet command, uint64_t* size) {
  command
      .add_option("--size", *size, "of a log that is made, in bytes, or with K, M, G (1,024); by default 1G")
      .size_between(kSizeMin, kSizeMax)
      .type_name("BYTES");
}

void TierChoices::add_to(OptionSet command, const std::string& end) {
  command.add_option("--ssd", ssd, "the directory of the log").required().type_name("DIR");
  command.add_option("--backing", backing, "the directory of the files; must be there")
      .required()
      .type_name("DIR");
  add_log_size(command, &size);
  command.add_option("--policy", policy, "which writes go to the SSD; by default swale")
      .one_of({"swale", "ssdup+", "ssdup", "ssd", "ssd-overflow", "backing"});
  command
      .add_option(
          "--durability", durability,
          "when a write is answered: page-cache (survives SIGKILL), group or sync (survive power loss); "
          "by default page-cache")
      .one_of({"page-cache", "group", "sync"});
  command
      .add_option(end, at_end,
                  "keep: the log stays as it is; drain: everything is written to the backing directory; by "
                  "default keep")
      .one_of({"keep", "drain"});
  command
      .add_option(
          "--preset", preset,
          "what the backing device costs, measured by swale tier measure; by default, that of a modern hard disk")
      .type_name("FILE");
}

Result<tier::StoreOptions> TierChoices::store_options(const std::string& ssd_directory,
                                                      const std::string& backing_directory) const {
  tier::StoreOptions options = tier::serving_options(ssd_directory, backing_directory, size);
  SWALE_ASSIGN_OR_RETURN(options.engine.policy, tier::parse_policy(policy));
  options.engine.durability = durability == "sync"    ? tier::Durability::kSync
                              : durability == "group" ? tier::Durability::kGroupCommit
                                                      : tier::Durability::kPageCache;
  if (preset.empty()) return options;
  io::PosixDevice device;
  SWALE_ASSIGN_OR_RETURN(const io::DiskPreset measured, io::read_disk_preset(device, preset));
  options.engine.backing = measured.bed.disk;
  return options;
}

tier::Store::AtClose TierChoices::at_close() const {
  return at_end == "drain" ? tier::Store::AtClose::kDrain : tier::Store::AtClose::kKeep;
}

}  // namespace swale::tools
