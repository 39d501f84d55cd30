// The row for massive directories in the engine table (engine.h).
//
// Threads: free functions.
#pragma once

#include "imd/format/manifest.h"
#include "tools/engine.h"

namespace swale::tools {

// The step of an epoch that `swale repair` put there is unknown: in words, and null.
std::string step_text(const imd::EpochEntry& epoch);
Json step_json(const imd::EpochEntry& epoch);

Result<InfoReport> imd_info(const std::string& path);
Result<VerifyReport> imd_verify(const std::string& path, const VerifyRequest& request);
Result<StatsReport> imd_stats(const std::string& path, const StatsRequest& request);
Status imd_dump(io::Device& device, const std::string& path, DumpOutput* out);
Result<RepairReport> imd_repair(io::Device& device, const std::string& path, const RepairRequest& request);

}  // namespace swale::tools
