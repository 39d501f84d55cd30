#include "sim/meta_cluster.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "io/memory_device.h"
#include "meta/client/client_core.h"
#include "meta/server/run_table.h"
#include "meta/server/server_core.h"
#include "sim/event_queue.h"
#include "sim/request_net.h"

namespace swale::sim {
namespace {

using meta::AttributeOp;
using meta::FileId;

constexpr uint64_t kCellBytes = 512;
constexpr uint64_t kCells = 64;  // of a file: eight ranges
constexpr uint64_t kRangeBytes = 4096;
constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
constexpr size_t kFiles = 4;  // files 0 and 1 are truncated, 2 and 3 only grow
constexpr size_t kGrowingFrom = 2;
constexpr Nanos kDelay = RequestNet::kDelay;
constexpr Nanos kPatience = RequestNet::kPatience;

// A write of a cell by the put or truncate `id`; what it left there.
struct Write {
  uint64_t id = 0;
  bool hole = false;
  Nanos asked = 0;
  Nanos done = kNever;
};

class Checker {
 public:
  void ask(size_t file, uint64_t cell, uint64_t id, bool hole, Nanos now) {
    writes_[{file, cell}].push_back({id, hole, now, kNever});
  }
  void done(size_t file, uint64_t id, Nanos now) {
    for (auto& [key, writes] : writes_) {
      if (key.first != file) continue;
      for (Write& each : writes) {
        if (each.id == id) each.done = now;
      }
    }
  }
  // Whether a get that lasted from `begin` to `end` may have seen `id` (0: nothing) in the cell.
  bool allows(size_t file, uint64_t cell, uint64_t id, Nanos begin, Nanos end) const {
    const auto found = writes_.find({file, cell});
    const std::vector<Write> none;
    const std::vector<Write>& writes = found == writes_.end() ? none : found->second;
    const auto hidden = [&](Nanos done) {
      return std::any_of(writes.begin(), writes.end(),
                         [&](const Write& each) { return each.asked > done && each.done < begin; });
    };
    if (id == 0) {
      if (!hidden(-1)) return true;  // never written
      return std::any_of(writes.begin(), writes.end(), [&](const Write& each) {
        return each.hole && each.asked <= end && !hidden(each.done);
      });
    }
    return std::any_of(writes.begin(), writes.end(), [&](const Write& each) {
      return !each.hole && each.id == id && each.asked <= end && !hidden(each.done);
    });
  }

 private:
  std::map<std::pair<size_t, uint64_t>, std::vector<Write>> writes_;
};

class Simulation {
 public:
  explicit Simulation(const MetaClusterParams& params)
      : params_(params),
        events_(params.seed),
        net_(events_, params.servers, params.lose_per_mille,
             [this](const auto& caller, const auto& answer) { complete(caller, answer); }),
        partition_(params.servers, kRangeBytes) {
    servers_.resize(params.servers);
    for (size_t i = 0; i < kFiles; ++i) names_.push_back("file " + std::to_string(i));
  }

  MetaClusterOutcome run() {
    for (uint32_t i = 0; i < params_.servers; ++i) {
      servers_[i].device = std::make_unique<io::MemoryDevice>();
      if (!servers_[i].device->make_directory("store").ok() || !servers_[i].device->sync_directory(".").ok())
        blame("no directory");
      start(i);
    }
    for (uint32_t i = 0; i < params_.clients; ++i) {
      meta::ClientOptions options;
      options.client = i + 1;
      options.home = i % params_.servers;
      options.mode = static_cast<meta::RingMode>(params_.seed % 3);
      options.attempts_max = 1'000'000;  // they end with the simulation
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->core = std::make_unique<meta::ClientCore>(partition_, options);
      events_.after(kDelay, [this, i] { next(i); });
    }
    for (uint32_t i = 0; i < params_.kills; ++i)
      events_.after(20 * kPatience,
                    [this] { kill(static_cast<uint32_t>(events_.rng().below(params_.servers))); });
    for (uint64_t step = 0; step < 3'000'000 && outcome_.problem.empty() && events_.step(); ++step) {
    }
    for (const auto& client : clients_) {
      if (client->made >= params_.operations) continue;
      const Running& run = client->running;
      blame(
          fmt::format("a client has not come to its end: operation {}, {} of file {}, its root is server {}",
                      client->made,
                      run.what == Running::What::kPut   ? "put"
                      : run.what == Running::What::kGet ? "get"
                                                        : meta::op_name(run.op),
                      run.file, partition_.root_of(names_[run.file])));
    }
    outcome_.lost = net_.lost();
    return outcome_;
  }

