#include "sim/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <utility>

#include "imd/format/extrema_summary.h"
#include "imd/write/direct_intake.h"
#include "imd/write/memory_plan.h"

namespace swale::sim {
namespace {

constexpr uint64_t kSecret = 0x5ec2e7;
constexpr Nanos kActionNanosMax = 20'000;  // an application step, a CPU task
constexpr Nanos kFlightNanosMax = 50'000;  // a frame on its link
constexpr Nanos kTick = seconds(1);
constexpr Nanos kStorageNanosMax = 400'000;  // a storage request

struct Event {
  Nanos time;
  uint64_t number;  // ties in order of creation, so that a seed is one schedule
  std::function<void()> act;
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

struct WireFrame {
  std::string header;
  std::string payload;
  bool is_data = false;
};

class Node;

}  // namespace

class Simulation {
 public:
  Simulation(const ClusterParams& params, io::Device& device, std::string directory)
      : params_(params), device_(device), directory_(std::move(directory)), rng_(params.seed) {}

  ~Simulation();

  Status build();
  bool run(uint64_t events);
  void kill(net::Rank rank);
  ClusterOutcome outcome() const;

  void after(Nanos limit, std::function<void()> act) {
    schedule(clock_.now() + 1 + static_cast<Nanos>(rng_.below(static_cast<uint64_t>(limit))), std::move(act));
  }
  void at(Nanos time, std::function<void()> act) { schedule(time, std::move(act)); }
  void send(net::Rank from, const net::Post& post);
  const ClusterParams& params() const { return params_; }
  Model& model() { return outcome_.model; }
  uint32_t first_epoch() const { return outcome_.first_epoch; }
  uint32_t schema_bytes() const { return schema_bytes_; }
  Status execute(imd::PartitionFiles& files, const imd::IoRequest& request);
  Nanos now() const { return clock_.now(); }

 private:
  struct Link {
    Nanos last_arrival = 0;  // keeps the order
    std::optional<WireFrame> held;
  };

  void schedule(Nanos time, std::function<void()> act) {
    events_.push({time, event_number_++, std::move(act)});
  }
  Result<imd::Manifest> open_manifest();
  void deliver(net::Rank from, net::Rank to, WireFrame frame);

  const ClusterParams params_;
  io::Device& device_;
  const std::string directory_;
  Rng rng_;
  ManualClock clock_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_number_ = 0;
  std::map<std::pair<net::Rank, net::Rank>, Link> links_;
  std::vector<std::unique_ptr<Node>> nodes_;
  uint32_t schema_bytes_ = 0;
  uint32_t superseded_ = 0;
  ClusterOutcome outcome_;
};

namespace {

// One rank: the product's state machines and a scripted application.
class Node {
 public:
  Node(Simulation& simulation, net::Rank rank, std::unique_ptr<imd::WriterCore> core,
       imd::PartitionFiles files, std::optional<imd::Committer> committer)
      : simulation_(simulation),
        rank_(rank),
        core_(std::move(core)),
        files_(std::move(files)),
        committer_(std::move(committer)),
        batcher_(simulation.params().ranks) {
    const ClusterParams& params = simulation.params();
    records_to_write_ = params.records_per_epoch / static_cast<uint64_t>(params.ranks);
    begin_values();
  }

  void start() {
    step_later();
    tick_later();
  }
  bool alive() const { return alive_; }
  void die() { alive_ = false; }
  const RankOutcome& outcome() const { return outcome_; }

  void on_frame(net::Rank from, const WireFrame& frame) {
    const Result<net::FrameHeader> header = net::FrameHeader::decode(frame.header, kSecret);
    if (!header.ok()) {
      core_->fail(header.status());
    } else {
      core_->on_frame(from, *header, frame.payload);
    }
    pump();
  }
  void on_sent(uint64_t cookie) {
    core_->conversation().on_sent(cookie);
    pump();
  }
  void on_down(net::Rank peer) {
    core_->on_down(peer, error(Code::kUnavailable, Scope::kPeer, "rank {} has been silent", peer));
    pump();
  }

 private:
  enum class Script { kAppend, kWaitEpoch, kWaitClose, kDone };

  void begin_values() {
    const uint32_t epoch = simulation_.first_epoch() + epoch_;
    files_.values().begin_epoch(epoch, imd::epoch_id(simulation_.params().job_id, epoch));
  }

  void step_later() {
    if (std::exchange(step_planned_, true)) return;
    simulation_.after(kActionNanosMax, [this] {
      step_planned_ = false;
      if (alive_) step();
    });
  }

  void tick_later() {
    simulation_.at(simulation_.now() + kTick, [this] {
      if (!alive_ || script_ == Script::kDone) return;
      core_->tick();
      pump();
      tick_later();
    });
  }

