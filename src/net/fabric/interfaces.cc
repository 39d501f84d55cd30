#include "net/fabric/interfaces.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace swale::net {
namespace {

Result<std::vector<InterfaceAddress>> all_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return errno_status(errno, "getifaddrs");
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    InterfaceAddress address{each->ifa_name, (each->ifa_flags & IFF_LOOPBACK) != 0, {}};
    address.running = (each->ifa_flags & IFF_RUNNING) != 0;
    address.endpoint.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.endpoint.storage, each->ifa_addr, address.endpoint.bytes);
    if (family == AF_INET6) {
      const auto* six = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
    }
    found.push_back(std::move(address));
  }
  ::freeifaddrs(all);
  return found;
}

bool named(std::string_view list, std::string_view name) {
  return (',' + std::string(list) + ',').find(',' + std::string(name) + ',') != std::string::npos;
}

template <class Condition>
void keep_if_any(std::vector<InterfaceAddress>* all, const Condition& condition) {
  if (std::any_of(all->begin(), all->end(), condition))
    std::erase_if(*all, [&](const InterfaceAddress& each) { return !condition(each); });
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* open = ::opendir(folder.c_str())) {
    while (const dirent* each = ::readdir(open)) {
      if (each->d_name[0] != '.') names.emplace_back(each->d_name);
    }
    ::closedir(open);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "4: ACTIVE"
bool is_active(const std::string& port) {
  int state = 0;
  if (std::FILE* file = std::fopen((port + "/state").c_str(), "re")) {
    if (std::fscanf(file, "%d", &state) != 1) state = 0;
    std::fclose(file);
  }
  return state == 4;
}

}  // namespace

std::string Endpoint::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&storage);
    ::inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
    return fmt::format("{}:{}", host, ntohs(four->sin_port));
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(&storage);
  ::inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
  return fmt::format("[{}]:{}", host, ntohs(six->sin6_port));
}

Result<std::vector<InterfaceAddress>> addresses_in_use() {
  SWALE_ASSIGN_OR_RETURN(std::vector<InterfaceAddress> all, all_addresses());
  keep_if_any(&all, [](const InterfaceAddress& each) { return !each.loopback; });
  if (const char* devices = std::getenv("UCX_NET_DEVICES"); devices != nullptr)
    keep_if_any(&all, [&](const InterfaceAddress& each) { return named(devices, each.interface); });
  keep_if_any(&all, [](const InterfaceAddress& each) { return each.running; });
  return all;
}

std::vector<std::string> ucx_interfaces() {
  const auto all = addresses_in_use();
  std::vector<std::string> names;
  if (!all.ok()) return names;
  for (const InterfaceAddress& each : *all) {
    const bool known = std::find(names.begin(), names.end(), each.interface) != names.end();
    if (!known && each.endpoint.storage.ss_family == AF_INET) names.push_back(each.interface);
  }
  return names;
}

std::vector<std::string> rdma_ports(const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& device : entries_of(folder)) {
    // Of Amazon and Cisco, and iWARP in software: UCX has no transport for them. RoCE in software checks keys
    // in software.
    const auto begins = [&](const char* name) { return std::string_view(device).starts_with(name); };
    if (begins("efa") || begins("usnic") || begins("siw") || begins("rxe")) continue;
    const std::string ports = fmt::format("{}/{}/ports", folder, device);
    for (const std::string& port : entries_of(ports)) {
      if (is_active(ports + "/" + port)) found.push_back(fmt::format("{}:{}", device, port));
    }
  }
  return found;
}

bool may_open_rdma(const std::string& folder) {
  for (const std::string& device : entries_of(folder)) {
    if (!device.starts_with("uverbs")) continue;
    // Tried: beside the mode there are the rules of control groups.
    const int fd = ::open(fmt::format("{}/{}", folder, device).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    ::close(fd);
    return true;
  }
  return false;
}

}  // namespace swale::net
