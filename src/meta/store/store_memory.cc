#include "meta/store/store_memory.h"

#include <algorithm>
#include <utility>

#include "meta/server/server_memory.h"
#include "net/job/agree.h"
#include "net/job/memory_share.h"
#include "net/rpc/rpc_memory.h"

namespace swale::meta {
namespace {

constexpr uint64_t kContentBytesLeast = 2 * kMiB;  // of some hundred names

// Of `bytes` the part that requests get: their least, and of the rest as much as their wish is of all wishes.
uint64_t part_of_requests(uint64_t bytes, uint64_t least, uint64_t least_all, uint64_t wish,
                          uint64_t wish_all) {
  if (wish_all == least_all) return wish;
  const double share = static_cast<double>(wish - least) / static_cast<double>(wish_all - least_all);
  return least + static_cast<uint64_t>(static_cast<double>(bytes - least_all) * share);
}

}  // namespace

Result<std::unique_ptr<StoreMemory>> StoreMemory::take(net::Job& job, const std::string& directory,
                                                       uint64_t servers, ShardOptions* shard,
                                                       net::RpcOptions* requests) {
  const uint64_t requests_least = net::rpc_memory_bytes_least(*requests, job.size());
  const uint64_t requests_wish = net::rpc_memory_bytes(*requests, job.size());
  const uint64_t content = servers > 0 ? kContentBytesLeast : 0;
  const uint64_t least = content + requests_least + servers * server_bytes_least(*shard);
  const uint64_t wish = content + requests_wish + servers * server_memory(*shard).bytes();
  const MemoryHolder holder{"metadata store", directory};
  const MemoryLimit limit = net::memory_limit(job, net::kNoDefaultLimit);
  const std::string context = fmt::format("{}: job.memory", directory);

  MemoryShares& shares = MemoryShares::of_this_process();
  const Result<uint64_t> offer = shares.offer(holder, least, wish, limit);
  SWALE_RETURN_IF_ERROR(net::agree(job, offer.status().with_context(context)));
  const uint64_t mine = part_of_requests(*offer, requests_least, least, requests_wish, wish);
  SWALE_ASSIGN_OR_RETURN(const uint64_t equal, net::least_number(net::ranks_of(job), mine));
  std::unique_ptr<StoreMemory> memory(new StoreMemory(limit, directory));
  const auto reserve = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(memory->fixed_, shares.take(holder, *offer - content - mine + equal, limit));
    SWALE_ASSIGN_OR_RETURN(memory->content_, shares.take({"stored metadata", directory}, content, limit));
    return {};
  };
  SWALE_RETURN_IF_ERROR(net::agree(job, reserve().with_context(context)));
  *requests = net::rpc_options_within(*requests, job.size(), equal);
  if (servers > 0) *shard = options_within(*shard, (*offer - content - mine) / servers);
  return memory;
}

Status StoreMemory::stored(uint64_t bytes) {
  // What comes before the servers look again: a sixteenth.
  const uint64_t wanted = std::max(bytes + bytes / 16 + kMiB, kContentBytesLeast);
  MemoryShares& shares = MemoryShares::of_this_process();
  if (shares.resize(&content_, wanted, limit_).ok()) return {};
  // With another limit the fixed share would be half of it, if that is more than the least.
  const uint64_t others = shares.used() - std::min(shares.used(), fixed_.bytes() + content_.bytes());
  return error(
      Code::kResourceExhausted, Scope::kOperation,
      "{}: job.memory={}: what is stored needs {} bytes, beside {} for servers and requests and {} of "
      "other holders; give at least {}, or remove files",
      directory_, limit_.bytes, wanted, fixed_.bytes(), others,
      others + wanted + std::max(wanted, fixed_.bytes()));
}

}  // namespace swale::meta
