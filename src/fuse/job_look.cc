#include "fuse/job_look.h"

#include <utility>
#include <vector>

#include "base/contain.h"
#include "fs/losses/loss_fs.h"
#include "fs/losses/loss_peers.h"
#include "fuse/mounted.h"
#include "net/job/agree.h"

namespace swale::fuse {
namespace {

Result<std::vector<fs::LeftDetails>> share_details(const Look& look) {
  std::string mine;
  const Status own = contain([&] { mine = fs::encode(look.own.details(look.plan)); });
  SWALE_RETURN_IF_ERROR(net::agree(look.job, own));
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, look.job.allgather(mine));
  std::vector<fs::LeftDetails> details;
  for (const std::string& each : all) {
    SWALE_ASSIGN_OR_RETURN(fs::LeftDetails one, fs::decode_left_details(each));
    details.push_back(std::move(one));
  }
  return details;
}

}  // namespace

Status serve_look(const Look& look) {
  SWALE_ASSIGN_OR_RETURN(std::vector<fs::LeftDetails> details, share_details(look));
  fs::NodePeersOptions of_peers;
  of_peers.own = look.own.node();
  of_peers.nodes = look.plan.nodes;
  std::unique_ptr<fs::LossPeers> bytes;  // outlives the threads of `peers`
  std::unique_ptr<fs::NodePeers> peers;
  {
    const SignalsBlocked blocked;
    SWALE_ASSIGN_OR_RETURN(peers, fs::NodePeers::open(look.job, of_peers));
    bytes = std::make_unique<fs::LossPeers>(*peers, look.own);
    SWALE_RETURN_IF_ERROR(net::agree(look.job, peers->start(bytes.get())));
  }
  fs::LossFsOptions of_fs;
  of_fs.root = look.folders.root.get();
  of_fs.backing = look.folders.backing;
  of_fs.job_folder = look.job_folder;
  fs::LossFs tree(
      look.plan, look.surveys, std::move(details), look.backing,
      [&bytes](fs::NodeId node, const meta::FileId& file, std::span<const fs::LossFs::Wanted> wanted) {
        return bytes->fetch(node, file, wanted);
      },
      std::move(of_fs));
  Mounted mounted;
  mounted.mountpoint = look.folders.mountpoint;
  mounted.name = "swale:" + look.folders.backing;
  mounted.trusts_files = false;
  mounted.read_only = true;
  mounted.threads = look.threads;
  const Status served = serve_mounted(mounted, &tree, raise_descriptor_limit(), look.ready);
  Status ended = served;
  if (served.ok()) ended = net::agree(look.job, served);  // others read from this node until then
  return ended.ok() ? peers->close() : ended;
}

}  // namespace swale::fuse
