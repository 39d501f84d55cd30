#include "fs/peers/node_peers.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "net/job/agree.h"
#include "net/job/opening.h"

namespace swale::fs {
namespace {

constexpr char kWhat[] = "the files of nodes";

// What each method is: who waits for whom is in the order of the lanes.
struct Row {
  const char* name;
  size_t lane;
  bool is_long;  // takes as long as the storage: a node that is down is noticed all the same
};
constexpr std::array<Row, 24> kRows = {{
    {"share.ask", 2, false},       {"share.fetch", 3, false},     {"drain.fix", 4, false},
    {"drain.write", 5, true},      {"drain.brought", 4, false},   {"drain.lead", 7, true},
    {"names.turn", 6, false},      {"names.turn_over", 2, false}, {"lives", 2, false},
    {"names.moved", 3, false},     {"drain.all", 8, true},        {"locks.ask", 2, false},
    {"locks.granted", 2, false},   {"locks.node_gone", 2, false}, {"files.seal", 2, false},
    {"files.pages", 9, true},  // waits for reads and writes of the node's programs
    {"share.sync", 10, true},      {"share.keep", 1, true},       {"share.begin", 10, true},
    {"share.take_back", 0, false}, {"drain.undrained", 3, false}, {"share.commit", 4, false},
    {"stand_in.uses", 2, false},   {"stand_in.take", 11, true},
}};
constexpr size_t kLanes = 12;
constexpr Nanos kLongPatience = seconds(24 * 3600);
constexpr size_t kPiecesAtOnce = 4;  // that a thread has asked one node for
constexpr size_t kAtOnceMax = 4;     // of the requests of one event: a read begins with so many

// As many as pieces of a read that are under way take, where that is not too much memory.
uint16_t window_frames(size_t nodes) {
  constexpr size_t kFramesSum = 2048, kFramesMax = 16, kFramesMin = 4;  // of 32 KiB
  return static_cast<uint16_t>(std::clamp(kFramesSum / std::max<size_t>(nodes, 1), kFramesMin, kFramesMax));
}

// A node that does not answer, or not what it was asked for, is an error of the device.
Status as_eio(const Status& why, NodeId node, const std::string& what) {
  const Status named = why.with_context(fmt::format("{}: node {}", what, node));
  const bool silent = why.code() == Code::kUnavailable || why.code() == Code::kDeadlineExceeded ||
                      why.code() == Code::kAborted || why.code() == Code::kCorruption;
  return silent && why.error_number() == 0 ? named.with_error_number(EIO) : named;
}

}  // namespace

// An RpcClient waits for the calls of one thread at a time. One that still has calls open goes, and they with
// it.
class NodePeers::Client {
 public:
  explicit Client(NodePeers& peers) : peers_(peers) {
    {
      const MutexLock lock(peers_.mutex_);
      if (!peers_.free_.empty()) {
        client_ = std::move(peers_.free_.back());
        peers_.free_.pop_back();
      }
    }
    if (client_ == nullptr) client_ = std::make_unique<net::RpcClient>(peers_.rpc_.get());
  }
  ~Client() {
    if (has_open_calls) return;
    static_cast<void>(contain([&] {
      const MutexLock lock(peers_.mutex_);
      peers_.free_.push_back(std::move(client_));
    }));
  }
  Client(const Client&) = delete;
  net::RpcClient& operator*() { return *client_; }
  bool has_open_calls = false;

 private:
  NodePeers& peers_;
  std::unique_ptr<net::RpcClient> client_;
};

Result<std::unique_ptr<NodePeers>> NodePeers::open(net::Job& job, const NodePeersOptions& options) {
  std::unique_ptr<NodePeers> peers;
  const Status status = contain([&]() -> Status {
    peers.reset(new NodePeers(job, options));
    return peers->begin();
  });
  if (!status.ok()) return status;
  return peers;
}

Status NodePeers::begin() {
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kOpenServers, kWhat, {}));
  std::string own;
  append_u32(&own, options_.own);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job_.allgather(own));
  hosts_.assign(std::max<size_t>(all.size(), options_.nodes), -1);
  for (const std::string& each : all) {
    Decoder in(each);
    const NodeId node = in.u32();
    SWALE_RETURN_IF_ERROR(in.finish("what a rank says of its node"));
    if (node >= hosts_.size() || hosts_[node] != -1)
      return invalid_argument("node {} of {} is said to be at two ranks, or is none", node, hosts_.size());
    hosts_[node] = static_cast<net::Rank>(nodes_.size());
    nodes_.push_back(node);
  }
  for (size_t lane = 0; lane < kLanes; ++lane) lanes_.push_back(std::make_unique<Lane>());
  net::RpcOptions talk;
  for (const Row& each : kRows) talk.methods.push_back(each.name);
  talk.window_frames = window_frames(nodes_.size());
  SWALE_ASSIGN_OR_RETURN(rpc_, net::Rpc::open(job_, talk, this));
  return {};
}

