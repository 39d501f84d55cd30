#include "sim/names_cluster.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/client/node_names.h"
#include "meta/names/names_core.h"
#include "sim/event_queue.h"
#include "sim/names_model.h"

namespace swale::sim {
namespace {

using meta::FileId;
using meta::NameOp;
using meta::NameRequest;
using meta::NameStep;
using meta::PeerOp;
using meta::StepKind;

constexpr Nanos kDelay = 50'000;
constexpr Nanos kPatience = 2'000'000;
constexpr size_t kNames = 4;
constexpr size_t kDirectories = 6;  // that clients still use, newest last

const char* name_of(NameOp op) {
  switch (op) {
    case NameOp::kLookUp:
      return "look up";
    case NameOp::kStat:
      return "stat";
    case NameOp::kList:
      return "list";
    case NameOp::kCreate:
      return "create";
    case NameOp::kOpen:
      return "open";
    case NameOp::kMakeDirectory:
      return "mkdir";
    case NameOp::kSymlink:
      return "symlink";
    case NameOp::kUnlink:
      return "unlink";
    case NameOp::kRemoveDirectory:
      return "rmdir";
    case NameOp::kRename:
      return "rename";
    case NameOp::kSetNode:
      return "chmod";
    case NameOp::kHold:
      return "hold";
    default:
      return "release";
  }
}

const char* name_of(PeerOp op) {
  constexpr const char* kNamesOf[] = {"enrol",  "leave",   "remove", "drop",       "lock",
                                      "decide", "inquire", "parent", "set parent", "uncache"};
  return kNamesOf[static_cast<size_t>(op) - static_cast<size_t>(PeerOp::kEnrol)];
}

// What a shard is given to read its log into: the table, or a canary that overlooks some steps.
class Replayed final : public meta::LoggedTable {
 public:
  Replayed(meta::NameTable* table, NamesClusterParams::Canary canary) : table_(*table), canary_(canary) {}
  Status replay(Bytes record) override {
    meta::NameRecord kept;
    bool overlooked = false;
    const Status status = meta::visit_record(record, [&](NameStep&& step) -> Status {
      const bool intent = step.kind == StepKind::kIntent;
      const bool counters = step.kind == StepKind::kCounters;
      overlooked = overlooked || (intent && canary_ == NamesClusterParams::Canary::kNoIntents) ||
                   (counters && canary_ == NamesClusterParams::Canary::kReusedId);
      return {};
    });
    SWALE_RETURN_IF_ERROR(status);
    if (!overlooked) return table_.replay(record);
    // The other steps of the record count.
    SWALE_RETURN_IF_ERROR(meta::visit_record(record, [&](NameStep&& step) -> Status {
      switch (step.kind) {
        case StepKind::kEntry:
          kept.entry(step.key, step.entry);
          break;
        case StepKind::kNoEntry:
          kept.no_entry(step.key);
          break;
        case StepKind::kNode:
          kept.node(step.id, step.node);
          break;
        case StepKind::kHolder:
          kept.pair(step.kind, step.id, step.other);
          break;
        case StepKind::kAnswer:
          kept.answer(step.from, step.entry);
          break;
        case StepKind::kLock:
          kept.lock(step.key, {step.transaction, step.grant});
          break;
        default:
          break;
      }
      return {};
    }));
    return table_.replay(kept.bytes());
  }
  void for_each_record(const std::function<void(Bytes)>& visit) const override {
    table_.for_each_record(visit);
  }
  size_t changes() const override { return table_.changes(); }
  void keep(size_t count) noexcept override { table_.keep(count); }
  void undo() noexcept override { table_.undo(); }

 private:
  meta::NameTable& table_;
  const NamesClusterParams::Canary canary_;
};

struct Server final : meta::NameLog {
  io::MemoryDevice memory;
  io::FaultDevice disk{memory};
  std::unique_ptr<meta::NameTable> table;
  std::unique_ptr<Replayed> replayed;
  std::unique_ptr<meta::Shard> shard;
  std::unique_ptr<meta::NamesCore> core;                  // none: it is dead
  std::vector<std::pair<uint64_t, std::string>> records;  // that are not durable, with their groups
  uint64_t life = 0;
  bool sync = false;  // the next group is synced at once

