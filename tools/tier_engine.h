// The row of the tiered write buffer in the table of engines (engine.h). Its directories have no manifest:
// they are known by what lies in them. Which of the three a path is decides what a command does:
//
//   SSD directory      the log: read as a later mount would, without changing it; kBusy while a process has
//                      it open
//   backing directory  which log it belongs to, and the list of what is lost
//   mountpoint         asks the process that serves it, as `swale tier stats` does
// An I/O server that runs is asked by its SSD directory.
//
// Threads: free functions.
#pragma once

#include "tier/store/store.h"
#include "tools/engine.h"

namespace swale::tools {

extern const Engine kTierEngine;

// What the mount at the path, or the I/O server whose SSD directory it is, says of itself. kInvalidArgument:
// it is neither.
Result<Json> ask_tier(const std::string& path);
std::string tier_stats_table(const Json& stats);
// kBusy: a process has the SSD directory open.
Status expect_unused(io::Device& device, const std::string& ssd);
// kInvalidArgument: the backing directory is there, and no log was ever made for it.
Status expect_marked(io::Device& device, const std::string& backing);
// The lock of the SSD directory or the backing directory at the path, held or not; "": it is neither.
std::string tier_lock_path(io::Device& device, std::string path);
// A record as `dump --json` shows it.
Json json_of(const tier::LogRecord& record);
// What a log holds, without its problems.
Json json_of(const tier::LogReport& report);
Json json_of(const std::vector<tier::KeptBytes>& kept);

}  // namespace swale::tools
