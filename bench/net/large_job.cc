// bench_large_job: what a rank of a large job takes, from the code that takes it. Nothing is timed.
//   --nodes M --ranks C    the shape of the job
//   --budget BYTES         of the frames of the three hops
// Reported: bytes of the hops' frames and state on a rank; messages that a rank sends to end an epoch on
// quiet links, the most and the mean of all ranks: those of the barriers between the hops and those of the
// epoch protocol, by running the machines of all ranks. What opening a job takes: large_opening.h. What
// opening a directory takes: rank 0 opens one on a memory device as in a job of that size, and the trees of
// all ranks repeat its rounds.
#include <algorithm>
#include <deque>
#include <memory>
#include <tuple>
#include <vector>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/net/large_opening.h"
#include "imd/write/epoch_protocol.h"
#include "imd/write/parting.h"
#include "imd/write/writer_open.h"
#include "io/memory_device.h"
#include "net/job/agree.h"
#include "net/meeting/exchange.h"
#include "net/route/hop_barrier.h"
#include "net/route/threehop_router.h"

namespace swale::bench {
namespace {

using imd::EpochProtocol;
using net::Rank;

// Messages under way, and how many each rank has sent.
class Wire {
 public:
  explicit Wire(int32_t ranks) : sent_(static_cast<size_t>(ranks)) {}

  // Takes all that a machine wants to send.
  template <class Outgoing>
  void take(Rank from, std::deque<Outgoing>* outgoing) {
    for (Outgoing& each : *outgoing) {
      auto& [to, message] = each;
      wire_.emplace_back(from, to, std::move(message));
      ++sent_[static_cast<size_t>(from)];
    }
    outgoing->clear();
  }
  // deliver(from, to, message) until nothing is under way.
  template <class Deliver>
  void run(const Deliver& deliver) {
    while (!wire_.empty()) {
      const auto [from, to, message] = std::move(wire_.front());
      wire_.pop_front();
      deliver(from, to, message);
    }
  }
  const std::vector<uint64_t>& sent() const { return sent_; }