  void sync_next() override { sync = true; }
  std::unique_ptr<meta::Work> next_commit() {
    auto work = shard->next_commit(sync ? store::AppendSync::kNow : store::AppendSync::kLater);
    if (work != nullptr) sync = false;
    return work;
  }
  uint64_t add(Bytes record) override {
    const uint64_t group = shard->add_record(record);
    records.emplace_back(group, record);
    return group;
  }
  bool accepts() const override { return shard->accepts_records(); }
  Status health() const override { return shard->health(); }
};

// An operation under way.
struct Running {
  NameRequest request;
  bool applied = false;         // the model has made the change
  FileId result = {};           // of the change
  std::set<ModelAnswer> right;  // answers that change nothing and were right at some moment
  // Of a listing:
  std::set<std::string> always, ever, seen;  // names that were there all along, at some time, in answers
  std::vector<uint64_t> members;
};

struct Client {
  uint32_t made = 0;
  bool busy = false;
  std::vector<FileId> held;
  Running running;
};

// What a node has sent, and the clients that it is for.
struct Asked {
  NameRequest request;
  std::vector<uint32_t> clients;
  bool applied = false;
};

struct NodeState {
  std::unique_ptr<meta::EntryCache> cache;  // none if no server is on the node
  std::unique_ptr<meta::NodeNames> names;
  std::map<meta::NodeNames::Id, uint32_t> clients;  // of what is asked
};

class Simulation {
 public:
  explicit Simulation(const NamesClusterParams& params)
      : params_(params), events_(params.seed), model_(params.servers), servers_(params.servers) {
    directories_.push_back(meta::kRootDirectory);
  }

  NamesClusterOutcome run() {
    for (uint64_t node = 0; node < params_.nodes; ++node) {
      NodeState& made = nodes_.emplace_back();
      if (node < params_.servers) made.cache = std::make_unique<meta::EntryCache>();
      made.names = std::make_unique<meta::NodeNames>(meta::NodeNamesOptions{
          .servers = params_.servers, .node = node + 1, .gone_for_good = false, .cache = made.cache.get()});
    }
    for (uint32_t i = 0; i < params_.servers; ++i) {
      servers_[i] = std::make_unique<Server>();
      if (!servers_[i]->memory.make_directory("names").ok() || !servers_[i]->memory.sync_directory("/").ok())
        blame("no directory");
      start(i);
    }
    clients_.resize(params_.nodes * params_.slots);
    for (uint32_t i = 0; i < clients_.size(); ++i) events_.after(kDelay, [this, i] { next(i); });
    for (uint32_t i = 0; i < params_.kills; ++i)
      events_.after(20 * kPatience,
                    [this] { kill(static_cast<uint32_t>(events_.rng().below(params_.servers))); });
    uint64_t step = 0;
    while (step < 2'000'000 && outcome_.problem.empty() && events_.step()) ++step;
    for (uint32_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].made < params_.operations)
        blame(
            fmt::format("client {} has not come to its end: {}", i, name_of(clients_[i].running.request.op)));
    }
    if (outcome_.problem.empty()) compare();
    return outcome_;
  }

 private:
  void blame(const std::string& what) {
    if (outcome_.problem.empty()) outcome_.problem = what;
  }

  // ---- servers

  void start(uint32_t index) {
    Server& server = *servers_[index];
    server.table = std::make_unique<meta::NameTable>(index);
    server.replayed = std::make_unique<Replayed>(server.table.get(), params_.canary);
    meta::ShardOptions options;
    options.directory = "names";
    options.shard = index;
    options.table = server.replayed.get();
    options.table_bytes_min = params_.seed % 2 == 0 ? 1000 : kMiB;  // many checkpoints, or none
    options.write_buffer_entries = 64;
    auto shard = meta::Shard::open(server.disk, options);
    if (!shard.ok()) return blame(shard.status().to_string());
    server.shard = *std::move(shard);
    const bool reuses = params_.canary == NamesClusterParams::Canary::kReusedId;
    server.core = std::make_unique<meta::NamesCore>(
        index, params_.servers, reuses ? 1 : server.shard->job(), server.table.get(), &server,
        index < nodes_.size() ? nodes_[index].cache.get() : nullptr);
    server.core->on_durable(server.shard->durable_group(), server.shard->synced_group());
    server.core->resume();
    pump(index);
  }

