// What networks this node has: addresses that others can reach, and RDMA devices.
//
// Threads: any.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace swale::net {

// An IPv4 or IPv6 address with a port.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string text() const;  // 192.0.2.1:4711, [2001:db8::1]:4711
};

struct InterfaceAddress {
  std::string interface;
  bool loopback = false;
  Endpoint endpoint;  // port 0
  bool running = false;
};

// The addresses of the interfaces in use: up, not loopback, among those that UCX_NET_DEVICES names if it
// names one that exists, and running: but the kernel says so up to a second late, so that one that is only up
// is used where none runs. Loopback only where there is no other. Link-local IPv6 addresses are left out.
Result<std::vector<InterfaceAddress>> addresses_in_use();
// The names of those that UCX can use over TCP: it wants IPv4.
std::vector<std::string> ucx_interfaces();

// The ports of RDMA devices that UCX can use and that are active, as UCX calls them: mlx5_0:1.
std::vector<std::string> rdma_ports(const std::string& folder = "/sys/class/infiniband");
// Whether this process may use an RDMA device: a container may see the ports and have no device.
bool may_open_rdma(const std::string& folder = "/dev/infiniband");

}  // namespace swale::net
