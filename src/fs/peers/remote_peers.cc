#include "fs/peers/remote_peers.h"

#include <algorithm>
#include <cerrno>

namespace swale::fs {
namespace {

constexpr size_t kAnswerBytes = 64 * kKiB;  // of a root: some 5,000 parts

}  // namespace

std::string text_of(const meta::FileId& file) { return fmt::format("file {:x}:{:x}", file.high, file.low); }

NodeId root_of(const meta::FileId& file) {
  return static_cast<NodeId>(std::min<uint64_t>(file.high, ~NodeId{0}));
}

Result<ShareAnswer> RemotePeers::ask(const ShareRequest& request) {
  const NodeId root = root_of(request.file);
  if (root == nodes_.own()) return roots_.handle(request);
  const std::string what = text_of(request.file) + ": its root";
  auto text = nodes_.call(root, PeerMethod::kAsk, encode(request), kAnswerBytes, what);
  if (text.status().code() == Code::kResourceExhausted)  // more parts than usual
    text = nodes_.call(root, PeerMethod::kAsk, encode(request), net::kRpcMessageBytesMax, what);
  SWALE_RETURN_IF_ERROR(text.status());
  auto answer = decode_share_answer(*text);
  if (answer.ok()) return answer;
  return answer.status().with_context(fmt::format("{}: node {}", what, root)).with_error_number(EIO);
}

Result<std::string> RemotePeers::fetch(NodeId node, const meta::FileId& file, std::span<const Span> spans) {
  FetchRequest request{file, {spans.begin(), spans.end()}};
  uint64_t bytes = 0;
  for (const Span& each : spans) bytes += each.end - each.begin;
  return nodes_.call(node, PeerMethod::kFetch, encode(request), bytes, text_of(file));
}

Result<std::string> RemotePeers::answer(PeerMethod method, NodeId from, Bytes payload) {
  if (method == PeerMethod::kAsk) return answer_as_root(from, payload);
  if (method == PeerMethod::kFetch) return give_bytes(payload);
  if (others_ != nullptr) return others_->answer(method, from, payload);
  return Status(Code::kUnsupported, Scope::kOperation, "this node does not answer that");
}

Result<std::string> RemotePeers::answer_as_root(NodeId from, Bytes payload) {
  SWALE_ASSIGN_OR_RETURN(const ShareRequest request, decode_share_request(payload));
  if (request.node != from || root_of(request.file) != nodes_.own())
    return corruption("{}: node {} asks as node {}, and node {} is its root, not node {}",
                      text_of(request.file), from, request.node, root_of(request.file), nodes_.own());
  SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, roots_.handle(request));
  return encode(answer);
}

Result<std::string> RemotePeers::give_bytes(Bytes payload) {
  SWALE_ASSIGN_OR_RETURN(const FetchRequest request, decode_fetch_request(payload));
  return files_->serve(request.file, request.spans);
}

}  // namespace swale::fs