  void kill(uint32_t index) {
    Server& server = *servers_[index];
    if (server.core == nullptr) return;
    ++outcome_.killed;
    server.core.reset();
    server.shard.reset();
    server.records.clear();
    ++server.life;
    server.sync = false;
    if (index < nodes_.size()) nodes_[index].cache->clear();
    if (loses_unsynced()) server.memory.crash(events_.rng(), io::CrashMode::kTearPages);
    server.disk.clear();
    std::vector<uint64_t> lost;
    for (const auto& [token, origin] : open_) {
      if (origin.to == index && origin.to_life != server.life) lost.push_back(token);
    }
    for (const uint64_t token : lost) fail(token, Code::kUnavailable);
    events_.after(5 * kPatience, [this, index] { start(index); });
  }

  bool loses_unsynced() const {
    return params_.power || params_.canary == NamesClusterParams::Canary::kUnsynced;
  }

  // Whether the server is killed here.
  bool point(uint32_t index, const std::string& what) {
    ++outcome_.visited[what];
    if (++outcome_.points != params_.kill_at) return false;
    kill(index);
    return true;
  }

  void pump(uint32_t index) {
    Server& server = *servers_[index];
    if (server.core == nullptr) return;
    std::vector<meta::NameReply> replies;
    std::vector<meta::NameCall> calls;
    server.core->take_replies(&replies);
    server.core->take_calls(&calls);
    for (meta::NameReply& each : replies) {
      if (lose()) continue;  // the caller's patience ends
      events_.after(kDelay, [this, token = each.token, response = std::move(each.response)] {
        complete(token, response);
      });
    }
    for (meta::NameCall& each : calls)
      send({-1, index, server.life, each.tag}, each.to, std::move(each.payload));
    const uint64_t group = server.shard->open_group();
    if (std::unique_ptr<meta::Work> work = server.next_commit()) write(index, group, std::move(work));
    if (std::unique_ptr<meta::Work> work = server.shard->next_background()) write(index, 0, std::move(work));
  }

  // A group, or background work: what it writes is there from the moment at which it has run.
  void write(uint32_t index, uint64_t group, std::unique_ptr<meta::Work> made) {
    const auto work = std::make_shared<std::unique_ptr<meta::Work>>(std::move(made));
    const char* const kind = group != 0 ? "group" : "background";
    events_.after(2 * kDelay, [this, index, life = servers_[index]->life, group, work, kind] {
      Server& server = *servers_[index];
      if (server.life != life || server.core == nullptr) return;
      if (outcome_.points + 1 == params_.kill_at) {  // torn in the middle
        io::Fault fault;
        fault.action = io::FaultAction::kTear;
        fault.kind = io::CallKind::kWrite;
        fault.from_then_on = true;
        // A process that is killed leaves what it has written: never a whole record, as that has happened.
        fault.position = events_.rng().below(loses_unsynced() ? 100 : store::kRecordHeadBytes);
        server.disk.inject(fault);
        (*work)->run();
      }
      if (point(index, fmt::format("{}: in the middle of its write", kind))) return;
      (*work)->run();
      if (group != 0) durable(index, group);
      if (point(index, fmt::format("{}: after its write", kind))) return;
      events_.after(kDelay, [this, index, life, work] {
        Server& still = *servers_[index];
        if (still.life != life || still.core == nullptr) return;
        if (const Status status = still.shard->finish(std::move(*work)); !status.ok())
          return blame(status.to_string());
        still.core->on_durable(still.shard->durable_group(), still.shard->synced_group());
        pump(index);
      });
    });
  }

  // ---- the network

  struct Origin {
    int64_t node = -1;  // or a server
    uint32_t server = 0;
    uint64_t life = 0;
    uint64_t tag = 0;
    uint32_t to = 0;
    uint64_t to_life = 0;
  };

  bool lose() {
    const bool lost = events_.rng().below(1000) < params_.lose_per_mille;
    outcome_.lost += lost;
    return lost;
  }

  void fail(uint64_t token, Code code) {
    events_.after(kDelay,
                  [this, token, code] { complete(token, error(code, Scope::kPeer, "the network lost it")); });
  }