 private:
  struct Server {
    std::unique_ptr<io::MemoryDevice> device;
    std::unique_ptr<meta::ServerCore> core;
  };
  // An operation under way.
  struct Running {
    AttributeOp op = AttributeOp::kStat;
    enum class What { kPut, kGet, kAttributes } what = What::kAttributes;
    size_t file = 0;
    uint64_t id = 0;
    uint64_t size = 0;
    uint64_t first_cell = 0, cells = 0;
    Nanos begun = 0;
    uint64_t closed_before = 0;
  };
  struct Client {
    std::unique_ptr<meta::ClientCore> core;
    uint32_t made = 0;
    Running running;
    FileId files[kFiles] = {};
    uint64_t generation[kFiles] = {};
    uint64_t written[kFiles] = {};
  };
  void blame(std::string what) {
    if (outcome_.problem.empty()) outcome_.problem = std::move(what);
  }

  // ---- servers

  void start(uint32_t index) {
    Server& server = servers_[index];
    auto attributes = std::make_unique<meta::AttributeTable>(index);
    auto shard = params_.open_shard(*server.device, index, attributes.get());
    if (!shard.ok()) return blame(shard.status().to_string());
    server.core =
        std::make_unique<meta::ServerCore>(partition_, index, static_cast<meta::RingMode>(params_.seed % 3),
                                           std::move(attributes), *std::move(shard));
    server.core->resume();
    net_.up(index);
    pump(index);
  }

  void kill(uint32_t index) {
    Server& server = servers_[index];
    if (server.core == nullptr) return;
    ++outcome_.killed;
    outcome_.duplicates += server.core->shard().counters().duplicates;
    server.core.reset();
    server.device->crash(events_.rng(), io::CrashMode::kTearPages);
    net_.down(index);
    events_.after(5 * kPatience, [this, index] { start(index); });
  }

  // What a core has to say, and its storage.
  void pump(uint32_t index) {
    Server& server = servers_[index];
    std::vector<meta::Reply> replies;
    std::vector<meta::Call> calls;
    server.core->take_replies(&replies);
    server.core->take_calls(&calls);
    for (meta::Reply& each : replies) net_.answer(each.token, std::move(each.response));
    for (meta::Call& each : calls) send(net_.server(index, each.tag), std::move(each));
    while (std::unique_ptr<meta::Work> work = server.core->next_work()) {
      const auto shared = std::make_shared<std::unique_ptr<meta::Work>>(std::move(work));
      const bool forget = params_.canary == MetaClusterParams::Canary::kForgetCommit &&
                          (*shared)->kind() == meta::WorkKind::kCommit && events_.rng().chance(1, 10);
      events_.after(2 * kDelay, [this, index, life = net_.life(index), shared, forget] {
        if (!net_.lives(index, life)) return;
        if (!forget) (*shared)->run();
        servers_[index].core->finish(std::move(*shared));
        pump(index);
      });
    }
  }

  // ---- the network