 private:
  std::deque<std::tuple<Rank, Rank, std::string>> wire_;
  std::vector<uint64_t> sent_;
};

std::vector<uint64_t> end_of_hops(const net::NodeMap& nodes) {
  std::vector<net::HopBarrier> ranks;
  ranks.reserve(static_cast<size_t>(nodes.ranks()));
  for (Rank rank = 0; rank < nodes.ranks(); ++rank) ranks.emplace_back(&nodes, rank);
  Wire wire(nodes.ranks());
  for (int hop = 1; hop <= net::ThreeHopRouter::kHops; ++hop) {
    for (Rank rank = 0; rank < nodes.ranks(); ++rank) {
      ranks[static_cast<size_t>(rank)].come(hop);
      wire.take(rank, &ranks[static_cast<size_t>(rank)].outgoing());
    }
    wire.run([&](Rank from, Rank to, const std::string& message) {
      check(ranks[static_cast<size_t>(to)].on_message(from, message));
      wire.take(to, &ranks[static_cast<size_t>(to)].outgoing());
    });
    for (net::HopBarrier& each : ranks) {
      if (!each.take_release()) die("a rank was not released");
    }
  }
  return wire.sent();
}

std::vector<uint64_t> end_of_epoch(int32_t size) {
  std::deque<EpochProtocol> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(rank, size, EpochProtocol::Ends::kByRoute);
  Wire wire(size);
  const auto go_on = [&](Rank rank) {
    EpochProtocol& protocol = ranks[static_cast<size_t>(rank)];
    if (protocol.take_flush()) protocol.on_durable({});
    if (protocol.take_commit()) protocol.on_commit_done({});
    check(protocol.failure());
    wire.take(rank, &protocol.outgoing());
  };
  for (Rank rank = 0; rank < size; ++rank) {
    ranks[static_cast<size_t>(rank)].begin(0, 0, {}, {});
    go_on(rank);
  }
  wire.run([&](Rank from, Rank to, const std::string& message) {
    ranks[static_cast<size_t>(to)].on_message(from, *imd::decode_message(message, from));
  });
  for (Rank rank = size; rank-- > 0;) {  // the records come in
    ranks[static_cast<size_t>(rank)].on_route_complete();
    go_on(rank);
  }
  wire.run([&](Rank from, Rank to, const std::string& message) {
    ranks[static_cast<size_t>(to)].on_message(from, *imd::decode_message(message, from));
    go_on(to);
  });
  for (const EpochProtocol& each : ranks) {
    if (each.state() != EpochProtocol::State::kDone || !each.failure().ok())
      die("an epoch was not committed");
  }
  return wire.sent();
}

std::vector<uint64_t> end_of_directory(int32_t size) {
  std::deque<imd::Parting> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(rank, size, imd::Parting::Words::kByTree);
  Wire wire(size);
  for (Rank rank = 0; rank < size; ++rank) {
    ranks[static_cast<size_t>(rank)].begin({});
    wire.take(rank, &ranks[static_cast<size_t>(rank)].outgoing());
  }
  wire.run([&](Rank from, Rank to, const std::string& message) {
    check(ranks[static_cast<size_t>(to)].on_message(
        from, std::get<imd::CloseMessage>(*imd::decode_message(message, from))));
    wire.take(to, &ranks[static_cast<size_t>(to)].outgoing());
  });
  for (const imd::Parting& each : ranks) {
    if (!each.over()) die("a rank has not closed");
  }
  return wire.sent();
}

// What rank 0 gives in each round of opening a directory. The others give nothing but what all give.
std::vector<std::string> rounds_of_opening(int32_t size) {
  std::vector<std::string> rounds;
  const net::Ranks ranks{0, size, [&](Bytes mine) -> Result<std::string> {
                           rounds.emplace_back(mine);
                           return rounds.back();
                         }};
  io::MemoryDevice device;
  const imd::WriterOptions options;
  // As Writer::open does, between its own agreements.
  check(net::agree(ranks, {}));
  check(imd::agree_on_options(ranks, imd::Create::kIfMissing, options));
  auto opened = imd::open_directory(ranks, device, {}, "/job/particles", imd::Create::kIfMissing, options);
  check(opened.status());
  for (int its_own = 0; its_own < 3; ++its_own) check(net::agree(ranks, {}));
  check(net::least_number(ranks, 64 * kMiB).status());
  check(imd::finish_opening(ranks, &*opened));
  return rounds;
}

struct Opening {
  std::vector<uint64_t> messages;  // sent
  std::vector<uint64_t> bytes;     // sent and got
};

Opening open_directory(int32_t size) {
  const auto count = static_cast<size_t>(size);
  std::deque<net::ExchangeTree> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(rank, size);
  Wire wire(size);
  Opening opening{{}, std::vector<uint64_t>(count)};
  const auto settle = [&](Rank rank) {
    std::deque<net::ExchangeTree::Outgoing>& outgoing = ranks[static_cast<size_t>(rank)].outgoing();
    for (const auto& [to, message] : outgoing) {
      opening.bytes[static_cast<size_t>(rank)] += message.size();
      opening.bytes[static_cast<size_t>(to)] += message.size();
    }
    wire.take(rank, &outgoing);
  };
  for (const std::string& gift : rounds_of_opening(size)) {
    for (Rank rank = 0; rank < size; ++rank) {
      ranks[static_cast<size_t>(rank)].begin(gift, net::ExchangeTree::Answer::kLeast);
      settle(rank);
    }
    wire.run([&](Rank from, Rank to, const std::string& message) {
      ranks[static_cast<size_t>(to)].on_message(from, message);
      settle(to);
    });
    for (net::ExchangeTree& each : ranks) {
      const auto answer = each.take();
      if (!answer || !answer->ok()) die("an exchange has no answer");
    }
  }
  opening.messages = wire.sent();
  return opening;
}

void add(nlohmann::json* line, const std::string& name, const std::vector<uint64_t>& of_ranks) {
  uint64_t sum = 0;
  for (const uint64_t each : of_ranks) sum += each;
  (*line)[name + "_most"] = *std::max_element(of_ranks.begin(), of_ranks.end());
  (*line)[name + "_mean"] = static_cast<double>(sum) / static_cast<double>(of_ranks.size());
}

class Nothing final : public net::MessageSink {
  bool deliver(Rank, Bytes) override { return true; }
  void epoch_complete(uint32_t) override {}
};

void add_memory(nlohmann::json* line, std::shared_ptr<const net::NodeMap> nodes, uint64_t budget) {
  Nothing sink;
  uint64_t buffers = 0, state = 0, peers = 0;
  for (const Rank rank : {0, 1, nodes->ranks() / 2 + 1, nodes->ranks() - 1}) {
    net::ThreeHopRouter::Params params;
    params.rank = rank;
    params.nodes = nodes;
    params.hops = net::ThreeHopRouter::hops_within(*nodes, budget);
    const auto router = net::ThreeHopRouter::create(params, &sink);
    check(router.status());
    buffers = std::max(buffers, (*router)->buffer_bytes());
    state = std::max(state, (*router)->state_bytes());
    peers = std::max<uint64_t>(peers, (*router)->peers().size());
  }
  (*line)["hop_buffer_bytes"] = buffers;
  (*line)["hop_state_bytes"] = state;
  (*line)["hop_peers"] = peers;
  (*line)["node_map_bytes"] = nodes->memory_bytes();
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const uint64_t nodes = arguments.number("nodes", 4096);
  const auto ranks = static_cast<int32_t>(arguments.number("ranks", 32));
  const uint64_t budget = arguments.number("budget", 8 * swale::kMiB);
  arguments.expect_no_more();
  auto made = swale::net::NodeMap::in_blocks(std::vector<int32_t>(nodes, ranks));
  check(made.status());
  const auto map = std::make_shared<const swale::net::NodeMap>(std::move(*made));
  nlohmann::json line = {{"nodes", nodes}, {"ranks_per_node", ranks}, {"ranks", map->ranks()}};
  add_job_opening(&line, *map);
  add_memory(&line, map, budget);
  std::vector<uint64_t> end = end_of_hops(*map);
  const std::vector<uint64_t> protocol = end_of_epoch(map->ranks());
  for (size_t rank = 0; rank < end.size(); ++rank) end[rank] += protocol[rank];
  add(&line, "epoch_end_messages", end);
  add(&line, "close_messages", end_of_directory(map->ranks()));
  const Opening opening = open_directory(map->ranks());
  add(&line, "directory_open_messages", opening.messages);
  add(&line, "directory_open_bytes", opening.bytes);
  report(line);
}
