// bench_threehop: what the three-hop router itself takes: all ranks of a small job in one thread, frames
// handed over at once.
//   --nodes M  --ranks C        the shape of the job (2 x 4)
//   --messages N                from each rank, of --bytes (48) each, to ranks at random
//   --budget BYTES              of buffers a rank
// Reported: processor time for each message, of sending, forwarding and delivering it (generating is taken
// off), how many bytes of heads each one carried, and the buffers and state of a rank of 4,096 nodes of 32
// ranks, as they are allocated.

#include <deque>
#include <memory>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "bench/arguments.h"
#include "bench/measure.h"
#include "net/route/threehop_router.h"

namespace swale::bench {
namespace {

using net::Rank;
using net::ThreeHopRouter;

struct Options {
  uint64_t nodes;
  uint64_t ranks;
  uint64_t messages;
  uint64_t bytes;
  uint64_t budget;
};

class Counting : public net::MessageSink {
 public:
  bool deliver(Rank, Bytes message) override {
    ++messages;
    sum += get_u64(message.data());
    return true;
  }
  void epoch_complete(uint32_t) override { complete = true; }

  uint64_t messages = 0;
  uint64_t sum = 0;
  bool complete = false;
};

std::shared_ptr<const net::NodeMap> map_of(uint64_t nodes, uint64_t ranks) {
  auto map = net::NodeMap::in_blocks(std::vector<int32_t>(nodes, static_cast<int32_t>(ranks)));
  if (!map.ok()) die(map.status().to_string());
  return std::make_shared<const net::NodeMap>(std::move(*map));
}

std::unique_ptr<ThreeHopRouter> router_of(std::shared_ptr<const net::NodeMap> map, Rank rank, uint64_t budget,
                                          net::MessageSink* sink) {
  ThreeHopRouter::Params params;
  params.rank = rank;
  params.hops = ThreeHopRouter::hops_within(*map, budget);
  params.nodes = std::move(map);
  params.secret = 1;
  auto router = ThreeHopRouter::create(params, sink);
  if (!router.ok()) die(router.status().to_string());
  return std::move(*router);
}

class Job {
 public:
  explicit Job(const Options& options) : options_(options), sinks_(options.nodes * options.ranks) {
    const auto map = map_of(options.nodes, options.ranks);
    for (size_t rank = 0; rank < sinks_.size(); ++rank) {
      routers_.push_back(router_of(map, static_cast<Rank>(rank), options.budget, &sinks_[rank]));
    }
  }

  nlohmann::json run() {
    const std::vector<Rank> to = destinations();
    const double generated = generate(to);
    const double begin = thread_cpu_s();
    std::string message(options_.bytes, 'm');
    for (uint64_t i = 0; i < options_.messages; ++i) {
      for (size_t rank = 0; rank < routers_.size(); ++rank) {
        put_u64(message.data(), i);
        while (!routers_[rank]->send(to[(i * routers_.size() + rank) % to.size()], message)) move();
      }
    }
    for (const auto& router : routers_) router->end_epoch();
    while (move()) {
    }
    const double seconds = thread_cpu_s() - begin;
    uint64_t taken = 0;
    for (size_t rank = 0; rank < routers_.size(); ++rank) {
      if (!routers_[rank]->failure().ok()) die(routers_[rank]->failure().to_string());
      if (!sinks_[rank].complete) die("an epoch did not end");
      taken += sinks_[rank].messages;
    }
    const auto messages = static_cast<double>(options_.messages * routers_.size());
    if (taken != options_.messages * routers_.size()) die("messages were lost");
    return {{"cpu_ns_per_message", (seconds - generated) / messages * 1e9},
            {"generate_ns_per_message", generated / messages * 1e9},
            {"wire_bytes_per_message", static_cast<double>(bytes_) / messages},
            {"frames", frames_}};
  }

 private:
  // The same of every run, and few enough to stay in a cache.
  std::vector<Rank> destinations() const {
    std::vector<Rank> to(1 << 14);
    Rng rng(1);
    for (Rank& rank : to) rank = static_cast<Rank>(rng.below(routers_.size()));
    return to;
  }

  double generate(const std::vector<Rank>& to) const {
    std::string message(options_.bytes, 'm');
    const double begin = thread_cpu_s();
    for (uint64_t i = 0; i < options_.messages * routers_.size(); ++i) {
      put_u64(message.data(), static_cast<uint64_t>(to[i % to.size()]));
      asm volatile("" : : "r"(message.data()) : "memory");
    }
    return thread_cpu_s() - begin;
  }

  // Hands over every frame that may leave.
  bool move() {
    bool any = false;
    for (size_t rank = 0; rank < routers_.size(); ++rank) {
      while (const auto post = routers_[rank]->next_post()) {
        any = true;
        ++frames_;
        bytes_ += post->header.size() + post->payload.size();
        const auto header =
            net::FrameHeader::decode(Bytes(post->header.data(), post->header.size()), post->payload, 1);
        if (!header.ok()) die(header.status().to_string());
        routers_[static_cast<size_t>(post->to)]->on_frame(static_cast<Rank>(rank), *header, post->payload);
        routers_[rank]->on_sent(post->cookie);
      }
    }
    return any;
  }

  Options options_;
  std::vector<Counting> sinks_;
  std::vector<std::unique_ptr<ThreeHopRouter>> routers_;
  uint64_t frames_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Options options;
  options.nodes = arguments.number("nodes", 2);
  options.ranks = arguments.number("ranks", 4);
  options.messages = arguments.number("messages", 2'000'000);
  options.bytes = arguments.number("bytes", 48);
  options.budget = arguments.number("budget", 8 * swale::kMiB);
  arguments.expect_no_more();
  if (options.bytes < 8) die("messages have at least 8 bytes");
  nlohmann::json line = Job(options).run();
  Counting sink;
  const auto large = router_of(map_of(4096, 32), 70'000, options.budget, &sink);
  line["threehop_buffer_bytes_per_rank"] = large->buffer_bytes();
  line["threehop_state_bytes_per_rank"] = large->state_bytes();
  line["threehop_peers_per_rank"] = large->peers().size();
  report(line);
}