  void send(const RequestNet::Caller& caller, meta::Call call) {
    const uint64_t token = net_.open(caller, call.to);
    if (net_.lose()) return;
    if (params_.canary == MetaClusterParams::Canary::kRepeatPut && call.method == meta::Method::kPut &&
        events_.rng().chance(1, 3)) {
      std::string again = call.payload;
      std::fill(again.begin() + 20, again.begin() + 36, '\0');  // its name
      net_.carry_copy(call.to, 10 * kPatience,
                      [this, to = call.to, again] { receive(to, meta::Method::kPut, again, net_.stray()); });
    }
    net_.carry(token,
               [this, token, call = std::move(call)] { receive(call.to, call.method, call.payload, token); });
  }

  void receive(uint32_t to, meta::Method method, const std::string& payload, uint64_t token) {
    servers_[to].core->on_request(method, payload, token);
    pump(to);
  }

  void complete(const RequestNet::Caller& caller, const Result<std::string>& answer) {
    if (caller.kind == RequestNet::Caller::Kind::kServer) {
      servers_[caller.index].core->on_completion(caller.tag, answer);
      return pump(caller.index);
    }
    clients_[caller.index]->core->on_completion(caller.tag, answer);
    talk(caller.index);
  }

  // ---- clients

  void talk(uint32_t index) {
    Client& client = *clients_[index];
    std::vector<meta::Call> calls;
    client.core->take_calls(&calls);
    for (meta::Call& each : calls) send(RequestNet::client(index, each.tag), std::move(each));
    meta::Finished finished;
    while (client.core->take_finished(&finished)) {
      judge(client, finished);
      ++client.made;
      ++outcome_.operations;
      if (client.made < params_.operations) events_.after(kDelay, [this, index] { next(index); });
    }
  }

  void next(uint32_t index) {
    Client& client = *clients_[index];
    Rng& rng = events_.rng();
    Running run;
    run.begun = events_.now();
    run.file = rng.below(kFiles);
    run.closed_before = closed_[run.file];
    const FileId file = client.files[run.file];
    const uint64_t kind = client.made < kFiles ? 0 : 1 + rng.below(10);
    if (kind == 0) {  // all clients make all files at first, one of them truly
      run.file = client.made;
      run.closed_before = closed_[run.file];
      attribute(&client, &run, rng.chance(1, 2) ? AttributeOp::kCreateExclusive : AttributeOp::kCreate);
    } else if (client.generation[run.file] == 0) {  // another one has won the creation
      attribute(&client, &run, AttributeOp::kOpen);
    } else if (kind <= 4) {
      run.what = Running::What::kPut;
      run.id = ++next_id_;
      std::vector<meta::Extent> segments = cells_of_put(&run, rng);
      client.running = run;
      client.core->put(file, segments);
    } else if (kind <= 7) {
      run.what = Running::What::kGet;
      run.first_cell = rng.below(kCells);
      run.cells = 1 + rng.below(kCells - run.first_cell);
      client.running = run;
      const meta::ByteRange range{run.first_cell * kCellBytes, run.cells * kCellBytes};
      client.core->get(file, std::span(&range, 1));
    } else if (kind == 8) {
      attribute(&client, &run, AttributeOp::kClose);
    } else if (kind == 9 && run.file < kGrowingFrom) {
      run.id = ++next_id_;
      run.size = rng.below(kCells) * kCellBytes;
      for (uint64_t cell = run.size / kCellBytes; cell < kCells; ++cell)
        checker_.ask(run.file, cell, run.id, true, events_.now());
      attribute(&client, &run, AttributeOp::kTruncate);
    } else {
      attribute(&client, &run, AttributeOp::kStat);
    }
    talk(index);
  }

  std::vector<meta::Extent> cells_of_put(Running* run, Rng& rng) {
    std::vector<meta::Extent> segments;
    const uint64_t step = 1 + rng.below(4);
    const uint64_t count = 1 + rng.below(rng.chance(1, 2) ? 16 : 3);
    uint64_t cell = rng.below(kCells);
    for (uint64_t i = 0; i < count && cell < kCells; ++i, cell += rng.chance(1, 8) ? 2 : step) {
      segments.push_back({cell * kCellBytes, kCellBytes, {7, run->id << 32 | cell * kCellBytes}});
      checker_.ask(run->file, cell, run->id, false, events_.now());
      run->size = std::max(run->size, (cell + 1) * kCellBytes);
    }
    return segments;
  }