  void send(Origin origin, uint32_t to, std::string payload) {
    const uint64_t token = next_token_++;
    origin.to = to;
    origin.to_life = servers_[to]->life;
    open_[token] = origin;
    note(payload);
    events_.at(events_.now() + kPatience, [this, token] {
      complete(token, error(Code::kDeadlineExceeded, Scope::kOperation, "no answer in time"));
    });
    const auto arrive = [this, to, token, payload, life = origin.to_life] {
      if (servers_[to]->core == nullptr || servers_[to]->life != life) return fail(token, Code::kUnavailable);
      receive(to, token, payload);
    };
    // A late copy reaches whatever life the server has then.
    const auto arrive_late = [this, to, token, payload] {
      if (servers_[to]->core != nullptr) receive(to, token, payload);
    };
    if (!lose()) events_.after(kDelay, arrive);
    if (events_.rng().below(1000) >= params_.double_per_mille) return;
    ++outcome_.doubled;
    events_.after(5 * kPatience, arrive_late);  // most often when all is over
  }

  void receive(uint32_t to, uint64_t token, const std::string& payload) {
    const bool peer = meta::from_peer(payload);
    if (peer && params_.canary == NamesClusterParams::Canary::kUnaskedServer &&
        static_cast<PeerOp>(payload[0]) == PeerOp::kLeave && to % 2 == 1) {
      return events_.after(kDelay, [this, token] { complete(token, encode(meta::PeerAnswer())); });
    }
    if (peer && params_.canary == NamesClusterParams::Canary::kUntold &&
        static_cast<PeerOp>(payload[0]) == PeerOp::kUncache) {
      return events_.after(kDelay, [this, token] { complete(token, encode(meta::PeerAnswer())); });
    }
    const char* const what =
        peer ? name_of(static_cast<PeerOp>(payload[0])) : name_of(static_cast<NameOp>(payload[0]));
    if (point(to, fmt::format("{}: before it is handled", what))) return;
    servers_[to]->core->on_request(payload, token);
    if (point(to, fmt::format("{}: after it is handled", what))) return;
    pump(to);
  }

  void complete(uint64_t token, const Result<std::string>& response) {
    const auto found = open_.find(token);
    if (found == open_.end()) return;
    const Origin origin = found->second;
    open_.erase(found);
    if (origin.node >= 0) {
      const auto node = static_cast<size_t>(origin.node);
      nodes_[node].names->on_completion(origin.tag, response);
      return pump_node(node);
    }
    Server& server = *servers_[origin.server];
    if (server.core == nullptr || server.life != origin.life) return;
    server.core->on_completion(origin.tag, response);
    pump(origin.server);
  }

  // Which request a directory is removed for.
  void note(const std::string& payload) {
    if (!meta::from_peer(payload) || static_cast<PeerOp>(payload[0]) != PeerOp::kRemove) return;
    const auto request = meta::decode_peer_request(payload);
    if (request.ok()) removers_[request->file] = request->from;
  }

  // ---- the model

  void durable(uint32_t index, uint64_t group) {
    Server& server = *servers_[index];
    auto& records = server.records;
    const auto end =
        std::find_if(records.begin(), records.end(), [&](const auto& each) { return each.first > group; });
    for (auto each = records.begin(); each != end; ++each) happen(each->second);
    records.erase(records.begin(), end);
  }

  void happen(const std::string& record) {
    std::vector<NameStep> steps;
    const Status status = meta::visit_record(record, [&](NameStep&& step) -> Status {
      steps.push_back(std::move(step));
      return {};
    });
    if (!status.ok()) return blame(status.to_string());
    for (const NameStep& step : steps) {
      if (step.kind == StepKind::kAnswer) change(step.from, step.entry.file);
      if (step.kind == StepKind::kNoNode && model_.is_directory(step.id)) change(removers_[step.id], {});
    }
    for (const NameStep& step : steps) {
      if (step.kind != StepKind::kNoNode) continue;
      if (const std::string wrong = model_.gone(step.id); !wrong.empty()) blame(wrong);
      for (const NodeState& each : nodes_) {
        if (each.names->holds(step.id)) blame("a file is gone that a node counts on");
      }
    }
    look_again();
  }