  // The application: appends a few records, or ends the epoch, or closes.
  void step() {
    if (!core_->failure().ok()) return finish(core_->failure());
    for (int burst = 0; script_ == Script::kAppend && burst < 32; ++burst) {
      if (written_ == records_to_write_) {
        if (core_->epochs_committed() < epoch_) break;  // the end of the epoch before is still under way
        end_epoch();
      } else if (!append_one()) {
        break;  // pump() comes back when something has changed
      }
    }
    pump();
  }

  bool append_one() {
    const ClusterParams& params = simulation_.params();
    const uint32_t epoch = simulation_.first_epoch() + epoch_;
    const Record record = make_record(params.workload, params.seed, epoch, rank_, written_);
    if (!(record.value.size() > run::kValueBytesMax ? append_large(record) : append_small(record)))
      return false;
    simulation_.model()[epoch][record.key][rank_].push_back(record.value);
    ++written_;
    return true;
  }

  bool append_small(const Record& record) {
    const Hash hash = hash_bytes(record.key);
    if (simulation_.params().ranks > 1)
      return append_to_frame([&] { return batcher_.append(record.key, record.value); });
    return append_directly([&] { return intake_.append(hash, record.key, record.value); });
  }

  // The value is written once; its record may have to wait.
  bool append_large(const Record& record) {
    const Hash hash = hash_bytes(record.key);
    if (large_record_.empty()) {
      const Result<run::ValuePointer> pointer = files_.values().append(hash, record.value);
      if (!pointer.ok()) {
        core_->fail(pointer.status());
        return false;
      }
      const Bytes prefix = Bytes(record.value).substr(0, simulation_.schema_bytes());
      large_record_ = run::encode_large_record(
          record.key, run::encode_large_value({.prefix = prefix, .pointer = *pointer}));
    }
    run::RecordView view;
    if (run::parse_record(large_record_, &view) != run::RecordParse::kOk) std::abort();
    const bool done = simulation_.params().ranks > 1
                          ? append_to_frame([&] { return batcher_.append(view); })
                          : append_directly([&] { return intake_.append(hash, view); });
    if (done) large_record_.clear();
    return done;
  }

  template <class Append>
  bool append_directly(const Append& append) {
    full_memtable_ = !core_->intake_open();
    intake_.open(&core_->partition());
    while (!full_memtable_) {
      const imd::Partition::Appended appended = append();
      if (appended.row != nullptr) return true;
      full_memtable_ = !core_->make_room(appended.way);
    }
    return false;
  }

  template <class Append>
  bool append_to_frame(const Append& append) {
    for (;;) {
      const net::Rank full = append();
      if (full == imd::Batcher::kAccepted) return true;
      core_->submit(full, batcher_.exchange(full, {}));
      blocked_on_ = full;
      if (!core_->frame_available(full)) return false;
      blocked_on_ = imd::Batcher::kAccepted;
      batcher_.exchange(full, core_->take_frame(full));
    }
  }

  void end_epoch() {
    for (net::Rank rank = 0; rank < simulation_.params().ranks; ++rank) {
      core_->submit(rank, batcher_.exchange(rank, {}));
    }
    batcher_.count(intake_.take_tally());
    core_->begin_epoch_end(epoch_ * 10, epoch_ * 0.5, batcher_.records_per_rank(), batcher_.tally(),
                           files_.values().written());
    batcher_.begin_epoch();
    written_ = 0;
    ++epoch_;
    begin_values();
    const bool last = epoch_ == simulation_.params().epochs;
    script_ = last || !simulation_.params().overlap ? Script::kWaitEpoch : Script::kAppend;
  }

  void finish(const Status& failure) {
    outcome_.failure = failure;
    outcome_.finished = true;
    script_ = Script::kDone;
  }

  // Starts whatever the core has to do now, and lets the application go on.
  void pump() {
    if (!alive_) return;
    while (const std::optional<net::Post> post = core_->conversation().next_post())
      simulation_.send(rank_, *post);
    for (uint32_t way = 0; way < simulation_.params().ways; ++way) {
      while (std::optional<imd::Partition::Task> task = core_->next_task(way)) {
        simulation_.after(kActionNanosMax, [this, task = *task]() mutable {
          if (!alive_) return;
          task.work();
          core_->finish_task(task);
          full_memtable_ = false;
          pump();
        });
      }
    }
    while (const std::optional<imd::IoRequest> request = core_->next_io()) {
      simulation_.after(kStorageNanosMax, [this, request = *request] {
        if (!alive_) return;
        core_->finish_io(request, simulation_.execute(files_, request));
        pump();
      });
    }
    if (const std::optional<imd::EpochProtocol::Commit> commit = core_->take_commit()) {
      simulation_.after(kStorageNanosMax, [this, commit = *commit] {
        if (!alive_) return;
        core_->commit_done(
            committer_->commit(commit, imd::epoch_id(simulation_.params().job_id, commit.epoch)));
        pump();
      });
    }
    advance_script();
  }

