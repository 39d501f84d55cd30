#include "sim/names_storm.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "meta/client/node_names.h"
#include "meta/names/names_core.h"
#include "sim/event_queue.h"

namespace swale::sim {
namespace {

using meta::NameOp;
using meta::NameRequest;

constexpr Nanos kWrite = 10'000;  // of a group

// Groups are durable a moment after their record.
struct StormLog final : meta::NameLog {
  uint64_t groups = 0, durable = 0;
  uint64_t add(Bytes) override { return ++groups; }
  bool accepts() const override { return true; }
  Status health() const override { return {}; }
};

struct StormServer {
  explicit StormServer(uint32_t index) : table(index) {}
  meta::NameTable table;
  StormLog log;
  std::unique_ptr<meta::NamesCore> core;
};

class Storm {
 public:
  explicit Storm(const NamesStormParams& params) : params_(params), events_(params.seed) {
    for (uint32_t i = 0; i < params.nodes; ++i) {
      servers_.push_back(std::make_unique<StormServer>(i));
      StormServer& made = *servers_[i];
      made.core = std::make_unique<meta::NamesCore>(i, params.nodes, 1, &made.table, &made.log);
    }
    const uint32_t askers = params.combines ? params.nodes : params.nodes * params.processes;
    for (uint64_t i = 0; i < askers; ++i)
      nodes_.push_back(std::make_unique<meta::NodeNames>(
          meta::NodeNamesOptions{.servers = params.nodes, .node = i + 1, .gone_for_good = false}));
    root_ = server_of(meta::EntryKey(meta::kRootDirectory, "shared"), params.nodes);
  }

  NamesStormResult run() {
    // The file is made, and all nodes know the lives of the servers.
    ask(0, NameOp::kCreate, [this](const meta::NameAnswer& answer) { file_ = answer.entry.file; });
    drain();
    for (size_t node = 0; node < nodes_.size(); ++node) ask(node, NameOp::kLookUp, [](const auto&) {});
    drain();
    result_ = {};
    for (uint32_t i = 0; i < params_.nodes * params_.processes; ++i) {
      const size_t node = params_.combines ? i / params_.processes : i;
      events_.after(params_.spread, [this, node] { process(node); });
    }
    drain();
    return result_;
  }

 private:
  using Done = std::function<void(const meta::NameAnswer&)>;

  Nanos delay() { return params_.delay_min + events_.delay(params_.delay_more); }

  void drain() {
    while (events_.step()) {
    }
  }

  void process(size_t node) {
    ask(node, NameOp::kOpen, [this, node](const meta::NameAnswer& opened) {
      result_.answered += opened.held && opened.entry.file == file_;
      ask(node, NameOp::kStat, [this, node](const meta::NameAnswer& found) {
        result_.answered += found.entry.file == file_;
        nodes_[node]->release(file_);
        pump_node(node);
      });
    });
  }

  void ask(size_t node, NameOp op, Done done) {
    NameRequest request;
    request.op = op;
    if (op == NameOp::kStat) {
      request.file = file_;
    } else {
      request.directory = meta::kRootDirectory;
      request.name = "shared";
    }
    waits_[{node, nodes_[node]->ask(request, kForever)}] = std::move(done);
    pump_node(node);
  }

  void pump_node(size_t node) {
    std::vector<meta::NodeCall> calls;
    nodes_[node]->take_calls(&calls);
    for (meta::NodeCall& each : calls) {
      events_.at(events_.now() + delay(),
                 [this, node, to = each.to, tag = each.tag, payload = std::move(each.payload)] {
                   result_.at_root += to == root_;
                   origins_[++token_] = {true, node, tag};
                   servers_[to]->core->on_request(payload, token_);
                   pump_server(to);
                 });
    }
    meta::NodeNames::Finished finished;
    while (nodes_[node]->take_finished(&finished)) {
      const auto found = waits_.find({node, finished.id});
      const Done done = std::move(found->second);
      waits_.erase(found);
      if (finished.answer.ok()) done(*finished.answer);
    }
  }

  void pump_server(uint32_t index) {
    StormServer& server = *servers_[index];
    std::vector<meta::NameReply> replies;
    std::vector<meta::NameCall> calls;
    server.core->take_replies(&replies);
    server.core->take_calls(&calls);
    for (meta::NameReply& each : replies) {
      const Origin origin = origins_.at(each.token);
      origins_.erase(each.token);
      events_.at(events_.now() + delay(), [this, origin, response = std::move(each.response)] {
        if (!origin.node) {
          servers_[origin.index]->core->on_completion(origin.tag, response);
          return pump_server(static_cast<uint32_t>(origin.index));
        }
        nodes_[origin.index]->on_completion(origin.tag, response);
        pump_node(origin.index);
      });
    }
    for (meta::NameCall& each : calls) {
      events_.at(events_.now() + delay(),
                 [this, index, to = each.to, tag = each.tag, payload = std::move(each.payload)] {
                   origins_[++token_] = {false, index, tag};
                   servers_[to]->core->on_request(payload, token_);
                   pump_server(to);
                 });
    }
    if (server.log.groups == written_[index]) return;
    written_[index] = server.log.groups;
    events_.after(kWrite, [this, index, group = server.log.groups] {
      uint64_t& durable = servers_[index]->log.durable;
      durable = std::max(durable, group);
      servers_[index]->core->on_durable(durable);
      pump_server(index);
    });
  }

  struct Origin {
    bool node = false;  // or a server
    size_t index = 0;
    uint64_t tag = 0;
  };

  const NamesStormParams params_;
  EventQueue events_;
  std::vector<std::unique_ptr<StormServer>> servers_;
  std::vector<std::unique_ptr<meta::NodeNames>> nodes_;
  std::map<std::pair<size_t, meta::NodeNames::Id>, Done> waits_;
  std::map<uint64_t, Origin> origins_;
  std::map<uint32_t, uint64_t> written_;
  uint64_t token_ = 0;
  uint32_t root_ = 0;
  meta::FileId file_ = {};
  NamesStormResult result_;
};

}  // namespace

NamesStormResult run_names_storm(const NamesStormParams& params) { return Storm(params).run(); }

}  // namespace swale::sim