  void change(const meta::RequestKey& from, const FileId& file) {
    const auto found = asked_.find({from.client, from.number});
    if (found == asked_.end()) return blame("a change that nobody has asked for");
    Asked& asked = found->second;
    if (asked.applied) return;  // when its directory was removed
    const NameRequest& request = asked.request;
    // To hold changes nothing for others, and whoever asked may ask again before he is answered.
    const bool holds = request.op == NameOp::kOpen || request.op == NameOp::kHold ||
                       request.op == NameOp::kRelease ||
                       (request.op == NameOp::kCreate && !model_.answers(request).begin()->file.none());
    if (const std::string wrong = model_.apply(request, file); !wrong.empty()) {
      return blame(fmt::format("{} of {}.{} {}: {}", name_of(request.op), request.directory.high,
                               request.directory.low, request.name, wrong));
    }
    asked.applied = true;
    ++outcome_.changed;
    if (holds) return;
    for (const uint32_t client : asked.clients) {
      clients_[client].running.applied = true;
      clients_[client].running.result = file;
    }
  }

  // The tree has changed: what is right now for those that wait.
  void look_again() {
    for (Client& each : clients_) {
      if (!each.busy) continue;
      Running& running = each.running;
      if (running.request.op == NameOp::kList || running.request.op == NameOp::kMembers) {
        const std::set<std::string> names = model_.names(running.request.file);
        running.ever.insert(names.begin(), names.end());
        std::erase_if(running.always, [&](const std::string& name) { return !names.contains(name); });
      } else {
        running.right.merge(model_.answers(running.request));
      }
    }
  }

  // ---- clients

  void next(uint32_t index) {
    Client& client = clients_[index];
    client.running = {};
    NameRequest& request = client.running.request;
    choose(index, &request);
    client.busy = true;
    if (request.op == NameOp::kMembers) {
      client.running.always = client.running.ever = model_.names(request.file);
    } else {
      client.running.right = model_.answers(request);
    }
    ask(index);
  }

  void choose(uint32_t index, NameRequest* request) {
    Rng& rng = events_.rng();
    const auto name = [&] { return std::string(1, static_cast<char>('a' + rng.below(kNames))); };
    const auto directory = [&] { return directories_[rng.below(directories_.size())]; };
    request->from = {(node_of(index) + 1) << 16, 0};
    request->directory = directory();
    request->name = name();
    request->mode = static_cast<uint32_t>(rng.below(0777));
    request->set = meta::kMode;
    request->now_ns = events_.now();
    const bool synced = params_.power || rng.chance(1, 3);
    request->wait = synced ? meta::AnswerWait::kSynced : meta::AnswerWait::kWritten;
    const uint64_t kind = rng.below(100);
    const auto file = [&] {
      return files_.empty() ? meta::kRootDirectory : files_[rng.below(files_.size())];
    };
    if (kind < 12) {
      request->op = NameOp::kCreate;
      if (rng.chance(1, 2)) request->flags |= meta::kExclusive;
      if (rng.chance(1, 2)) request->flags |= meta::kAndHold;
    } else if (kind < 28 && params_.directories) {
      request->op = NameOp::kMakeDirectory;
    } else if (kind < 31) {
      request->op = NameOp::kSymlink;
      request->value = "target";
    } else if (kind < 41) {
      request->op = NameOp::kUnlink;
    } else if (kind < 53 && params_.directories) {
      request->op = NameOp::kRemoveDirectory;
    } else if (kind < 73 && params_.renames) {
      request->op = NameOp::kRename;
      request->target = rng.chance(1, 3) ? request->directory : directory();
      request->target_name = name();
      const uint64_t how = rng.below(6);
      request->flags = how == 0 ? meta::kNoReplace : how == 1 ? meta::kExchange : 0;
    } else if (kind < 76) {
      request->op = NameOp::kOpen;
    } else if (kind < 84) {
      constexpr NameOp kByFile[] = {NameOp::kSetNode, NameOp::kHold, NameOp::kRelease, NameOp::kRelease,
                                    NameOp::kStat};
      request->op = kByFile[rng.below(5)];
      request->file = file();
      std::vector<FileId>& held = clients_[index].held;
      if (request->op == NameOp::kRelease && held.empty()) request->op = NameOp::kStat;
      if (request->op == NameOp::kRelease) {
        request->file = held.back();
        held.pop_back();
      }
    } else if (kind < 88) {
      request->op = NameOp::kMembers;
      request->file = directory();
    } else {
      request->op = NameOp::kLookUp;
      if (rng.chance(3, 4)) request->flags = meta::kEntryOnly;
    }
  }

