// RemotePeers: SharePeers between the nodes of a job (NodePeers), and what a node answers them: as a root, by
// KeptRoots, and for its own bytes, by SharedFiles.
//
// Threads: any. Errors: as NodePeers says, naming the file; a request that is none, or is not for this node,
// is kCorruption or EIO, and changes nothing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "fs/node/kept_roots.h"
#include "fs/node/shared_files.h"
#include "fs/peers/node_peers.h"

namespace swale::fs {

// The server that keeps the file's node.
NodeId root_of(const meta::FileId& file);
std::string text_of(const meta::FileId& file);  // for messages

// Bytes that another node has of a file (PeerMethod::kFetch), in pieces.
Status fetch_from(NodePeers& nodes, NodeId node, const meta::FileId& file,
                  std::span<const SharePeers::Wanted> wanted);

class RemotePeers final : public SharePeers, public PeerRequests {
 public:
  RemotePeers(NodePeers& nodes, KeptRoots& roots) : nodes_(nodes), roots_(roots) {}
  // A node's own part of a sync: all that it has committed of the file is durable. False: it takes a drain.
  // Before start(); without one nothing is kept beyond the power of a node.
  using Keep = std::function<Result<bool>(const meta::FileId& file)>;
  void keep_by(Keep keep) { keep_ = std::move(keep); }
  bool keeps() const { return keep_ != nullptr; }
  // Before a process of any node uses a file. `others` answers what is not for bytes; null: nobody does.
  Status start(SharedFiles* files, PeerRequests* others = nullptr) {
    files_ = files;
    others_ = others;
    return nodes_.start(this);
  }

  Result<ShareAnswer> ask(const ShareRequest& request) override;
  Status fetch(NodeId node, const meta::FileId& file, std::span<const Wanted> wanted) override;
  Status commit_at(const meta::FileId& file, const std::vector<ShareHold>& nodes) override;
  Status take_back(const meta::FileId& file, const std::vector<ShareHold>& holds) override;
  // Each of them has made durable what it has of the file. EAGAIN: one says that it takes a drain.
  Status keep_at(std::span<const NodeId> nodes, const meta::FileId& file);
  Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload) override;
  bool answer_at_once(PeerMethod method, NodeId from, Bytes payload, const Reply& reply) override;

 private:
  Result<ShareRequest> asked_as_root(NodeId from, Bytes payload) const;
  Result<std::string> answer_as_root(NodeId from, Bytes payload);
  Result<std::string> give_bytes(Bytes payload);
  Result<ShareAnswer> obey_as_root(const ShareRequest& request);
  Status keep_at(NodeId node, const meta::FileId& file);
  // At once; their answers, in this order.
  std::vector<Result<std::string>> tell_holders(PeerMethod method, const meta::FileId& file,
                                                const std::vector<ShareHold>& holds);

  NodePeers& nodes_;
  KeptRoots& roots_;
  SharedFiles* files_ = nullptr;
  Keep keep_;
  PeerRequests* others_ = nullptr;
};

}  // namespace swale::fs
