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
#include "sim/names_judge.h"
#include "sim/request_net.h"

namespace swale::sim {
namespace {

using meta::FileId;
using meta::NameOp;
using meta::NameRequest;
using meta::NameStep;
using meta::PeerOp;
using meta::StepKind;

constexpr Nanos kDelay = RequestNet::kDelay;
constexpr Nanos kPatience = RequestNet::kPatience;
constexpr size_t kNames = 4;
constexpr size_t kDirectories = 6;  // that clients still use, newest last

const char* peer_name(PeerOp op) {
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
  bool sync = false;                                      // the next group is synced at once

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

struct Client {
  uint32_t made = 0;
  std::vector<FileId> held;
};

struct NodeState {
  std::unique_ptr<meta::EntryCache> cache;  // none if no server is on the node
  std::unique_ptr<meta::NodeNames> names;
  std::map<meta::NodeNames::Id, uint32_t> clients;  // of what is asked
};

class Simulation {
 public:
  explicit Simulation(const NamesClusterParams& params)
      : params_(params),
        events_(params.seed),
        net_(events_, params.servers, params.lose_per_mille,
             [this](const auto& caller, const auto& answer) { complete(caller, answer); }),
        judge_(
            params.servers, static_cast<uint32_t>(params.nodes * params.slots), events_.rng(),
            [this](const std::string& what) { blame(what); },
            [this](const FileId& file) { return any_node_holds(file); }),
        servers_(params.servers),
        clients_(params.nodes * params.slots) {
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
    for (uint32_t i = 0; i < clients_.size(); ++i) events_.after(kDelay, [this, i] { next(i); });
    for (uint32_t i = 0; i < params_.kills; ++i)
      events_.after(20 * kPatience,
                    [this] { kill(static_cast<uint32_t>(events_.rng().below(params_.servers))); });
    uint64_t step = 0;
    while (step < 2'000'000 && outcome_.problem.empty() && events_.step()) ++step;
    for (uint32_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].made < params_.operations)
        blame(fmt::format("client {} has not come to its end: {}", i, name_of(judge_.request(i).op)));
    }
    if (outcome_.problem.empty()) compare();
    outcome_.lost = net_.lost();
    outcome_.changed = judge_.changed();
    outcome_.listed = judge_.listed();
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
    net_.up(index);
    pump(index);
  }

  void kill(uint32_t index) {
    Server& server = *servers_[index];
    if (server.core == nullptr) return;
    ++outcome_.killed;
    server.core.reset();
    server.shard.reset();
    server.records.clear();
    server.sync = false;
    if (index < nodes_.size()) nodes_[index].cache->clear();
    if (loses_unsynced()) server.memory.crash(events_.rng(), io::CrashMode::kTearPages);
    server.disk.clear();
    net_.down(index);
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
    for (meta::NameReply& each : replies) net_.answer(each.token, std::move(each.response));
    for (const meta::NameCall& each : calls) {
      judge_.sent_by_server(each.payload);
      send(net_.server(index, each.tag), each.to, each.payload);
    }
    const uint64_t group = server.shard->open_group();
    if (std::unique_ptr<meta::Work> work = server.next_commit()) write(index, group, std::move(work));
    if (std::unique_ptr<meta::Work> work = server.shard->next_background()) write(index, 0, std::move(work));
  }

