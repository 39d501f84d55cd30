#include "sim/meta_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "base/rng.h"
#include "meta/attributes/attributes.h"
#include "meta/server/ring.h"

namespace swale::sim {
namespace {

using meta::AttributeRequest;

struct Message {
  uint32_t from = 0;
  bool answer = false;
  uint64_t token = 0;
};

// Servers first, then clients; each receives and sends one message at a time.
class Machine {
 public:
  using Handle = std::function<void(uint32_t at, const std::vector<Message>& came)>;

  Machine(const StormParams& params, Handle handle)
      : params_(params), servers_(params.nodes * params.servers_per_node), handle_(std::move(handle)) {
    processors_.resize(servers_ + params.nodes * params.clients_per_node);
  }
  uint32_t servers() const { return servers_; }
  uint32_t clients() const { return static_cast<uint32_t>(processors_.size()) - servers_; }
  uint32_t node_of(uint32_t processor) const {
    return processor < servers_ ? processor / params_.servers_per_node
                                : (processor - servers_) / params_.clients_per_node;
  }
  Nanos now() const { return now_; }
  uint64_t messages() const { return messages_; }
  uint64_t root_messages() const { return root_messages_; }

  // By a processor that handles, or to begin with.
  void send(uint32_t from, uint32_t to, Message message) {
    Processor& sender = processors_[from];
    sender.free_at = std::max(sender.free_at, now_) + params_.costs.send;
    const Nanos flight = node_of(from) == node_of(to) ? params_.costs.local_latency : params_.costs.latency;
    message.from = from;
    ++messages_;
    root_messages_ += (from == 0) + (to == 0);
    events_.push({sender.free_at + flight, number_++, to, true, message});
  }
  void begin_at(Nanos time, uint32_t processor) { events_.push({time, number_++, processor, false, {}}); }

  void run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      Processor& processor = processors_[event.to];
      if (event.arrives) {
        processor.inbox.push_back(event.message);
        if (!processor.awake) wake(event.to);
        continue;
      }
      processor.awake = false;
      std::vector<Message> came;
      came.swap(processor.inbox);
      // The handler runs when all that has come is received.
      now_ += params_.costs.receive * static_cast<Nanos>(came.size());
      processor.free_at = now_;
      handle_(event.to, came);
      if (!processor.inbox.empty()) wake(event.to);
    }
  }

 private:
  struct Event {
    Nanos time;
    uint64_t number;
    uint32_t to;
    bool arrives;
    Message message;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  struct Processor {
    Nanos free_at = 0;
    bool awake = false;
    std::vector<Message> inbox;
  };
  void wake(uint32_t at) {
    Processor& processor = processors_[at];
    processor.awake = true;
    events_.push({std::max(now_, processor.free_at), number_++, at, false, {}});
  }

  const StormParams params_;
  const uint32_t servers_;
  const Handle handle_;
  std::vector<Processor> processors_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Nanos now_ = 0;
  uint64_t number_ = 0;
  uint64_t messages_ = 0;
  uint64_t root_messages_ = 0;
};

class Storm {
 public:
  explicit Storm(const StormParams& params)
      : params_(params), machine_(params, [this](uint32_t at, const auto& came) { handle(at, came); }) {
    const bool ours = params.method >= StormMethod::kOursPlain;
    const uint32_t servers = machine_.servers();
    waits_for_.resize(servers);
    waiting_.resize(servers);
    const meta::RingMode mode =
        params.method == StormMethod::kOursRing ? meta::RingMode::kRing : meta::RingMode::kDirect;
    for (uint32_t server = 0; server < servers; ++server) {
      sides_.push_back(std::make_unique<Side>(this, server));
      if (ours) {
        delegates_.push_back(std::make_unique<meta::Delegate>(
            meta::Delegate::Shape{server, servers, mode, params.radix, params.in_flight_max},
            sides_.back().get()));
      }
    }
    for (uint32_t client = 0; client < machine_.clients(); ++client) ++waits_for_[home(client)];
    for (uint32_t server = 1; server < servers && !plain(); ++server) ++waits_for_[parent(server)];
  }

  StormResult run() {
    Rng rng(1);
    for (uint32_t client = 0; client < machine_.clients(); ++client) {
      const Nanos start =
          params_.spread == 0 ? 0 : static_cast<Nanos>(rng.below(static_cast<uint64_t>(params_.spread)));
      machine_.begin_at(start, machine_.servers() + client);
    }
    machine_.run();
    return {slowest_, machine_.root_messages(), machine_.messages()};
  }

