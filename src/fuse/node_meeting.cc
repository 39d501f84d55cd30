#include "fuse/node_meeting.h"

#include <filesystem>
#include <system_error>
#include <unordered_map>

#include "base/coding.h"
#include "base/hash.h"
#include "fs/job/backing_claim.h"
#include "io/descriptor_path.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::fuse {
namespace {

// A gift is the hash of a node's word. The answer: a varint a rank, nodes in the order of their first ranks.
class WhoIsWhere final : public net::Survey {
 public:
  void take(net::Rank, size_t offset, Bytes piece) override {
    if (offset != 0 || piece.size() < sizeof(uint64_t)) return;
    const auto number = static_cast<uint32_t>(nodes_.size());
    append_varint(&answer_, nodes_.try_emplace(get_u64(piece.data()), number).first->second);
  }
  std::string answer() override { return std::move(answer_); }

 private:
  std::unordered_map<uint64_t, uint32_t> nodes_;
  std::string answer_;
};

}  // namespace

Result<Meeting> meet_in_backing(const JobFolders& folders, const JobMountOptions::Nodes& nodes) {
  Meeting meeting;
  SWALE_ASSIGN_OR_RETURN(meeting.folder, fs::BackingClaim::open_meeting(folders.root.get(), folders.backing));
  net::RendezvousOptions options;
  options.directory = io::descriptor_path(meeting.folder);
  options.is_descriptor = true;
  options.job_id = nodes.meeting;
  options.node_id = net::this_node_id();
  if (!nodes.settings.job.node.empty()) options.node_id += "-" + nodes.settings.job.node;
  options.rank = nodes.own;
  options.size = nodes.count;
  options.deadline = nodes.settings.join_deadline;
  auto bootstrap = net::rendezvous_bootstrap(options);
  if (!bootstrap.ok()) return bootstrap.status().with_context(folders.backing + "/.swale/meeting");
  meeting.bootstrap = std::move(*bootstrap);
  return meeting;
}

Result<net::NodeMap> find_nodes(net::Bootstrap& bootstrap, const std::string& node) {
  std::string mine;
  append_u64(&mine, hash_bytes(node));
  WhoIsWhere survey;
  SWALE_ASSIGN_OR_RETURN(const std::string answer, bootstrap.ask(mine, &survey));
  std::vector<int32_t> nodes;
  Decoder in(answer);
  while (in.ok() && in.remaining() > 0) nodes.push_back(static_cast<int32_t>(in.varint32()));
  SWALE_RETURN_IF_ERROR(in.status("which ranks share which nodes"));
  if (nodes.size() != static_cast<size_t>(bootstrap.size()))
    return corruption("{} ranks met as {}", bootstrap.size(), nodes.size());
  return net::NodeMap::of_ranks(nodes);
}

std::string node_word(const net::JobSettings& settings) {
  if (!settings.job.node.empty()) return settings.job.node;
  std::error_code unknown;  // no /proc: then all of the machine are taken to see the same mounts
  return net::this_machine() + std::filesystem::read_symlink("/proc/self/ns/mnt", unknown).string();
}

std::vector<net::AgreedOption> options_in_common(const JobMountOptions& options) {
  using AtEnd = JobMountOptions::AtEnd;
  const char* const at_end = options.at_end == AtEnd::kDrain  ? "drain"
                             : options.at_end == AtEnd::kKeep ? "keep"
                                                              : "discard";
  const bool on_node = options.fsync == JobMountOptions::Fsync::kNode;
  return {{"mounts", options.unmounted ? "nowhere"
                     : options.mounts  ? "yes"
                                       : "no"},
          {"--at-end", at_end},
          {"--fsync", on_node ? "node" : "backing"}};
}

}  // namespace swale::fuse
