// StoreMemory: what a rank's part of an open metadata store takes of its process's memory: its servers, their
// requests and those of its clients, and what is stored, which grows.
//
// Shares (base/memory_shares.h): "metadata store DIR" with servers and requests, "stored metadata DIR".
//
// Threads: take and the constructor by the opening; stored by one thread at a time. Errors:
// kResourceExhausted names the holders and a sufficient job.memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/memory_shares.h"
#include "meta/index/shard.h"
#include "meta/server/service.h"
#include "net/job/job.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

class StoreMemory final : public ContentBudget {
 public:
  // Takes the shares of this rank, which hosts so many servers, and lowers the options to them. Collective:
  // the requests of all ranks get equal shares.
  static Result<std::unique_ptr<StoreMemory>> take(net::Job& job, const std::string& directory,
                                                   uint64_t servers, ShardOptions* shard,
                                                   net::RpcOptions* requests);

  // What this rank reserves: servers, requests, and what is stored now.
  uint64_t bytes() const { return fixed_.bytes() + content_.bytes(); }

  Status stored(uint64_t bytes) override;

 private:
  StoreMemory(MemoryLimit limit, std::string directory) : limit_(limit), directory_(std::move(directory)) {}

  const MemoryLimit limit_;
  const std::string directory_;
  MemoryBudget::Reservation fixed_;
  MemoryBudget::Reservation content_;
};

}  // namespace swale::meta
