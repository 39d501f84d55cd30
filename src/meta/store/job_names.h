// JobNames: the tree of a job's file system as one node's rank of a job has it open: its server and its
// client.
//
//   auto names = JobNames::open(job, device, "/nvme/job/names", options);   // collective, each rank a node
//   auto made = (*names)->client().create(kRootDirectory, "f", {.mode = 0644}, true);
//   (*names)->close();                                                      // collective
//
// Each rank hosts a server, in a directory of its node. DIR/tree.json says which server of which tree that
// is: in a later job each is served where its files are, whatever order the nodes come in, and one that is
// nowhere fails the opening by name. A tree keeps its number of servers.
//
// A node that is gone holds nothing: what nodes of earlier jobs have held is let go at the opening.
//
// Threads: open and close collectively, by one thread at a time; client() by any. Errors: all ranks return
// the same status from open and close. Limits: a server a rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/device.h"
#include "meta/client/names_client.h"
#include "meta/server/service.h"
#include "meta/store/rank_service.h"
#include "meta/store/store_memory.h"
#include "net/job/job.h"

namespace swale::meta {

struct JobNamesOptions {
  Nanos deadline = seconds(30);  // of a call of a client
  ShardOptions shard = {};       // sizes: as small as a log needs
  JobNamesOptions();
};

class JobNames {
 public:
  static Result<std::unique_ptr<JobNames>> open(net::Job& job, io::Device& device,
                                                const std::string& directory, const JobNamesOptions& options);
  ~JobNames();
  JobNames(const JobNames&) = delete;

  // What a job before has left here, for a recovery without all of its servers: nobody is served.
  // kNotFound: no server has been here.
  struct Left {
    uint64_t tree = 0;
    uint32_t servers = 0;
    std::unique_ptr<NamesServer> server;
  };
  static Result<Left> open_left(io::Device& device, const std::string& directory) noexcept;

  NamesClient& client() { return *client_; }
  uint32_t servers() const { return static_cast<uint32_t>(hosts_.size()); }
  // The server of this rank, for counters and tests; locked meanwhile.
  template <class Act>
  void with_server(const Act& act) {
    service_->with_names(act);
  }

  // Collective, when no thread of this rank asks any more.
  Status close();

 private:
  struct Place;  // what DIR/tree.json says

  explicit JobNames(net::Job& job, const JobNamesOptions& options) : job_(job), options_(options) {}
  Status begin(io::Device& device, const std::string& directory);
  Status find_servers(io::Device& device, const std::string& directory);
  static Result<Place> read_place(io::Device& device, const std::string& directory);
  Status place_all(const std::vector<Place>& places, const std::string& directory);

  net::Job& job_;
  JobNamesOptions options_;
  std::string directory_;
  uint64_t tree_ = 0;             // its id
  int64_t own_ = -1;              // the server of this rank; -1: none
  std::vector<net::Rank> hosts_;  // of each server
  EntryCache cache_;              // what this node remembers
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<RankService> requests_;
  std::unique_ptr<net::Rpc> rpc_;
  std::unique_ptr<NamesClient> client_;
  bool closed_ = false;
};

}  // namespace swale::meta