Result<NodeId> NodePeers::node_at(net::Rank rank) const {
  const auto index = static_cast<size_t>(rank);
  if (rank >= 0 && index < nodes_.size()) return nodes_[index];
  return invalid_argument("rank {} is none of this job", rank);
}

Status NodePeers::expect_there(NodeId node, const std::string& what) const {
  if (node >= nodes()) return errno_status(EIO, fmt::format("{}: node {}: the job has none", what, node));
  if (hosts_[node] < 0) return errno_status(EIO, fmt::format("{}: node {} is lost", what, node));
  return {};
}

Status NodePeers::start(PeerRequests* requests) {
  {
    const MutexLock lock(mutex_);
    requests_ = requests;
  }
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    SWALE_RETURN_IF_ERROR(start_thread(&lanes_[lane]->thread, "a thread that answers other nodes",
                                       [this, lane] { serve(lane); }));
  return {};
}

// Also while the Rpc is being opened. One that cannot be kept is dropped: its deadline tells.
void NodePeers::on_requests(std::span<net::RpcRequest> requests) {
  PeerRequests* here = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!stop_) here = requests_;
    if (here != nullptr) ++inside_;
  }
  size_t answered = 0;
  if (here != nullptr)
    while (answered < std::min(requests.size(), kAtOnceMax) && answer_at_once(*here, requests[answered]))
      ++answered;
  const MutexLock lock(mutex_);
  if (here != nullptr && --inside_ == 0) left_.notify_all();
  const Status kept = contain([&]() REQUIRES(mutex_) {
    for (net::RpcRequest& each : requests.subspan(answered)) {
      Lane& lane = *lanes_[each.method < kRows.size() ? kRows[each.method].lane : 0];
      lane.queue.push_back(std::move(each));
      lane.work.notify_one();
    }
  });
  if (!kept.ok()) log_error("requests of other nodes are dropped: {}", kept.message());
}

bool NodePeers::answer_at_once(PeerRequests& requests, net::RpcRequest& request) {
  bool answered = false;
  static_cast<void>(contain([&] {
    const auto from = node_at(request.from);
    if (!from.ok() || request.method >= kRows.size()) return;
    const auto reply = [&](Bytes answer) {
      answered = true;
      rpc_->reply_with(request.token, answer);
    };
    requests.answer_at_once(static_cast<PeerMethod>(request.method), *from, request.payload, reply);
  }));
  return answered;
}

void NodePeers::serve(size_t number) {
  Lane& lane = *lanes_[number];
  for (;;) {
    net::RpcRequest request;
    PeerRequests* requests = nullptr;
    {
      const MutexLock lock(mutex_);
      lane.work.wait(lock, [&]() REQUIRES(mutex_) { return stop_ || !lane.queue.empty(); });
      if (lane.queue.empty()) return;
      request = std::move(lane.queue.front());
      lane.queue.pop_front();
      requests = requests_;
    }
    answer(*requests, request);
  }
}

void NodePeers::answer(PeerRequests& requests, net::RpcRequest& request) {
  Result<std::string> answer = std::string();
  const Status contained = contain([&]() -> Status {
    if (!rpc_->wanted(request.token)) return {};
    if (request.method >= kRows.size())
      return Status(Code::kUnsupported, Scope::kOperation, "this node knows no such request");
    SWALE_ASSIGN_OR_RETURN(const NodeId from, node_at(request.from));
    answer = requests.answer(static_cast<PeerMethod>(request.method), from, request.payload);
    return {};
  });
  if (!contained.ok()) answer = contained;
  static_cast<void>(contain([&] {
    answer.ok() ? rpc_->reply(request.token, net::RpcPayload(*std::move(answer)))
                : rpc_->reply(request.token, answer.status());
  }));
}

Nanos NodePeers::deadline_of(PeerMethod method, Nanos patience) const {
  const Nanos usual = kRows.at(static_cast<size_t>(method)).is_long ? kLongPatience : options_.patience;
  return system_clock().now() + (patience > 0 ? patience : usual);
}

Result<std::string> NodePeers::call(NodeId to, PeerMethod method, std::string payload,
                                    size_t answer_bytes_max, const std::string& what,
                                    Nanos patience) noexcept {
  std::string answer;
  const Status status = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(expect_there(to, what));
    const Nanos until = deadline_of(method, patience);
    const CallFate fate = options_.fate ? options_.fate(method) : CallFate::kGoes;
    const Status lost(Code::kDeadlineExceeded, Scope::kPeer, "no answer");
    if (fate == CallFate::kIsLost) return as_eio(lost, to, what);
    Client client(*this);
    const auto ask = [&] {
      return (*client).ask({.to = hosts_[to],
                            .method = static_cast<net::RpcMethod>(method),
                            .payload = fate == CallFate::kComesTwice ? payload : std::move(payload),
                            .response_bytes_max = static_cast<uint32_t>(answer_bytes_max),
                            .deadline = until});
    };
    auto got = ask();
    if (fate == CallFate::kComesTwice) got = ask();
    if (fate == CallFate::kAnswerIsLost) got = lost;
    if (!got.ok()) return as_eio(got.status(), to, what);
    answer = std::move(*got);
    return {};
  });
  if (!status.ok()) return status;
  return answer;
}

