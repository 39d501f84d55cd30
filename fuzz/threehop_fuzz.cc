// Frames of the three-hop route: whatever peers put into them, the router reads it or fails, delivers only
// messages of ranks that exist, and sends only frames with contents that the next rank could read. Input:
// pieces of (hop u8, bytes u8, frame).
#include <algorithm>
#include <memory>

#include "base/coding.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/route/threehop_router.h"

namespace swale::net::threehop_fuzz {
namespace {

using fuzz::require;

constexpr uint64_t kSecret = 7;

class Sink : public MessageSink {
 public:
  bool deliver(Rank source, Bytes message) override {
    require(source >= 0 && source < 7 && message.size() <= kHopFrameBytesMin);
    return ++taken_ % 5 != 0;  // refuses now and then
  }
  void epoch_complete(uint32_t epoch) override { require(epoch == epochs_++); }

 private:
  uint64_t taken_ = 0;
  uint32_t epochs_ = 0;
};

void run(Bytes input) {
  const int32_t nodes[] = {2, 3, 2};
  const auto map = std::make_shared<const NodeMap>(std::move(*NodeMap::in_blocks(nodes)));
  Sink sink;
  ThreeHopRouter::Params params;
  params.rank = 1;
  params.nodes = map;
  params.secret = kSecret;
  for (auto& hop : params.hops) hop = {kHopFrameBytesMin, 0, 2};
  auto made = ThreeHopRouter::create(params, &sink);
  require(made.ok());
  ThreeHopRouter& router = **made;
  FrameHeader headers[3];
  router.end_epoch();
  while (input.size() >= 2 && router.failure().ok()) {
    const uint8_t first = static_cast<uint8_t>(input[0]);
    const uint32_t hop = first % 3;
    const Bytes payload = input.substr(2, static_cast<uint8_t>(input[1]));
    input.remove_prefix(2 + payload.size());
    headers[hop].channel = hop;
    headers[hop].secret = kSecret;
    // Towards node 1 rank 1 represents node 0; towards node 2 rank 0 does, so that its frame is an error.
    const Rank from = hop == 1 ? map->representative(1 + first / 3 % 2, 0) : 0;
    const auto exact = std::make_unique<char[]>(payload.size());
    std::copy(payload.begin(), payload.end(), exact.get());
    router.on_frame(from, headers[hop], Bytes(exact.get(), payload.size()));
    ++headers[hop].sequence;
    if (first / 8 % 2 == 0) router.flush();
    while (const auto post = router.next_post()) {
      require(post->to >= 0 && post->to < 7 && post->to != 1 && post->payload.size() <= kHopFrameBytesMin);
      router.on_sent(post->cookie);
    }
    router.resume();
  }
}

}  // namespace

SWALE_FUZZ_TARGET(threehop_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::net::threehop_fuzz
