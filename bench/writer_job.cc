#include "bench/writer_job.h"

#include <cstdlib>
#include <utility>

#include "net/fabric/fabric_module.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::bench {

void register_network() {
  net::register_fabric(net::tls_fabric());
  net::register_fabric(net::ucx_fabric());
}

std::unique_ptr<net::Job> open_job(int ranks, const net::JobOptions& job) {
  net::RendezvousOptions options;
  const net::LaunchEnvironment launch =
      take(net::detect_launch([](const char* name) { return std::getenv(name); }));
  std::unique_ptr<net::Bootstrap> bootstrap = net::solo_bootstrap();
  if (ranks > 1) {
    options.directory = std::getenv("SWALE_JOB_RENDEZVOUS");
    options.job_id = launch.job_id;
    options.node_id = net::this_node_id();
    options.rank = launch.rank;
    options.size = launch.size;
    bootstrap = take(net::rendezvous_bootstrap(options));
  }
  return take(net::Job::open(std::move(bootstrap), job));
}

}  // namespace swale::bench