  uint64_t node_of(uint32_t index) const { return index / params_.slots; }

  void ask(uint32_t index) {
    const uint64_t node = node_of(index);
    NameRequest request = clients_[index].running.request;
    if (request.op == NameOp::kRelease) {
      if (!nodes_[node].names->release(request.file, request.wait))
        blame("a file that is held cannot be released");
      events_.after(kDelay, [this, index] { hear(index, meta::NameAnswer()); });
    } else {
      if (request.op == NameOp::kList) request.file = {clients_[index].running.members.back(), 1};
      nodes_[node].clients[nodes_[node].names->ask(request, kForever)] = index;
    }
    pump_node(node);
  }

  void pump_node(size_t index) {
    NodeState& node = nodes_[index];
    std::vector<meta::NodeCall> calls;
    node.names->take_calls(&calls);
    for (meta::NodeCall& each : calls) {
      const NameRequest request = *meta::decode_name_request(each.payload);
      Asked& asked = asked_[{request.from.client, request.from.number}];
      asked.request = request;
      asked.clients.clear();
      for (const auto id : node.names->askers(each.tag)) asked.clients.push_back(node.clients.at(id));
      send({static_cast<int64_t>(index), 0, 0, each.tag}, each.to, std::move(each.payload));
    }
    meta::NodeNames::Finished finished;
    while (node.names->take_finished(&finished)) {
      const auto client = node.clients.find(finished.id);
      const uint32_t waiting = client->second;
      node.clients.erase(client);
      hear(waiting, finished.answer);
    }
  }

  void hear(uint32_t index, const Result<meta::NameAnswer>& answer) {
    Client& client = clients_[index];
    if (!answer.ok()) return blame(answer.status().to_string());
    Running& running = client.running;
    ++outcome_.answers[fmt::format("{}{}{}", name_of(running.request.op), answer->error != 0 ? ": " : "",
                                   answer->error != 0 ? strerrorname_np(answer->error) : "")];
    if (running.request.op == NameOp::kMembers || running.request.op == NameOp::kList) {
      if (!listed(&running, *answer)) return ask(index);
    } else if (running.request.op != NameOp::kRelease) {
      judge(running, *answer);
      if (answer->held) client.held.push_back(answer->entry.file);
    }
    client.busy = false;
    remember(*answer);
    ++outcome_.operations;
    outcome_.refused += answer->error != 0;
    if (++client.made < params_.operations) events_.after(kDelay, [this, index] { next(index); });
  }

  void judge(const Running& running, const meta::NameAnswer& answer) {
    const NameRequest& request = running.request;
    if (running.applied && answer.error == ESTALE && request.op == NameOp::kCreate)
      return;  // unlinked at once
    if (running.applied) {
      const bool right = answer.error == 0 && (running.result.none() || answer.entry.file == running.result);
      if (!right)
        blame(fmt::format("{} has happened, and was answered with errno {}", name_of(request.op),
                          answer.error));
      return;
    }
    ModelAnswer found{.error = answer.error, .file = answer.entry.file};
    if (request.op == NameOp::kStat && answer.node) found.mode = answer.node->mode;
    if (running.right.contains(found)) return;
    std::string right;
    for (const ModelAnswer& each : running.right)
      right += fmt::format(" [errno {}, file {}.{}{}]", each.error, each.file.high, each.file.low,
                           each.changes ? ", with a change" : "");
    blame(fmt::format("client {:x}: {} of {}.{} {} was answered with errno {} and file {}.{}; right were{}",
                      request.from.client, name_of(request.op), request.directory.high, request.directory.low,
                      request.name, answer.error, answer.entry.file.high, answer.entry.file.low, right));
  }

