// Rpc among hostile ranks: rank 0 has the key and sends any frame to the server, rank 1. Rank 2 is honest,
// with an RpcCore of its own: each of its calls completes once, with the answer to what it asked. The hostile
// rank may cost the server no more than its own window and what all may be granted.
//
// Input: records of 1 byte that says what happens, and what that takes (hostile_input.h).
#include <map>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/hostile_input.h"
#include "fuzz/target.h"
#include "net/rpc/rpc_core.h"

namespace swale::rpc_neighbour_fuzz {
namespace {

using namespace swale::net;
using fuzz::HostileInput;
using fuzz::require;

constexpr size_t kFrameBytes = kRpcFrameBytesMin;
constexpr size_t kWindowBytes = 4 * kKiB;
constexpr size_t kGrantedBytesMax = 64 * kKiB;
constexpr Rank kHostile = 0, kServer = 1, kHonest = 2;
constexpr size_t kStepsMax = 500;

RpcParams params(Rank rank) {
  RpcParams params;
  params.rank = rank;
  params.ranks = 3;
  params.host_of = [](Rank each) { return std::string(1, static_cast<char>('a' + each)); };
  params.methods = {"echo", "lookup"};
  params.frame_bytes = kFrameBytes;
  params.window_bytes = kWindowBytes;
  params.message_bytes_max = 16 * kKiB;
  params.granted_bytes_max = params.calls_bytes_max = kGrantedBytesMax;
  params.calls_max = 16;
  return params;
}

class Machine {
 public:
  void step(HostileInput* in) {
    now_ += 1000;
    switch (in->byte() % 8) {
      case 0:
        hear(in->text());
        break;
      case 1:
      case 2:
        hear(almost_right(in));
        break;
      case 3:
        call(in->number(), in->number());
        break;
      case 4:
        move(in->byte() % 2 == 0);
        break;
      case 5:
        serve(in->byte() % 4);
        break;
      case 6:
        answer(in->byte());
        break;
      default:
        server_.tick(now_);
        honest_.tick(now_);
        complete();
    }
    require(server_.held_bytes() <= 3 * kWindowBytes + kGrantedBytesMax);
  }

  // The hostile rank falls silent or has been given up; whatever it holds, the others' calls come to an end.
  void finish() {
    if (!down_) down(error(Code::kUnavailable, Scope::kPeer, "gone"));
    for (int rounds = 0; rounds == 0 || (rounds < 1000 && completed_ < calls_.size()); ++rounds) {
      move(true);
      serve(100);
      while (!taken_.empty()) answer(0);  // the hostile rank's, too
      move(false);
      complete();
    }
    require(completed_ == calls_.size());
    require(server_.open_requests() == 0 && server_.held_bytes() == 0);
    require(honest_.open_calls() == 0 && honest_.open_bytes() == 0);
  }

 private:
  void down(const Status& why) {
    server_.on_down(kHostile, why, now_);
    down_ = true;
  }
  void hear(Bytes frame) {
    if (down_ || frame.empty()) return;
    const Status heard = server_.on_frame(kHostile, frame, now_);
    if (!heard.ok()) down(heard);
  }
  std::string almost_right(HostileInput* in) const {
    std::string frame;
    for (int pieces = 1 + in->byte() % 8; pieces > 0; --pieces) {
      PieceHeader header;
      header.kind = static_cast<PieceKind>(1 + in->byte() % 8);
      header.method = static_cast<uint16_t>(in->byte() % 4);
      header.id = in->number();
      header.message_bytes = static_cast<uint32_t>(in->number());
      header.extra = static_cast<uint32_t>(in->number());
      header.piece_bytes = in->byte();
      if (in->byte() % 2 == 0) header.message_bytes = header.piece_bytes;
      const size_t at = frame.size();
      frame.resize(at + PieceHeader::kBytes + header.piece_bytes, 'x');
      header.encode(&frame[at]);
    }
    return frame;
  }

  void call(uint64_t bytes, uint64_t response) {
    RpcCall call{.to = kServer, .method = 0};
    const std::string payload = fmt::format("{:08}", calls_.size()) + std::string(bytes % 8000, 'h');
    call.payload = payload;
    call.response_bytes_max = static_cast<uint32_t>(payload.size() + response % 5000);
    call.tag = calls_.size();
    if (honest_.call(std::move(call), now_).ok()) calls_.push_back(payload);
  }
  void move(bool to_server) {
    RpcCore& from = to_server ? honest_ : server_;
    RpcCore& to = to_server ? server_ : honest_;
    const Rank sender = to_server ? kHonest : kServer;
    const Rank receiver = to_server ? kServer : kHonest;
    while (from.has_frame(receiver)) {
      std::string frame(kFrameBytes, '\0');
      frame.resize(from.fill_frame(receiver, {frame.data(), frame.size()}));
      require(to.on_frame(sender, frame, now_).ok());
    }
    // What the server has for the hostile rank leaves, and nobody reads it.
    std::string frame(kFrameBytes, '\0');
    while (!down_ && server_.has_frame(kHostile))
      require(server_.fill_frame(kHostile, {frame.data(), frame.size()}) > 0);
  }
  void serve(size_t most) { server_.take_requests(most, &taken_, now_); }
  void answer(uint8_t which) {
    if (taken_.empty()) return;
    const size_t at = which % taken_.size();
    const RpcRequest request = std::move(taken_[at]);
    taken_.erase(taken_.begin() + static_cast<ptrdiff_t>(at));
    require(request.from == kHonest || request.from == kHostile);
    server_.reply(request.token, RpcPayload(std::string(request.payload)), now_);
  }
  void complete() {
    std::vector<RpcCompletion> done;
    honest_.take_completions(&done);
    for (const RpcCompletion& each : done) {
      ++completed_;
      require(each.response.ok() && *each.response == calls_[each.tag]);
      calls_[each.tag] = "complete";  // and not again
    }
  }

  RpcCore server_{params(kServer)};
  RpcCore honest_{params(kHonest)};
  Nanos now_ = 0;
  bool down_ = false;
  std::vector<std::string> calls_;  // payloads
  std::vector<RpcRequest> taken_;
  size_t completed_ = 0;
};

}  // namespace

SWALE_FUZZ_TARGET(rpc_neighbour_fuzz) {
  Machine machine;
  HostileInput input(fuzz::as_bytes(data, size));
  for (size_t steps = 0; !input.empty() && steps < kStepsMax; ++steps) machine.step(&input);
  machine.finish();
  return 0;
}

}  // namespace swale::rpc_neighbour_fuzz