 private:
  struct Side : meta::Delegate::Actions {
    Side(Storm* of, uint32_t number) : storm(of), at(number) {}
    void forward(uint32_t to, const AttributeRequest&, uint64_t id) override {
      storm->machine_.send(at, to, {at, false, id});
    }
    void answer(uint64_t token, const Result<std::string>&) override { storm->reply(at, token); }
    Storm* const storm;
    const uint32_t at;
  };

  bool plain() const {
    return params_.method == StormMethod::kPaperPlain || params_.method == StormMethod::kOursPlain;
  }
  bool ours() const { return params_.method >= StormMethod::kOursPlain; }
  // The server that a client asks.
  uint32_t home(uint32_t client) const {
    if (plain()) return 0;
    const uint32_t node = client / params_.clients_per_node;
    return node * params_.servers_per_node + client % params_.clients_per_node % params_.servers_per_node;
  }
  uint32_t parent(uint32_t server) const {
    return params_.method == StormMethod::kPaperRing ? meta::ring_parent(server, 0, machine_.servers(), 2)
                                                     : 0;
  }

  // A token says which processor asked, and under which number of its own.
  void reply(uint32_t at, uint64_t token) {
    machine_.send(at, static_cast<uint32_t>(token >> 32), {at, true, token & 0xffffffff});
  }

  void handle(uint32_t at, const std::vector<Message>& came) {
    if (at >= machine_.servers()) return handle_client(at, came);
    ours() ? handle_ours(at, came) : handle_paper(at, came);
  }

  void handle_client(uint32_t at, const std::vector<Message>& came) {
    if (came.empty()) {
      machine_.send(at, home(at - machine_.servers()), {at, false, 0});
    } else {
      slowest_ = std::max(slowest_, machine_.now());
    }
  }

  void handle_ours(uint32_t at, const std::vector<Message>& came) {
    for (const Message& each : came) {
      if (each.answer) {
        delegates_[at]->on_answer(each.token, std::string("x"));
      } else if (at == 0) {
        reply(0, uint64_t{each.from} << 32 | each.token);
      } else {
        AttributeRequest request;
        request.name = "f";
        delegates_[at]->on_request(std::move(request), 0, uint64_t{each.from} << 32 | each.token);
      }
    }
    delegates_[at]->flush();
  }

  void handle_paper(uint32_t at, const std::vector<Message>& came) {
    for (const Message& each : came) {
      if (each.answer) {
        answer_all(at);
        continue;
      }
      waiting_[at].push_back(uint64_t{each.from} << 32 | each.token);
      if (waiting_[at].size() < waits_for_[at]) continue;
      at == 0 ? answer_all(at) : machine_.send(at, parent(at), {at, false, 0});
    }
  }
  void answer_all(uint32_t at) {
    // Servers first: their own clients wait behind them.
    std::stable_partition(waiting_[at].begin(), waiting_[at].end(),
                          [&](uint64_t token) { return token >> 32 < machine_.servers(); });
    for (const uint64_t token : waiting_[at]) reply(at, token);
    waiting_[at].clear();
  }

  const StormParams params_;
  Machine machine_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<meta::Delegate>> delegates_;
  std::vector<size_t> waits_for_;               // the paper's: how many a server waits for
  std::vector<std::vector<uint64_t>> waiting_;  // and who has come
  Nanos slowest_ = 0;
};

}  // namespace

StormResult run_storm(const StormParams& params) { return Storm(params).run(); }

// Clients prepare all, then send batches to the servers in turn, each beginning with another one; a server
// handles batches one after the other; the slowest client ends when the last server has answered its last
// batch.
Nanos run_burst(const BurstParams& params) {
  const uint64_t servers = uint64_t{params.nodes} * params.servers_per_node;
  const uint64_t clients = uint64_t{params.nodes} * params.clients_per_node;
  const double items = static_cast<double>(params.entries) * params.items_per_entry;
  const double to_each = params.items_per_entry < 1 ? 1 : std::max(1.0, items / static_cast<double>(servers));
  const double sent_to = params.items_per_entry < 1 ? static_cast<double>(servers)
                                                    : std::min(static_cast<double>(servers), items);
  const double batches = std::max(1.0, to_each / static_cast<double>(params.batch));
  const double message = static_cast<double>(params.costs.send + params.costs.receive);
  // A client: prepares, sends a message a server and batch, receives as many answers.
  const double client = static_cast<double>(params.entries) * params.client_ns + sent_to * batches * message;
  // A server: what all clients send it.
  const double at_server = static_cast<double>(clients) * sent_to / static_cast<double>(servers) *
                           (batches * message + to_each * params.server_ns);
  const double wire = to_each * params.wire_bytes / params.costs.bytes_per_ns;
  return static_cast<Nanos>(client + std::max(at_server, 0.0) + wire) + 2 * params.costs.latency;
}

}  // namespace swale::sim