  // False: there is more.
  bool listed(Running* running, const meta::NameAnswer& answer) {
    NameRequest& request = running->request;
    if (request.op == NameOp::kMembers) {
      if (answer.error != 0) {
        if (!running->always.empty()) blame("a directory with entries is not there");
        return true;
      }
      running->members = answer.members;
      request.op = NameOp::kList;
      request.directory = request.file;
      request.name.clear();
      request.count = 1 + static_cast<uint32_t>(events_.rng().below(3));
    } else {
      for (const meta::ListedEntry& each : answer.list) {
        if (!running->seen.insert(each.name).second) blame(fmt::format("{} was listed twice", each.name));
        if (!running->ever.contains(each.name))
          blame(fmt::format("{} was listed and never there", each.name));
      }
      if (!answer.list.empty()) request.name = answer.list.back().name;
      if (!answer.more) {
        running->members.pop_back();
        request.name.clear();
      }
    }
    if (!running->members.empty()) return false;
    for (const std::string& name : running->always) {
      if (!running->seen.contains(name)) blame(fmt::format("{} was there all along and not listed", name));
    }
    ++outcome_.listed;
    return true;
  }

  void remember(const meta::NameAnswer& answer) {
    if (answer.error != 0 || answer.entry.file.none()) return;
    auto& known = answer.entry.type == meta::NodeType::kDirectory ? directories_ : files_;
    if (std::find(known.begin(), known.end(), answer.entry.file) != known.end()) return;
    known.push_back(answer.entry.file);
    if (known.size() > kDirectories) known.erase(known.begin() + (&known == &directories_ ? 1 : 0));
  }

  // ---- the end

  // All servers are read once more from their logs. Their rows are the model's, and nothing is left over.
  void compare() {
    std::map<FileId, NamesModel::Node> nodes;
    for (uint32_t i = 0; i < params_.servers; ++i) {
      if (servers_[i]->core->under_way() != 0) return blame("an operation is still under way");
      servers_[i]->core.reset();
      servers_[i]->shard.reset();
      if (loses_unsynced()) servers_[i]->memory.crash(events_.rng(), io::CrashMode::kDropAll);
      start(i);
      const meta::NameTable& table = *servers_[i]->table;
      if (!table.locks().empty() || !table.intents().empty())
        return blame("a lock or an intent is left over");
      for (const auto& [id, node] : table.nodes()) {
        NamesModel::Node& made = nodes[id];
        made.type = node.type;
        made.linked = !node.unlinked;
        made.mode = node.mode;
        if (node.type == meta::NodeType::kDirectory) made.parent = node.parent;
      }
    }
    for (uint32_t i = 0; i < params_.servers; ++i) {
      for (const auto& [key, entry] : servers_[i]->table->entries()) {
        if (server_of(key, params_.servers) != i) return blame("an entry is at another server");
        const auto directory = nodes.find(key.directory);
        const auto file = nodes.find(entry.file);
        if (directory == nodes.end() || file == nodes.end() || file->second.type != entry.type)
          return blame(fmt::format("the entry {} leads nowhere, or its directory is gone", key.name));
        directory->second.entries[key.name] = entry.file;
      }
    }
    for (const auto& [id, right] : model_.nodes()) {
      const auto found = nodes.find(id);
      if (found == nodes.end()) return blame(fmt::format("node {}.{} is lost", id.high, id.low));
      const bool same = found->second.type == right.type && found->second.entries == right.entries &&
                        found->second.linked == right.linked && found->second.mode == right.mode &&
                        (right.type != meta::NodeType::kDirectory || found->second.parent == right.parent);
      if (!same) return blame(fmt::format("node {}.{} differs from the model", id.high, id.low));
      nodes.erase(found);
    }
    if (!nodes.empty())
      blame(fmt::format("node {}.{} is nobody's", nodes.begin()->first.high, nodes.begin()->first.low));
  }

  const NamesClusterParams params_;
  EventQueue events_;
  NamesModel model_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Client> clients_;
  std::vector<FileId> directories_, files_;
  std::vector<NodeState> nodes_;
  std::map<std::pair<uint64_t, uint64_t>, Asked> asked_;  // by client and number
  std::map<FileId, meta::RequestKey> removers_;
  std::map<uint64_t, Origin> open_;
  uint64_t next_token_ = 1;
  NamesClusterOutcome outcome_;
};

}  // namespace

NamesClusterOutcome run_names_cluster(const NamesClusterParams& params) { return Simulation(params).run(); }

}  // namespace swale::sim
