// LossPeers: bytes of the nodes that are left, for each other's LossFs.
//
// Threads: any. Errors: as NodePeers and LeftNode::read.
#pragma once

#include <span>
#include <string>

#include "fs/losses/left_node.h"
#include "fs/peers/node_peers.h"
#include "fs/peers/remote_peers.h"

namespace swale::fs {

class LossPeers final : public PeerRequests {
 public:
  LossPeers(NodePeers& nodes, LeftNode& own) : nodes_(nodes), own_(own) {}

  Status fetch(NodeId node, const meta::FileId& file, std::span<const SharePeers::Wanted> wanted) {
    if (node != own_.node()) return fetch_from(nodes_, node, file, wanted);
    for (const SharePeers::Wanted& each : wanted) SWALE_RETURN_IF_ERROR(own_.read(file, each.span, each.to));
    return {};
  }

  Result<std::string> answer(PeerMethod method, NodeId, Bytes payload) override {
    if (method != PeerMethod::kFetch)
      return Status(Code::kUnsupported, Scope::kOperation, "a node that is only looked at does not do that");
    SWALE_ASSIGN_OR_RETURN(const FetchRequest request, decode_fetch_request(payload));
    std::string bytes(request.bytes(), '\0');
    MutableBytes rest(bytes);
    for (const Span& span : request.spans) {
      SWALE_RETURN_IF_ERROR(own_.read(request.file, span, rest.first(span.end - span.begin)));
      rest = rest.subspan(span.end - span.begin);
    }
    return bytes;
  }

 private:
  NodePeers& nodes_;
  LeftNode& own_;
};

}  // namespace swale::fs
