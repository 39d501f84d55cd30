#include "net/job/fabric_choice.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/log.h"
#include "net/fabric/interfaces.h"

namespace swale::net {
namespace {

constexpr char kSiteFile[] = "/etc/swale/trust";
constexpr size_t kSiteFileBytesMax = 4 * kKiB;

// "tcp" itself, or what stands for nothing else.
bool names_tcp(std::string_view tls) {
  if (tls.starts_with('^')) return false;
  while (!tls.empty()) {
    const std::string_view name = tls.substr(0, tls.find(','));
    if (name == "tcp" || name == "\\tcp") return true;
    tls.remove_prefix(std::min(tls.size(), name.size() + 1));
  }
  return false;
}

// Whether UCX's transports by RDMA are among those that the list leaves: "" and "all" are all, "^a,b" is all
// but a and b.
bool leaves_rdma(std::string_view tls) {
  if (tls.empty()) return true;
  const bool all_but = tls.starts_with('^');
  bool any = false;
  bool families[3] = {};  // rc, ud, dc
  for (std::string_view rest = tls.substr(all_but ? 1 : 0); !rest.empty();) {
    std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.starts_with('\\')) name.remove_prefix(1);  // "\rc" is rc itself and not what it stands for
    const std::string_view family = name.substr(0, 2);
    const bool known = (family == "rc" || family == "ud" || family == "dc") && name.find(':') == name.npos &&
                       (name.size() == 2 || name[2] == '_');
    any |= known || name == "ib" || name == "all";
    families[0] |= name == "rc" || name == "ib";
    families[1] |= name == "ud" || name == "ib";
    families[2] |= name == "dc" || name == "ib";
  }
  return all_but ? !(families[0] && families[1] && families[2]) : any;
}

// InfiniBand devices are named with their port, "mlx5_0:1"; TCP's are "eth0".
bool leaves_rdma_devices(std::string_view devices) {
  return devices.empty() || devices == "all" || devices.find(':') != devices.npos;
}

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = line.find_first_not_of(kSpace);
  if (begin == line.npos) return {};
  return line.substr(begin, line.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

bool site_trusts_network(const std::string& path, std::string* why_not) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno != ENOENT && errno != ENOTDIR) *why_not = errno_status(errno, path).to_string();
    return false;
  }
  struct stat about {};
  std::string text(kSiteFileBytesMax, '\0');
  const bool known = ::fstat(fd, &about) == 0;
  const ssize_t bytes = known && S_ISREG(about.st_mode) ? ::read(fd, text.data(), text.size()) : 0;
  ::close(fd);
  if (!known || !S_ISREG(about.st_mode) || about.st_uid != 0 || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    *why_not = fmt::format(
        "{} has owner {} and mode {:o}: it must be a file of root's that nobody else can write to", path,
        about.st_uid, about.st_mode & 07777);
    return false;
  }
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (trimmed(line) == "network") return true;
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  return false;
}

NetworkView look_at_network(const JobOptions& options, const GetEnvironment& environment,
                            const RdmaFolders& rdma) {
  NetworkView view;
  const char* const tls = environment("UCX_TLS");
  const char* const devices = environment("UCX_NET_DEVICES");
  view.rdma = !rdma_ports(rdma.ports).empty() && may_open_rdma(rdma.devices) &&
              (tls == nullptr || leaves_rdma(tls)) && (devices == nullptr || leaves_rdma_devices(devices));
  std::string why_not;
  view.trusted = options.trusts_network || options.listens_on_one_node ||
                 (tls != nullptr && names_tcp(tls)) || site_trusts_network(kSiteFile, &why_not);
  if (!why_not.empty()) log_warn("the network is not trusted for the site's word: {}", why_not);
  return view;
}

Result<FabricChoice> choose_fabric(const std::string& transport, const NetworkFacts& facts) {
  if (transport == "loopback")
    return FabricChoice{Fabric::kLoopback, Reach::kAnywhere, "job.transport=loopback"};
  if (transport == "tls") return FabricChoice{Fabric::kTls, Reach::kAnywhere, "job.transport=tls"};
  if (transport != "auto" && transport != "ucx") {
    return invalid_argument("job.transport is \"{}\", expected auto, ucx, tls or loopback", transport);
  }
  if (facts.one_memory) return FabricChoice{Fabric::kUcx, Reach::kNode, "all ranks share one memory"};
  if (facts.without_trust < 0) return FabricChoice{Fabric::kUcx, Reach::kAnywhere, "the network is trusted"};
  if (facts.without_rdma < 0) return FabricChoice{Fabric::kUcx, Reach::kHardware, "all nodes have RDMA"};
  if (transport == "auto") {
    return FabricChoice{
        Fabric::kTls, Reach::kAnywhere,
        fmt::format("rank {} has no RDMA, and rank {} does not say that the network is trusted",
                    facts.without_rdma, facts.without_trust)};
  }
  return invalid_argument(
      "job.transport=ucx, but rank {} has no RDMA device: over TCP, whoever reaches a port of UCX writes "
      "into the memory of a rank. If nobody but this job's user can, say so with job.trust=network (rank {} "
      "does not), or the site with the word network in {}; else use job.transport=tls",
      facts.without_rdma, facts.without_trust, kSiteFile);
}

}  // namespace swale::net
