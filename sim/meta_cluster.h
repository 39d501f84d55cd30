// A metadata store's servers and clients on one thread, from one seed: the very cores that run in production
// (ServerCore, ClientCore, Delegate, AttributeTable, Shard), a network that delays, loses and reorders
// requests and answers, servers that are killed and come back from what their storage kept, and a checker
// that knows what each get may answer.
//
// Fault model. A request or an answer is lost by lot; its caller hears kDeadlineExceeded later, and the
// request may have been done. A killed server loses what was not durable (io::MemoryDevice); calls to it end
// as kUnavailable; it restarts later. Works of storage take time, during which other events happen.
//
// The checker. Files consist of cells. Each put or truncate of a cell has a time of asking and a time of
// success. A get may answer a cell with a write that was asked before the get ended, unless another one was
// asked after that write had succeeded and succeeded itself before the get began. Sizes: no stat may show
// less than a close that had ended before.
//
// Threads: one. Canaries: see MetaClusterParams::canary.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "io/device.h"
#include "meta/index/shard.h"

namespace swale::sim {

struct MetaClusterParams {
  uint64_t seed = 1;
  uint32_t servers = 4;
  uint32_t clients = 6;
  uint32_t operations = 60;  // of each client
  uint32_t lose_per_mille = 20;
  uint32_t kills = 3;
  // What must be seen: a shard that acknowledges what it does not keep; a put that is done again, without its
  // name.
  enum class Canary { kNone, kForgetCommit, kRepeatPut } canary = Canary::kNone;
  // The shard of a server; opened again after each restart on the same device.
  using OpenShard = std::function<Result<std::unique_ptr<meta::Shard>>(io::Device& device, uint32_t server,
                                                                       meta::LoggedTable* table)>;
  OpenShard open_shard;
};

struct MetaClusterOutcome {
  std::string problem;  // "": all is right
  uint64_t operations = 0, failed = 0, gets = 0, cells_checked = 0;
  uint64_t lost = 0, killed = 0, duplicates = 0, winners = 0;
};

MetaClusterOutcome run_meta_cluster(const MetaClusterParams& params);

}  // namespace swale::sim