  void advance_script() {
    if (script_ == Script::kDone) return;
    if (!core_->failure().ok()) return finish(core_->failure());
    outcome_.epochs_ok = core_->epochs_committed();
    if (script_ == Script::kWaitEpoch && core_->epochs_committed() == epoch_) {
      script_ = Script::kAppend;
      if (epoch_ == simulation_.params().epochs) {
        script_ = Script::kWaitClose;
        core_->begin_close();
        return pump();
      }
    }
    if (script_ == Script::kWaitClose && core_->closed()) finish(Status());
    const bool blocked = blocked_on_ != imd::Batcher::kAccepted && !core_->frame_available(blocked_on_);
    const bool waiting = written_ == records_to_write_ && core_->epochs_committed() < epoch_;
    if (script_ == Script::kAppend && !blocked && !waiting && !full_memtable_) step_later();
  }

  Simulation& simulation_;
  const net::Rank rank_;
  std::unique_ptr<imd::WriterCore> core_;
  imd::PartitionFiles files_;
  std::optional<imd::Committer> committer_;
  imd::Batcher batcher_;
  imd::DirectIntake intake_;  // of a job of one rank
  uint64_t records_to_write_ = 0;
  uint64_t written_ = 0;
  std::string large_record_;  // whose value is written
  uint32_t epoch_ = 0;
  Script script_ = Script::kAppend;
  bool step_planned_ = false;
  bool full_memtable_ = false;                      // waits for a task to end
  net::Rank blocked_on_ = imd::Batcher::kAccepted;  // waits for a frame to this rank
  bool alive_ = true;
  RankOutcome outcome_;
};

}  // namespace

Simulation::~Simulation() = default;

// Rank 0's opening, without the lock: so a later job may take over from one that still runs.
Result<imd::Manifest> Simulation::open_manifest() {
  SWALE_ASSIGN_OR_RETURN(const bool made, imd::has_manifest(device_, directory_));
  if (!made) {
    imd::Manifest empty;
    if (params_.extrema) {
      SWALE_ASSIGN_OR_RETURN(empty.schema, run::Schema::parse(kSchema, kIndexed));
    }
    empty.layout = params_.layout;
    SWALE_RETURN_IF_ERROR(io::make_directories(device_, directory_));
    SWALE_RETURN_IF_ERROR(imd::make_first_generation(device_, directory_, empty));
  }
  SWALE_ASSIGN_OR_RETURN(const uint32_t number, imd::claim_job(device_, directory_));
  SWALE_ASSIGN_OR_RETURN(imd::Manifest base, imd::load_manifest(device_, directory_));
  superseded_ = base.continues;
  return imd::next_generation(
      std::move(base), {number, fmt::format("{:016x}", params_.job_id), params_.ranks, params_.ways, "hash"});
}

Status Simulation::build() {
  SWALE_ASSIGN_OR_RETURN(const imd::Manifest manifest, open_manifest());
  outcome_.first_epoch = static_cast<uint32_t>(manifest.epochs.size());
  schema_bytes_ = manifest.schema.value_bytes();
  SWALE_RETURN_IF_ERROR(io::make_directories(device_, imd::part_folder(directory_, 0)));
  for (const std::string& path : {imd::part_folder(directory_, 0), directory_, std::string("/")}) {
    SWALE_RETURN_IF_ERROR(device_.sync_directory(path));
  }
  SWALE_ASSIGN_OR_RETURN(
      const imd::MemoryPlan memory,
      imd::plan_memory(
          {manifest.layout.standard() ? params_.memory_bytes : std::max(params_.memory_bytes, 8 * kMiB),
           params_.ranks, params_.ways, params_.frame_bytes, params_.window,
           static_cast<uint32_t>(manifest.schema.indexed.size()), manifest.layout}));
  for (net::Rank rank = 0; rank < params_.ranks; ++rank) {
    SWALE_ASSIGN_OR_RETURN(
        imd::PartitionFiles files,
        imd::PartitionFiles::create(device_, directory_, {manifest.generation, static_cast<uint32_t>(rank)}));
    imd::WriterCoreParams core_params;
    core_params.conversation.rank = rank;
    core_params.conversation.size = params_.ranks;
    core_params.conversation.secret = kSecret;
    core_params.job_id = params_.job_id;
    core_params.first_epoch = outcome_.first_epoch;
    core_params.ways = params_.ways;
    core_params.memory = memory;
    core_params.indexed = manifest.schema.indexed;
    core_params.layout = manifest.layout;
    core_params.clock = &clock_;
    SWALE_ASSIGN_OR_RETURN(std::unique_ptr<imd::WriterCore> core, imd::WriterCore::create(core_params));
    std::optional<imd::Committer> committer;
    if (rank == 0) {
      SWALE_ASSIGN_OR_RETURN(imd::EpochLog log,
                             imd::write_generation(device_, directory_, manifest, superseded_));
      committer.emplace(device_, directory_, manifest, std::move(log),
                        imd::JobFence(device_, directory_, manifest.generation, nullptr), clock_);
    }
    nodes_.push_back(
        std::make_unique<Node>(*this, rank, std::move(core), std::move(files), std::move(committer)));
  }
  if (params_.faults.killed >= 0) schedule(params_.faults.kill_time, [this] { kill(params_.faults.killed); });
  for (const std::unique_ptr<Node>& node : nodes_) node->start();
  return device_.sync_directory(imd::part_folder(directory_, 0));
}

void Simulation::send(net::Rank from, const net::Post& post) {
  WireFrame frame{{post.header.data(), post.header.size()}, std::string(post.payload), false};
  frame.is_data = net::FrameHeader::decode(frame.header, kSecret)->kind == net::FrameKind::kData;
  const net::Rank to = post.to;
  after(kFlightNanosMax, [this, from, cookie = post.cookie] {
    if (nodes_[static_cast<size_t>(from)]->alive()) nodes_[static_cast<size_t>(from)]->on_sent(cookie);
  });
  FrameFault fault = FrameFault::kNone;
  if (frame.is_data && outcome_.data_frames++ == params_.faults.frame_number) fault = params_.faults.frame;
  Link& link = links_[{from, to}];
  switch (fault) {
    case FrameFault::kLose:
      return;
    case FrameFault::kDouble:
      deliver(from, to, frame);
      break;
    case FrameFault::kAlter:
      frame.payload[rng_.below(frame.payload.size())] ^= static_cast<char>(1 << rng_.below(8));
      break;
    case FrameFault::kSwapWithNext:
      link.held = std::move(frame);
      return;
    case FrameFault::kNone:
      break;
  }
  deliver(from, to, std::move(frame));
  if (link.held) deliver(from, to, *std::exchange(link.held, std::nullopt));
}

void Simulation::deliver(net::Rank from, net::Rank to, WireFrame frame) {
  Link& link = links_[{from, to}];
  const Nanos flight = 1 + static_cast<Nanos>(rng_.below(static_cast<uint64_t>(kFlightNanosMax)));
  link.last_arrival = std::max(link.last_arrival + 1, clock_.now() + flight);
  schedule(link.last_arrival, [this, from, to, frame = std::move(frame)] {
    Node& node = *nodes_[static_cast<size_t>(to)];
    if (node.alive()) node.on_frame(from, frame);
  });
}

Status Simulation::execute(imd::PartitionFiles& files, const imd::IoRequest& request) {
  const auto number = static_cast<int64_t>(outcome_.io_requests++);
  if (number == params_.faults.io_number) return params_.faults.io_status;
  return files.execute(request);
}

void Simulation::kill(net::Rank rank) {
  nodes_[static_cast<size_t>(rank)]->die();
  schedule(clock_.now() + params_.silence_deadline, [this, rank] {
    for (const std::unique_ptr<Node>& node : nodes_) {
      if (node->alive()) node->on_down(rank);
    }
  });
}

bool Simulation::run(uint64_t events) {
  for (uint64_t count = 0; !events_.empty() && count < events; ++count) {
    const Event event = events_.top();
    events_.pop();
    clock_.advance(event.time - clock_.now());
    ++outcome_.events;
    event.act();
  }
  return !events_.empty();
}

ClusterOutcome Simulation::outcome() const {
  ClusterOutcome outcome = outcome_;
  for (const std::unique_ptr<Node>& node : nodes_) outcome.ranks.push_back(node->outcome());
  outcome.time = clock_.now();
  return outcome;
}

Cluster::Cluster(std::unique_ptr<Simulation> simulation) : simulation_(std::move(simulation)) {}
Cluster::~Cluster() = default;
bool Cluster::run(uint64_t events) { return simulation_->run(events); }
void Cluster::kill(net::Rank rank) { simulation_->kill(rank); }
ClusterOutcome Cluster::outcome() const { return simulation_->outcome(); }

Result<std::unique_ptr<Cluster>> Cluster::open(const ClusterParams& params, io::Device& device,
                                               const std::string& directory) {
  auto simulation = std::make_unique<Simulation>(params, device, directory);
  SWALE_RETURN_IF_ERROR(simulation->build());
  return std::unique_ptr<Cluster>(new Cluster(std::move(simulation)));
}

Result<ClusterOutcome> run_cluster(const ClusterParams& params, io::Device& device,
                                   const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, Cluster::open(params, device, directory));
  cluster->run(params.faults.events_max);
  return cluster->outcome();
}

}  // namespace swale::sim
