#include "fs/peers/remote_peers.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "fs/peers/peer_messages.h"

namespace swale::fs {
namespace {

constexpr size_t kAnswerBytes = 64 * kKiB;  // of a root: some 5,000 parts
// Of a piece that is asked for. Its node checks and sends it in some 15 us, and the next one while this one
// is on its way.
constexpr uint64_t kPieceBytes = 128 * kKiB;

}  // namespace

std::string text_of(const meta::FileId& file) { return fmt::format("file {:x}:{:x}", file.high, file.low); }

NodeId root_of(const meta::FileId& file) {
  return static_cast<NodeId>(std::min<uint64_t>(file.high, ~NodeId{0}));
}

Result<ShareAnswer> RemotePeers::ask(const ShareRequest& request) {
  const NodeId root = root_of(request.file);
  if (root == nodes_.own()) return obey_as_root(request);
  const std::string what = text_of(request.file) + ": its root";
  const PeerMethod method = request.op == ShareOp::kSync ? PeerMethod::kSync : PeerMethod::kAsk;
  auto text = nodes_.call(root, method, encode(request), kAnswerBytes, what);
  if (text.status().code() == Code::kResourceExhausted)  // more parts than usual
    text = nodes_.call(root, method, encode(request), net::kRpcMessageBytesMax, what);
  SWALE_RETURN_IF_ERROR(text.status());
  auto answer = decode_share_answer(*text);
  if (answer.ok()) return answer;
  return answer.status().with_context(fmt::format("{}: node {}", what, root)).with_error_number(EIO);
}

Status RemotePeers::fetch(NodeId node, const meta::FileId& file, std::span<const Wanted> wanted) {
  return fetch_from(nodes_, node, file, wanted);
}

Status fetch_from(NodePeers& nodes, NodeId node, const meta::FileId& file,
                  std::span<const SharePeers::Wanted> wanted) {
  std::vector<NodePeers::Piece> pieces;
  FetchRequest request{file, {}};
  NodePeers::Piece piece;
  uint64_t bytes = 0;
  const auto end_piece = [&] {
    if (bytes == 0) return;
    piece.payload = encode(request);
    pieces.push_back(std::exchange(piece, {}));
    request.spans.clear();
    bytes = 0;
  };
  for (auto [rest, to] : wanted) {
    while (rest.begin < rest.end) {
      const uint64_t part = std::min(rest.end - rest.begin, kPieceBytes - bytes);
      request.spans.push_back({rest.begin, rest.begin + part});
      piece.into.push_back(to.first(part));
      to = to.subspan(part);
      rest.begin += part, bytes += part;
      if (bytes == kPieceBytes) end_piece();
    }
  }
  end_piece();
  return nodes.call_for_pieces(node, PeerMethod::kFetch, pieces, text_of(file));
}

std::vector<Result<std::string>> RemotePeers::tell_holders(PeerMethod method, const meta::FileId& file,
                                                           const std::vector<ShareHold>& holds) {
  std::vector<NodeId> to;
  for (const ShareHold& each : holds) to.push_back(each.node);
  return nodes_.call_all(to, method, encode(FileStep{file}), kSmallAnswer, text_of(file));
}

// All are asked at once; the first failure counts. Those that have let go are told to the root in any case:
// else each change would ask them again.
Status RemotePeers::take_back(const meta::FileId& file, const std::vector<ShareHold>& holds) {
  ShareRequest over{.op = ShareOp::kLetGo, .node = nodes_.own(), .file = file};
  const auto let_go = tell_holders(PeerMethod::kTakeBack, file, holds);
  Status first;
  for (size_t i = 0; i < let_go.size(); ++i) {
    if (let_go[i].ok()) over.holds.push_back(holds[i]);
    if (first.ok()) first = let_go[i].status();
  }
  if (!over.holds.empty())
    if (const Status told = ask(over).status(); !told.ok()) log_debug("{}", told.message());
  return first;
}

// As in take_back the first failure counts.
Status RemotePeers::commit_at(const meta::FileId& file, const std::vector<ShareHold>& nodes) {
  Status first;
  for (const auto& each : tell_holders(PeerMethod::kCommit, file, nodes))
    if (first.ok()) first = each.status();
  return first;
}

Result<std::string> RemotePeers::answer(PeerMethod method, NodeId from, Bytes payload) {
  if (method == PeerMethod::kAsk || method == PeerMethod::kSync) return answer_as_root(from, payload);
  if (method == PeerMethod::kKeep) {
    SWALE_ASSIGN_OR_RETURN(const FileStep step, decode_file_step(payload));
    SWALE_RETURN_IF_ERROR(keep_at(nodes_.own(), step.file));
    return std::string();
  }
  if (method == PeerMethod::kFetch) return give_bytes(payload);
  if (method == PeerMethod::kCommit) {
    SWALE_ASSIGN_OR_RETURN(const FileStep step, decode_file_step(payload));
    SWALE_RETURN_IF_ERROR(files_->commit(step.file));
    return std::string();
  }
  if (method == PeerMethod::kTakeBack) {
    SWALE_ASSIGN_OR_RETURN(const FileStep step, decode_file_step(payload));
    files_->let_go(step.file);
    return std::string();
  }
  if (others_ != nullptr) return others_->answer(method, from, payload);
  return Status(Code::kUnsupported, Scope::kOperation, "this node does not answer that");
}

// What a root knows, and bytes in memory: for those that stand in one place a frame is their first copy.
bool RemotePeers::answer_at_once(PeerMethod method, NodeId from, Bytes payload, const Reply& reply) {
  if (method == PeerMethod::kAsk) {
    const auto request = asked_as_root(from, payload);
    const auto answer = request.ok() ? roots_.look_at_once(*request) : std::nullopt;
    if (answer) reply(encode(*answer));
    return answer.has_value();
  }
  if (method == PeerMethod::kTakeBack) {
    const auto step = decode_file_step(payload);
    if (!step.ok() || !files_->let_go_at_once(step->file)) return false;
    reply({});
    return true;
  }
  if (method != PeerMethod::kFetch) return false;
  const auto request = decode_fetch_request(payload);
  if (!request.ok() || request->spans.size() != 1 || request->bytes() > kPieceBytes) return false;
  return files_->serve_at_once(request->file, request->spans.front(), [&](std::span<const Bytes> parts) {
    if (parts.size() == 1) return reply(parts.front());
    std::string all;
    all.reserve(request->bytes());
    for (const Bytes& part : parts) all.append(part);
    reply(all);
  });
}

Result<ShareRequest> RemotePeers::asked_as_root(NodeId from, Bytes payload) const {
  SWALE_ASSIGN_OR_RETURN(const ShareRequest request, decode_share_request(payload));
  if (request.node != from || root_of(request.file) != nodes_.own())
    return corruption("{}: node {} asks as node {}, and node {} is its root, not node {}",
                      text_of(request.file), from, request.node, root_of(request.file), nodes_.own());
  return request;
}

Result<std::string> RemotePeers::answer_as_root(NodeId from, Bytes payload) {
  SWALE_ASSIGN_OR_RETURN(const ShareRequest request, asked_as_root(from, payload));
  SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, obey_as_root(request));
  return encode(answer);
}

