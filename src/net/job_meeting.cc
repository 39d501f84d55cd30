#include "net/job_meeting.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/coding.h"
#include "base/process_identity.h"
#include "net/fabric_module.h"
#include "net/loopback_transport.h"

namespace swale::net {
namespace {

constexpr uint32_t kHandshakeVersion = 8;

const char* text_of(RouteChoice route) {
  switch (route) {
    case RouteChoice::kAuto:
      return "auto";
    case RouteChoice::kDirect:
      return "direct";
    case RouteChoice::kThreeHop:
      return "three-hop";
  }
  return "one that this version does not know";
}

// Nodes are numbered in the order of their first ranks.
Result<NodeMap> node_map_of(const std::vector<std::string>& machines) {
  std::unordered_map<std::string_view, int32_t> numbers;
  std::vector<int32_t> node_of;
  node_of.reserve(machines.size());
  for (const std::string& machine : machines)
    node_of.push_back(numbers.try_emplace(machine, static_cast<int32_t>(numbers.size())).first->second);
  return NodeMap::of_ranks(node_of);
}

Result<Posting> choose_posting(const JobOptions& options, const NodeCounts& nodes) {
  const std::string& wanted = options.posting;
  if (wanted != "auto" && wanted != "queue" && wanted != "direct") {
    return invalid_argument("net.posting is \"{}\", expected auto, queue or direct", wanted);
  }
  const bool direct = wanted == "direct" || (wanted == "auto" && nodes.here > 1);
  return direct ? Posting::kDirect : Posting::kQueue;
}

// A rank that polls where another one needs the processor would keep that one from answering.
Nanos choose_poll(const JobOptions& options, const NodeCounts& nodes) {
  return nodes.here <= ::sysconf(_SC_NPROCESSORS_ONLN) ? options.poll : 0;
}

Result<std::unique_ptr<Transport>> make_own_end(Bootstrap& bootstrap, const JobOptions& options,
                                                const JobMeeting& meeting) {
  if (options.transport == "auto" || options.transport == "ucx") {
    SWALE_ASSIGN_OR_RETURN(const FabricModule* ucx, load_fabric("ucx"));
    return ucx->make(bootstrap.rank(), bootstrap.size(),
                     {.posting = meeting.posting, .poll = meeting.poll, .settings = {}});
  }
  if (options.transport != "loopback") {
    return invalid_argument("net.transport is \"{}\", expected auto, ucx or loopback", options.transport);
  }
  std::shared_ptr<LoopbackFabric> fabric =
      bootstrap.rank() == 0 ? LoopbackFabric::create(bootstrap.size()) : nullptr;
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         bootstrap.allgather(fabric ? std::to_string(fabric->id()) : ""));
  if (!fabric) fabric = LoopbackFabric::find(std::strtoull(all[0].c_str(), nullptr, 10));
  if (!fabric)
    return invalid_argument("transport \"loopback\" joins threads of one process, rank 0 is in another");
  return fabric->transport(bootstrap.rank(), meeting.posting);
}

}  // namespace

Result<JobMeeting> meet(Bootstrap& bootstrap, const JobOptions& options) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return errno_status(errno, "getrandom");
  std::string mine;
  append_u32(&mine, kHandshakeVersion);
  append_u64(&mine, random);
  append_sized(&mine, host_name());
  append_sized(&mine, options.node.empty() ? this_machine() : options.node);
  append_sized(&mine, options.transport);
  append_u8(&mine, static_cast<uint8_t>(options.route));
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all, bootstrap.allgather(mine));
  JobMeeting meeting;
  std::vector<std::string> machines;
  for (size_t i = 0; i < all.size(); ++i) {
    Decoder in(all[i]);
    const uint32_t version = in.u32();
    const uint64_t number = in.u64();
    meeting.hosts.emplace_back(in.sized());
    machines.emplace_back(in.sized());
    const Bytes transport = in.sized();
    const auto route = static_cast<RouteChoice>(in.u8());
    if (version != kHandshakeVersion) {
      return error(
          Code::kUnsupported, Scope::kFatal,
          "rank {} speaks handshake {}, this rank {} speaks {}: all ranks need the same version of Swale", i,
          version, bootstrap.rank(), kHandshakeVersion);
    }
    SWALE_RETURN_IF_ERROR(in.finish(fmt::format("identity of rank {}", i)));
    if (transport != options.transport) {
      return invalid_argument("rank {} was opened with transport \"{}\", rank {} with \"{}\"", i, transport,
                              bootstrap.rank(), options.transport);
    }
    if (route != options.route) {
      return invalid_argument(
          "rank {} was opened with net.route={}, rank {} with {}: all ranks must give the same", i,
          text_of(route), bootstrap.rank(), text_of(options.route));
    }
    if (i == 0) meeting.secret = number;
  }
  meeting.nodes = count_nodes(machines, bootstrap.rank());
  SWALE_ASSIGN_OR_RETURN(NodeMap map, node_map_of(machines));
  meeting.node_map = std::make_shared<const NodeMap>(std::move(map));
  SWALE_ASSIGN_OR_RETURN(meeting.posting, choose_posting(options, meeting.nodes));
  meeting.poll = choose_poll(options, meeting.nodes);
  return meeting;
}

Result<JoinedTransport> make_transport(Bootstrap& bootstrap, const JobOptions& options,
                                       const JobMeeting& meeting) {
  Result<std::unique_ptr<Transport>> made = make_own_end(bootstrap, options, meeting);
  // The failure of one rank is told to all: a first byte, then the address or the message.
  const std::string mine =
      made.ok() ? fmt::format("A{}", (*made)->address()) : fmt::format("F{}", made.status().message());
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all, bootstrap.allgather(Bytes(mine).substr(0, 4 * kKiB)));
  SWALE_RETURN_IF_ERROR(made.status());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() < 2 || all[i][0] != 'A') {
      return error(Code::kAborted, Scope::kFatal, "rank {} (host {}) could not start its transport: {}", i,
                   meeting.hosts[i], all[i].substr(std::min<size_t>(1, all[i].size())));
    }
    all[i].erase(0, 1);
  }
  return JoinedTransport{*std::move(made), std::move(all)};
}

}  // namespace swale::net
