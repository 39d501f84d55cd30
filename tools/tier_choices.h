// What the commands that serve a tiered write buffer (tier mount, iond) are told of it, and how the command line says it.
// Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "tier/store/store.h"
#include "tools/command_line.h"

namespace swale::tools {

struct TierChoices {
  std::string ssd;
  std::string backing;
  std::string policy = "swale";
  std::string durability = "page-cache";
  std::string at_end = "keep";
  std::string preset;  // a file; "": none
  uint64_t size = kGiB;

  // `end`: the option that says what becomes of the log at the end. The choices outlive the command line.
  void add_to(OptionSet command, const std::string& end);
  // With directories in the place of `ssd` and `backing`: as the command understands them.
  Result<tier::StoreOptions> store_options(const std::string& ssd_directory,
                                           const std::string& backing_directory) const;
  tier::Store::AtClose at_close() const;
};

// --size, of a log that is made.
void add_log_size(OptionSet command, uint64_t* size);

}  // namespace swale::tools
