// The options of a tiered write buffer ("tier...."), as rows of the table of options (base/config.h): what a
// mount, an I/O server and a program that opens one let their users choose. Their defaults suit a server:
// writes of up to 1 MiB, and back-pressure by the elevator before the queue of writes is full.
//
// Threads: free functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/config.h"
#include "tier/store/store.h"

namespace swale::tier {

std::span<const OptionRow> tier_option_rows();

// Requires a Config that has the rows. Reads the file that tier.preset names. kInvalidArgument names the
// options that do not go together.
Result<StoreOptions> tier_store_options(const Config& config, io::Device& device,
                                        const std::string& ssd_directory,
                                        const std::string& backing_directory);

// The same with defaults alone, without the environment, for a log of `log_bytes`. For tests and benchmarks.
StoreOptions serving_options(const std::string& ssd_directory, const std::string& backing_directory,
                             uint64_t log_bytes);

}  // namespace swale::tier
