// The row for massive directories in the engine table (engine.h).
//
// Threads: free functions.
#pragma once

#include "tools/engine.h"

namespace swale::tools {

Result<InfoReport> imd_info(const std::string& path);
Result<VerifyReport> imd_verify(const std::string& path, const VerifyRequest& request);
Result<StatsReport> imd_stats(const std::string& path, const StatsRequest& request);
Status imd_dump(io::Device& device, const std::string& path, DumpOutput* out);
Result<RepairReport> imd_repair(io::Device& device, const std::string& path, const RepairRequest& request);

}  // namespace swale::tools
