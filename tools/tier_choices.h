// What the commands that open a tiered write buffer (tier mount, iond, run, tier make) are told of it:
// options "tier...." in a string, and flags for the common ones. A flag wins over the string, and both over
// the environment. Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"
#include "tier/store/store.h"
#include "tools/command_line.h"

namespace swale::tools {

struct TierChoices {
  std::string ssd;
  std::string backing;
  std::string options;  // also those of other calls, for a command that makes them
  std::string policy;   // "": not given, as are the next ones
  std::string durability;
  std::string preset;  // a file
  std::string at_end;
  uint64_t size = 0;  // of a log that is made; 0: not given

  enum class Folders { kRequired, kOptional };  // whether --ssd and --backing must be given
  // `end`: the option that says what becomes of the log at the end. The choices outlive the command line.
  void add_to(OptionSet command, const std::string& end, Folders folders = Folders::kRequired);
  void add_size(OptionSet command);
  void add_options(OptionSet command, const std::string& help);

  // The preset that is used, by flag, string or environment; "": none.
  std::string preset_name() const;
  // The option string with the flags.
  std::string text() const;
  // With directories in the place of `ssd` and `backing`: as the command understands them. `config` has the
  // rows of the tier, and was made from text().
  Result<tier::StoreOptions> store_options(const Config& config, const std::string& ssd_directory,
                                           const std::string& backing_directory) const;
  // The same for a command that makes no other call.
  Result<tier::StoreOptions> store_options(const std::string& ssd_directory,
                                           const std::string& backing_directory) const;
  tier::Store::AtClose at_close() const;
};

}  // namespace swale::tools