  void attribute(Client* client, Running* run, AttributeOp op) {
    run->op = op;
    meta::AttributeRequest request;
    request.op = op;
    request.name = names_[run->file];
    request.size = op == AttributeOp::kClose ? client->written[run->file] : run->size;
    request.generation = client->generation[run->file];
    if (op == AttributeOp::kClose) run->size = request.size;
    client->running = *run;
    client->core->attributes(std::move(request));
  }

  void judge(Client& client, const meta::Finished& finished) {
    const Running& run = client.running;
    if (!finished.status.ok()) {
      const bool lost_the_race = finished.status.code() == Code::kAlreadyExists;
      if (!lost_the_race) blame(finished.status.to_string());
      ++outcome_.failed;
      return;
    }
    switch (run.what) {
      case Running::What::kPut:
        checker_.done(run.file, run.id, events_.now());
        learn(&client, run.file, finished.generation);
        client.written[run.file] = std::max(client.written[run.file], run.size);
        break;
      case Running::What::kGet:
        judge_get(run, finished.found);
        break;
      case Running::What::kAttributes:
        judge_attributes(&client, run, finished.answer.attributes);
    }
  }

  static void learn(Client* client, size_t file, uint64_t generation) {
    if (generation <= client->generation[file]) return;
    client->generation[file] = generation;
    client->written[file] = 0;
  }

  void judge_get(const Running& run, const meta::Found& found) {
    ++outcome_.gets;
    std::vector<uint64_t> seen(kCells);
    for (const meta::Extent& each : found.extents) {
      for (uint64_t at = 0; at < each.length; at += kCellBytes) {
        const uint64_t offset = each.offset + at;
        const uint64_t address = each.place.address + at;
        if (offset % kCellBytes != 0 || (address & 0xffffffff) != offset || each.place.log != 7)
          return blame("a get found bytes that nobody put there");
        seen[offset / kCellBytes] = address >> 32;
      }
    }
    for (uint64_t cell = run.first_cell; cell < run.first_cell + run.cells; ++cell) {
      ++outcome_.cells_checked;
      if (checker_.allows(run.file, cell, seen[cell], run.begun, events_.now())) continue;
      return blame(fmt::format("a get of file {} found put {} in cell {}, which it must not see", run.file,
                               seen[cell], cell));
    }
  }

  void judge_attributes(Client* client, const Running& run, const meta::Attributes& attributes) {
    learn(client, run.file, attributes.generation);
    client->files[run.file] = attributes.file;
    if (run.op == AttributeOp::kCreateExclusive && ++winners_[run.file] > 1)
      return blame("an exclusive creation has two winners");
    if (run.op == AttributeOp::kCreateExclusive) ++outcome_.winners;
    if (run.op == AttributeOp::kTruncate) checker_.done(run.file, run.id, events_.now());
    if (run.op == AttributeOp::kClose) closed_[run.file] = std::max(closed_[run.file], run.size);
    if (run.file >= kGrowingFrom && attributes.size < run.closed_before)
      blame("a size is smaller than one that a close had told before");
  }

  const MetaClusterParams params_;
  EventQueue events_;
  RequestNet net_;
  const meta::Partition partition_;
  std::vector<std::string> names_;
  std::vector<Server> servers_;
  std::vector<std::unique_ptr<Client>> clients_;
  uint64_t next_id_ = 0;
  Checker checker_;
  uint64_t closed_[kFiles] = {};
  uint64_t winners_[kFiles] = {};
  MetaClusterOutcome outcome_;
};

}  // namespace

MetaClusterOutcome run_meta_cluster(const MetaClusterParams& params) { return Simulation(params).run(); }

}  // namespace swale::sim
