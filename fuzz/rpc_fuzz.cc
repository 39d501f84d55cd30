// Requests and responses of other ranks: frames of RpcCore. Input: records of 1 byte that says what happens,
// 1 byte a length, and so many bytes.
#include <vector>

#include "base/coding.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/rpc/rpc_core.h"

namespace swale::rpc_fuzz {
namespace {

using namespace swale::net;

constexpr size_t kFrameBytes = kRpcFrameBytesMin;
constexpr size_t kWindowBytes = 4 * kKiB;
constexpr size_t kMessageBytesMax = 16 * kKiB;
constexpr size_t kGrantedBytesMax = 64 * kKiB;
constexpr Rank kPeer = 0;

RpcParams params() {
  RpcParams params;
  params.rank = 1;
  params.ranks = 3;
  params.host_of = [](Rank rank) { return std::string(1, static_cast<char>('a' + rank)); };
  params.methods = {"echo", "lookup"};
  params.frame_bytes = kFrameBytes;
  params.window_bytes = kWindowBytes;
  params.message_bytes_max = kMessageBytesMax;
  params.granted_bytes_max = params.calls_bytes_max = kGrantedBytesMax;
  params.calls_max = 16;
  return params;
}

class Machine {
 public:
  void step(uint8_t what, Bytes bytes) {
    now_ += 1000;
    switch (what % 8) {
      case 0:
        hear(bytes);
        break;
      case 1:
        hear(almost_right(bytes));
        break;
      case 2:
        call(bytes);
        break;
      case 3:
        send();
        break;
      case 4:
        core_.take_requests(4, &taken_, now_);
        break;
      case 5:
        reply(bytes);
        break;
      case 6:
        if (!calls_.empty()) core_.cancel(calls_[bytes.size() % calls_.size()], now_);
        break;
      default:
        core_.tick(now_);
        complete();
    }
    fuzz::require(core_.held_bytes() <= 3 * kWindowBytes + kGrantedBytesMax);
    fuzz::require(core_.open_bytes() <= kGrantedBytesMax);
  }

  // Whatever was heard, each call completes once, and nothing is left.
  void finish() {
    core_.on_down(kPeer, error(Code::kUnavailable, Scope::kPeer, "gone"), now_);
    for (bool more = true; more;) {
      core_.take_requests(4, &taken_, now_);
      more = !taken_.empty();
      for (const RpcRequest& each : taken_) core_.reply(each.token, RpcPayload("end"), now_);
      taken_.clear();
    }
    complete();
    fuzz::require(completed_ == calls_.size());
    fuzz::require(core_.open_calls() == 0 && core_.open_bytes() == 0);
    fuzz::require(core_.open_requests() == 0 && core_.held_bytes() == 0);
  }

 private:
  void hear(Bytes frame) {
    if (core_.on_frame(kPeer, frame, now_).ok()) return;
    core_.on_down(kPeer, error(Code::kCorruption, Scope::kPeer, "broken"), now_);
  }

  // Pieces that are right but for a few numbers: kind, call, bytes of the message, extra, bytes of the piece,
  // each 1 byte.
  std::string almost_right(Bytes bytes) const {
    std::string frame;
    for (; bytes.size() >= 5; bytes.remove_prefix(5)) {
      const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
      PieceHeader header;
      header.kind = static_cast<PieceKind>(1 + byte(0) % 8);
      header.id = byte(1);
      const size_t call = byte(1) % 16;
      if (byte(1) < 128 && call < calls_.size()) {
        header.id = static_cast<uint64_t>(calls_[calls_.size() - 1 - call]);
      }
      header.message_bytes = uint32_t{byte(2)} * (byte(2) >= 128 ? 64 : 1);
      header.extra = uint32_t{byte(3)} * (byte(3) >= 128 ? 64 : 1);
      header.piece_bytes = std::min<uint32_t>(byte(4), 128);
      const size_t at = frame.size();
      frame.resize(at + PieceHeader::kBytes + header.piece_bytes, 'x');
      header.encode(&frame[at]);
    }
    return frame;
  }

  void call(Bytes bytes) {
    const uint8_t first = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
    RpcCall call{.to = first % 5 == 4 ? 1 : kPeer, .method = static_cast<RpcMethod>(first % 3)};
    call.payload = std::string(bytes.size() * (first >= 128 ? 32 : 1), 'c');
    call.response_bytes_max = first * 32u;
    if (first % 7 == 0) call.deadline = now_ + 20'000;
    if (const auto id = core_.call(std::move(call), now_); id.ok()) calls_.push_back(*id);
  }

  // What is sent can be read.
  void send() {
    if (!core_.has_frame(kPeer)) return;
    std::string frame(kFrameBytes, '\0');
    const size_t used = core_.fill_frame(kPeer, {frame.data(), frame.size()});
    fuzz::require(used > 0 && used <= kFrameBytes);
    for (Bytes rest = Bytes(frame).substr(0, used); !rest.empty();) fuzz::require(take_piece(&rest).ok());
  }

  void reply(Bytes bytes) {
    if (taken_.empty()) return;
    const RpcRequest request = std::move(taken_.back());
    taken_.pop_back();
    if (bytes.size() % 3 == 0) {
      core_.reply(request.token, error(Code::kNotFound, Scope::kFile, "{}", bytes), now_);
    } else {
      core_.reply(request.token, RpcPayload(std::string(bytes)), now_);
    }
    fuzz::require(!core_.reply(request.token, RpcPayload("twice"), now_));
  }

  void complete() {
    std::vector<RpcCompletion> done;
    core_.take_completions(&done);
    completed_ += done.size();
  }

  RpcCore core_{params()};
  Nanos now_ = 0;
  std::vector<CallId> calls_;
  std::vector<RpcRequest> taken_;
  size_t completed_ = 0;
};

}  // namespace

SWALE_FUZZ_TARGET(rpc_fuzz) {
  Machine machine;
  Bytes input = fuzz::as_bytes(data, size);
  while (input.size() >= 2) {
    const auto what = static_cast<uint8_t>(input[0]);
    const Bytes bytes = input.substr(2, static_cast<uint8_t>(input[1]));
    input.remove_prefix(2 + bytes.size());
    machine.step(what, bytes);
  }
  machine.finish();
  return 0;
}

}  // namespace swale::rpc_fuzz