std::vector<Result<std::string>> NodePeers::call_all(std::span<const NodeId> to, PeerMethod method,
                                                     const std::string& payload, size_t answer_bytes_max,
                                                     const std::string& what, Nanos patience) {
  const Status lost(Code::kDeadlineExceeded, Scope::kPeer, "no answer");
  std::vector<Result<std::string>> answers(to.size(), Result<std::string>(lost));
  std::vector<CallFate> fates(to.size(), CallFate::kGoes);
  if (options_.fate)
    for (CallFate& each : fates) each = options_.fate(method);
  Client client(*this);
  const auto ask = [&](const auto& whom) {
    std::vector<net::Rank> ranks;
    std::vector<size_t> places;
    for (size_t i = 0; i < to.size(); ++i)
      if (to[i] < nodes() && hosts_[to[i]] >= 0 && whom(fates[i]))
        ranks.push_back(hosts_[to[i]]), places.push_back(i);
    if (ranks.empty()) return;
    client.has_open_calls = true;
    auto got = (*client).ask_many(ranks, {.method = static_cast<net::RpcMethod>(method),
                                          .payload = payload,
                                          .response_bytes_max = static_cast<uint32_t>(answer_bytes_max),
                                          .deadline = deadline_of(method, patience)});
    client.has_open_calls = false;
    for (size_t i = 0; i < got.size(); ++i) answers[places[i]] = std::move(got[i]);
  };
  ask([](CallFate fate) { return fate != CallFate::kIsLost; });
  ask([](CallFate fate) { return fate == CallFate::kComesTwice; });
  for (size_t i = 0; i < to.size(); ++i) {
    if (fates[i] == CallFate::kAnswerIsLost) answers[i] = lost;
    if (!answers[i].ok()) answers[i] = as_eio(answers[i].status(), to[i], what);
  }
  return answers;
}

Status NodePeers::ask_for_pieces(Client& client, const net::RpcCall& each_call,
                                 std::span<Piece> pieces) const {
  size_t next = 0, open = 0;
  std::vector<net::RpcCompletion> done;
  while (next < pieces.size() || open > 0) {
    for (; next < pieces.size() && open < kPiecesAtOnce; ++next, ++open) {
      Piece& piece = pieces[next];
      net::RpcCall call = each_call;
      call.payload = std::move(piece.payload);
      call.into = piece.into;
      call.tag = next;
      size_t bytes = 0;
      for (const MutableBytes& each : piece.into) bytes += each.size();
      call.response_bytes_max = static_cast<uint32_t>(bytes);
      client.has_open_calls = true;
      SWALE_RETURN_IF_ERROR((*client).call(std::move(call), net::RpcClient::Leave::kWithNext).status());
    }
    done.clear();
    (*client).wait(&done);
    for (const net::RpcCompletion& each : done) {
      --open;
      SWALE_RETURN_IF_ERROR(each.response.status());
      size_t left = 0;
      for (const MutableBytes& place : pieces[each.tag].into) left += place.size();
      if (left > 0) return corruption("its answer lacks {} bytes", left);
    }
  }
  client.has_open_calls = false;
  return {};
}

Status NodePeers::call_for_pieces(NodeId to, PeerMethod method, std::span<Piece> pieces,
                                  const std::string& what) noexcept {
  return contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(expect_there(to, what));
    const CallFate fate = options_.fate ? options_.fate(method) : CallFate::kGoes;
    const Status lost(Code::kDeadlineExceeded, Scope::kPeer, "no answer");
    if (fate == CallFate::kIsLost) return as_eio(lost, to, what);
    const net::RpcCall call{.to = hosts_[to],
                            .method = static_cast<net::RpcMethod>(method),
                            .deadline = system_clock().now() + options_.patience};
    std::vector<Piece> copies;  // a client with open calls goes before them
    Client client(*this);
    if (fate == CallFate::kComesTwice) {
      copies.assign(pieces.begin(), pieces.end());
      const Status first = ask_for_pieces(client, call, copies);
      if (!first.ok()) return as_eio(first, to, what);
    }
    Status got = ask_for_pieces(client, call, pieces);
    if (got.ok() && fate == CallFate::kAnswerIsLost) got = lost;
    return got.ok() ? got : as_eio(got, to, what);
  });
}

void NodePeers::stop() {
  std::vector<std::unique_ptr<net::RpcClient>> clients;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    for (const auto& lane : lanes_) lane->work.notify_all();
    clients.swap(free_);
    left_.wait(lock, [this]() REQUIRES(mutex_) { return inside_ == 0; });
  }
  for (const auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
}

Status NodePeers::close() {
  if (closed_) return {};
  closed_ = true;
  Status status = net::begin_collective(job_, net::CallKind::kCloseServers, kWhat, {});
  stop();
  const Status left = rpc_->close();
  rpc_.reset();
  return status.ok() ? left : status;
}

NodePeers::~NodePeers() {
  if (closed_) return;
  stop();
  rpc_.reset();  // tells the other ranks
}

}  // namespace swale::fs
