// What bench_meta_client measures: a store of segments as the ranks of a job call it. Rank 0 has the server
// and calls nothing; the others put and get.
// Threads: one a rank. Errors: die().
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "meta/index/types.h"

namespace swale::bench {

class ClientStore {
 public:
  virtual ~ClientStore() = default;

  // [collective] Opens the store at `path`.
  virtual void open(int rank, int ranks, const std::string& path) = 0;
  virtual void put(std::span<const meta::Extent> message) = 0;
  // Where each of the segments stands; the places in them are not looked at. Reads each answer as its caller
  // would, and writes out[i] of segment i.
  virtual void get(std::span<const meta::Extent> message, std::span<meta::Place> out) = 0;
  // On rank 0: what the server says of itself.
  virtual nlohmann::json about() { return nlohmann::json::object(); }
  virtual void close() = 0;
};

std::unique_ptr<ClientStore> make_swale_client();                               // through the C interface
std::unique_ptr<ClientStore> make_rival_client(const std::string& store_name);  // behind net::Rpc; or null

}  // namespace swale::bench