  // A group, or background work: what it writes is there from the moment at which it has run.
  void write(uint32_t index, uint64_t group, std::unique_ptr<meta::Work> made) {
    const auto work = std::make_shared<std::unique_ptr<meta::Work>>(std::move(made));
    const char* const kind = group != 0 ? "group" : "background";
    events_.after(2 * kDelay, [this, index, life = net_.life(index), group, work, kind] {
      if (!net_.lives(index, life)) return;
      Server& server = *servers_[index];
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
        if (!net_.lives(index, life)) return;
        Server& still = *servers_[index];
        if (const Status status = still.shard->finish(std::move(*work)); !status.ok())
          return blame(status.to_string());
        still.core->on_durable(still.shard->durable_group(), still.shard->synced_group());
        pump(index);
      });
    });
  }

  // ---- the network

  void send(const RequestNet::Caller& caller, uint32_t to, const std::string& payload) {
    const uint64_t call = net_.open(caller, to);
    const auto arrive = [this, to, call, payload] { receive(to, call, payload); };
    if (!net_.lose()) net_.carry(call, arrive);
    if (events_.rng().below(1000) >= params_.double_per_mille) return;
    ++outcome_.doubled;
    net_.carry_copy(to, 5 * kPatience, arrive);  // most often when all is over
  }

  // Canaries: the network answers this itself, and server `to` never hears of it.
  bool swallows(uint32_t to, const std::string& payload) const {
    if (!meta::from_peer(payload)) return false;
    const auto op = static_cast<PeerOp>(payload[0]);
    return (params_.canary == NamesClusterParams::Canary::kUnaskedServer && op == PeerOp::kLeave &&
            to % 2 == 1) ||
           (params_.canary == NamesClusterParams::Canary::kUntold && op == PeerOp::kUncache);
  }

  void receive(uint32_t to, uint64_t call, const std::string& payload) {
    if (swallows(to, payload)) return net_.end(call, encode(meta::PeerAnswer()));
    const char* const what = meta::from_peer(payload) ? peer_name(static_cast<PeerOp>(payload[0]))
                                                      : name_of(static_cast<NameOp>(payload[0]));
    if (point(to, fmt::format("{}: before it is handled", what))) return;
    servers_[to]->core->on_request(payload, call);
    if (point(to, fmt::format("{}: after it is handled", what))) return;
    pump(to);
  }

  void complete(const RequestNet::Caller& caller, const Result<std::string>& answer) {
    if (caller.kind == RequestNet::Caller::Kind::kClient) {
      nodes_[caller.index].names->on_completion(caller.tag, answer);
      return pump_node(caller.index);
    }
    servers_[caller.index]->core->on_completion(caller.tag, answer);
    pump(caller.index);
  }

  bool any_node_holds(const FileId& file) const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [&](const NodeState& node) { return node.names->holds(file); });
  }

  void durable(uint32_t index, uint64_t group) {
    Server& server = *servers_[index];
    auto& records = server.records;
    const auto end =
        std::find_if(records.begin(), records.end(), [&](const auto& each) { return each.first > group; });
    for (auto each = records.begin(); each != end; ++each) judge_.happen(each->second);
    records.erase(records.begin(), end);
  }

  // ---- clients

  void next(uint32_t index) {
    NameRequest request;
    choose(index, &request);
    judge_.begin(index, request);
    ask(index);
  }

  void choose(uint32_t index, NameRequest* request) {
    Rng& rng = events_.rng();
    const auto name = [&] { return std::string(1, static_cast<char>('a' + rng.below(kNames))); };
    const auto directory = [&] { return directories_[rng.below(directories_.size())]; };
    request->from = {(uint64_t{node_of(index)} + 1) << 16, 0};
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

  uint32_t node_of(uint32_t index) const { return index / params_.slots; }

  void ask(uint32_t index) {
    const uint32_t node = node_of(index);
    const NameRequest request = judge_.request(index);
    if (request.op == NameOp::kRelease) {
      if (!nodes_[node].names->release(request.file, request.wait))
        blame("a file that is held cannot be released");
      events_.after(kDelay, [this, index] { hear(index, meta::NameAnswer()); });
    } else {
      nodes_[node].clients[nodes_[node].names->ask(request, kForever)] = index;
    }
    pump_node(node);
  }

  void pump_node(uint32_t index) {
    NodeState& node = nodes_[index];
    std::vector<meta::NodeCall> calls;
    node.names->take_calls(&calls);
    for (const meta::NodeCall& each : calls) {
      std::vector<uint32_t> waiting;
      for (const auto id : node.names->askers(each.tag)) waiting.push_back(node.clients.at(id));
      judge_.sent(*meta::decode_name_request(each.payload), std::move(waiting));
      send(RequestNet::client(index, each.tag), each.to, each.payload);
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
    if (!answer.ok()) return blame(answer.status().to_string());
    const NameOp op = judge_.request(index).op;
    ++outcome_.answers[fmt::format("{}{}{}", name_of(op), answer->error != 0 ? ": " : "",
                                   answer->error != 0 ? strerrorname_np(answer->error) : "")];
    if (!judge_.end(index, *answer)) return ask(index);
    Client& client = clients_[index];
    if (answer->held) client.held.push_back(answer->entry.file);
    remember(*answer);
    ++outcome_.operations;
    outcome_.refused += answer->error != 0;
    if (++client.made < params_.operations) events_.after(kDelay, [this, index] { next(index); });
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
    std::vector<const meta::NameTable*> tables;
    for (uint32_t i = 0; i < params_.servers; ++i) {
      if (servers_[i]->core->under_way() != 0) return blame("an operation is still under way");
      servers_[i]->core.reset();
      servers_[i]->shard.reset();
      if (loses_unsynced()) servers_[i]->memory.crash(events_.rng(), io::CrashMode::kDropAll);
      start(i);
      tables.push_back(servers_[i]->table.get());
    }
    judge_.compare(tables);
  }

  const NamesClusterParams params_;
  EventQueue events_;
  RequestNet net_;
  NamesJudge judge_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Client> clients_;
  std::vector<FileId> directories_, files_;
  std::vector<NodeState> nodes_;
  NamesClusterOutcome outcome_;
};

}  // namespace

NamesClusterOutcome run_names_cluster(const NamesClusterParams& params) { return Simulation(params).run(); }

}  // namespace swale::sim
