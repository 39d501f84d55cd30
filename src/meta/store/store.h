// Store: a metadata store as one rank of a job has it open: the servers that this rank hosts, and clients.
//
//   auto store = Store::open(job, device, "/nvme/store", options);          // collective
//   auto client = (*store)->client();  // any thread, as many as are wanted
//   auto file = client->open("/run7/checkpoint", Client::kCreate, 0644);
//   client->put(&*file, segments);  client->get(*file, ranges, &found);
//   (*store)->close();                                                      // collective
//
// Servers are hosted by the first `meta.servers_per_node` ranks of each node. A store that exists keeps its
// number of servers; they are then divided among the ranks that host. Where the directory is on storage of
// the node, a server is hosted where its data is, whatever order the nodes come in; a server that is nowhere
// fails the opening by name (roster.h).
//
// One job has a store open at a time: the first rank of each node holds DIR/swale.lock (io/lock_file.h), rank
// 0 before the others. A rank that finds a lock of its own job shares the directory with its holder. The lock
// keeps two jobs apart; what protects the data from a job that lost its lock is the fence of its commits
// (store/job_claim.h).
//
// A job that only reads (OpenStore::kReadOnly) takes no lock and changes nothing on storage, so it may be
// another user's, and opens beside a job that writes: it sees what was acknowledged before it opened
// (reading.h), and goes on seeing that.
//
// A store that was closed has all the files that it had then, unchanged, or opening it fails and changes
// nothing (closing.h).
//
// Threads: open and close collectively, by one thread at a time; client() by any. A Client by one thread at a
// time.
// Errors: all ranks return the same status from open and close. kBusy from open names the job that has the
// store open.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/device.h"
#include "io/lock_file.h"
#include "meta/client/client.h"
#include "meta/server/manifest.h"
#include "meta/server/service.h"
#include "meta/store/rank_service.h"
#include "meta/store/reading.h"
#include "meta/store/roster.h"
#include "meta/store/settings.h"
#include "meta/store/store_memory.h"
#include "net/job/job.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(net::Job& job, io::Device& device, const std::string& directory,
                                             const StoreOptions& options);
  ~Store();
  Store(const Store&) = delete;

  std::unique_ptr<Client> client();
  const Partition& partition() const { return *partition_; }
  // The servers of this rank, for counters; locked meanwhile.
  template <class Act>
  void with_servers(const Act& act) {
    if (service_) service_->with_cores(act);
  }

  // Collective, when this rank's clients are gone and its calls complete. What was acknowledged is durable
  // already. If it fails the store is as after a crash: the next job recovers it.
  Status close();

 private:
  explicit Store(net::Job& job, const StoreOptions& options) : job_(job), options_(options) {}
  Status begin(io::Device& device, const std::string& directory);
  Status lock(io::Device& device, const std::string& directory, const std::string& job);
  Status check_same_directory(io::Device& device, const std::string& directory, const std::string& job);
  bool read_only() const { return options_.open == OpenStore::kReadOnly; }
  RingMode ring_mode() const { return options_.ring.value_or(ring_for(job_.size())); }
  // Whether this rank looks into its directory for all ranks that share it.
  bool looks() const { return lock_ || (read_only() && job_.nodes()->seat(job_.rank()).local == 0); }
  Status check_presence();
  Status find_manifest(bool* is_new, uint64_t* own_generation);
  Status check_age(uint64_t own_generation, const std::vector<uint32_t>& here) const;
  Status find_servers(uint64_t own_generation);
  Status host_where_found(const std::map<net::Rank, std::string>& found);
  Status note_places(bool is_new);
  Status check_files(bool is_new) const;
  Status mark_open();
  bool keeps_manifest() const;
  Status write_manifest(const Manifest& manifest);
  bool hosts(Server server) const { return hosts_[server] == job_.rank(); }
  Status mark_closed();
  Status close_servers(std::string* about);
  std::vector<net::Rank> hosting_ranks() const;
  void find_home();
  Result<std::vector<std::unique_ptr<ServerCore>>> open_servers(io::Device& device,
                                                                const std::string& directory);

  net::Job& job_;
  StoreOptions options_;  // the shard's sizes are those that the memory allows
  io::Device* device_ = nullptr;
  std::string directory_;
  Manifest manifest_;
  std::unique_ptr<Partition> partition_;
  std::vector<net::Rank> hosts_;      // of each server
  Server home_ = 0;                   // whose delegate serves this rank
  std::optional<io::LockFile> lock_;  // of this rank's directory; released after the servers have stopped
  bool spread_ = false;               // ranks have the store in several directories
  std::vector<std::unique_ptr<io::OverlayDevice>>
      views_;  // of a store that is only read; the servers use them
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<RankService> requests_;  // of all kinds, to this rank
  std::unique_ptr<net::Rpc> rpc_;
  bool closed_ = false;
};

}  // namespace swale::meta