Result<ShareAnswer> RemotePeers::obey_as_root(const ShareRequest& request) {
  if (request.op != ShareOp::kSync) return roots_.handle(request);
  SWALE_ASSIGN_OR_RETURN(KeptRoots::Sync sync, roots_.begin_sync(request));
  if (sync.answer.error != 0) return sync.answer;
  const Status kept = sync.begun ? keep_at(sync.ask, request.file) : errno_status(EAGAIN, "a drain");
  if (sync.begun) SWALE_RETURN_IF_ERROR(roots_.end_sync(request.file, kept.ok()));
  sync.answer.error = kept.ok() ? 0 : EAGAIN;  // the drain says what hinders it, too
  return sync.answer;
}

Status RemotePeers::keep_at(std::span<const NodeId> nodes, const meta::FileId& file) {
  return contain([&]() -> Status {
    for (const NodeId node : nodes) SWALE_RETURN_IF_ERROR(keep_at(node, file));
    return {};
  });
}

Status RemotePeers::keep_at(NodeId node, const meta::FileId& file) {
  if (node != nodes_.own())
    return nodes_.call(node, PeerMethod::kKeep, encode(FileStep{file}), kSmallAnswer, text_of(file)).status();
  if (!keep_) return errno_status(EAGAIN, text_of(file) + ": this node keeps nothing beyond its power");
  SWALE_ASSIGN_OR_RETURN(const bool kept, keep_(file));
  return kept ? Status() : errno_status(EAGAIN, text_of(file) + ": it takes a drain");
}

Result<std::string> RemotePeers::give_bytes(Bytes payload) {
  SWALE_ASSIGN_OR_RETURN(const FetchRequest request, decode_fetch_request(payload));
  std::string bytes(request.bytes(), '\0');
  SWALE_RETURN_IF_ERROR(files_->serve(request.file, request.spans, bytes));
  return bytes;
}

}  // namespace swale::fs
