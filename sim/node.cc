#include "sim/node.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "imd/format/generation.h"
#include "imd/write/memory_plan.h"

namespace swale::sim {
namespace {

constexpr Nanos kActionNanosMax = 20'000;    // an application step, a CPU task
constexpr Nanos kStorageNanosMax = 400'000;  // a storage request
constexpr Nanos kSlowness = 1000;            // of ClusterParams::slow
constexpr Nanos kTick = seconds(1);

}  // namespace

Node::Node(World& world, net::Rank rank)
    : world_(world),
      rank_(rank),
      device_(world.disk),
      job_({rank, world.params.ranks, kSecret, world.params.silence_deadline}, world.events, world.fabric,
           {[this](net::Rank from, const net::FrameHeader& header, Bytes payload) {
              if (!core_ || script_ == Script::kDone) return;
              core_->on_frame(from, header, payload);
              pump();
            },
            [this](net::Rank peer, const Status& why) {
              if (!core_ || script_ == Script::kDone) return;
              core_->on_down(peer, why);
              pump();
            },
            [this] { resume_opening(); },
            [this](const Status& why) {
              if (!core_ || script_ == Script::kDone) return;
              core_->fail(why);
              pump();
            },
            [this] { return !alive_ || left_ || world_.all_over(); }}),
      fiber_([this](Fiber& fiber) { opening_ = open(fiber); }) {
  device_.set_hook([this](const io::Call&) {
    return alive_ ? Status() : error(Code::kIoError, Scope::kFile, "rank {} is dead", rank_);
  });
  records_to_write_ = world.params.records_per_epoch / static_cast<uint64_t>(world.params.ranks);
}

void Node::at(Nanos time, std::function<void()> act) {
  world_.events.at(time, [this, act = std::move(act)] {
    if (alive_) act();
  });
}

void Node::after(Nanos limit, std::function<void()> act) {
  at(world_.events.now() + world_.events.delay(limit), std::move(act));
}

void Node::start() {
  job_.start();
  after(kActionNanosMax, [this] { resume_opening(); });
}

void Node::die() {
  alive_ = false;
  fiber_.cancel();
}

void Node::arrive(net::Rank from, Bytes header, Bytes payload) {
  if (alive_) job_.arrive(from, header, payload);
}

void Node::lose(net::Rank peer, const Status& why) {
  if (alive_) job_.lose(peer, why);
}

// ---- opening

void Node::resume_opening() {
  if (script_ != Script::kOpen || opening_) return;
  fiber_.resume();
  if (!opening_) return;
  if (!opening_->ok()) return finish(*opening_);
  script_ = Script::kAppend;
  step_later();
  tick_later();
  if (rank_ == 0) renew_lock();
}

void Node::sleep(Fiber& fiber, Nanos nanos) {
  const auto woken = std::make_shared<bool>(false);
  at(world_.events.now() + nanos, [this, woken] {
    *woken = true;
    resume_opening();
  });
  while (!*woken && fiber.wait()) {
  }
}

imd::OpenEnvironment Node::environment(Fiber& fiber) {
  imd::OpenEnvironment environment;
  environment.entropy = [this] { return world_.params.job_id; };
  environment.lock.self = ProcessIdentity{fmt::format("sim-{}", rank_), "boot", "", 1 + rank_,
                                          fmt::format("{}", world_.params.job_id)};
  environment.lock.nonce = world_.events.rng().next();
  environment.lock.clock = &world_.events.clock();
  environment.lock.sleep = [this, &fiber](Nanos nanos) { sleep(fiber, nanos); };
  environment.lock.renewal = io::LockRequest::Renewal::kByCaller;
  return environment;
}

Result<imd::WriterOptions> Node::options() const {
  const ClusterParams& params = world_.params;
  imd::WriterOptions options;
  options.ways = params.ways;
  options.frame_bytes = params.frame_bytes;
  options.window = params.window;
  options.resume_after = params.resume_after;
  if (world_.made) return options;
  options.compression = params.layout.compression;
  options.index = params.layout.index;
  options.format = params.layout.format;
  if (params.extrema) {
    SWALE_ASSIGN_OR_RETURN(options.schema, run::Schema::parse(kSchema, kIndexed));
  }
  return options;
}

Status Node::open(Fiber& fiber) {
  const net::Ranks ranks = job_.ranks(fiber);
  const auto create = imd::Create::kIfMissing;
  SWALE_ASSIGN_OR_RETURN(const imd::WriterOptions wanted, options());
  SWALE_RETURN_IF_ERROR(imd::agree_on_options(ranks, create, wanted));
  SWALE_ASSIGN_OR_RETURN(
      opened_, imd::open_directory(ranks, device_, environment(fiber), world_.directory, create, wanted));
  Status status = net::agree(ranks, start_machines());
  if (status.ok()) status = imd::finish_opening(ranks, &*opened_);
  if (!status.ok()) {
    opened_->discard();
    return status;
  }
  if (rank_ == 0) committer_.emplace(opened_->committer(world_.events.clock()));
  world_.outcome.first_epoch = opened_->first_epoch;
  return {};
}

Status Node::start_machines() {
  const ClusterParams& params = world_.params;
  const imd::Manifest& manifest = opened_->manifest;
  const size_t budget = manifest.layout.format == run::ShuffleFormat::kLossy
                            ? std::max(params.memory_bytes, 32 * kMiB)
                        : manifest.layout.standard() ? params.memory_bytes
                                                     : std::max(params.memory_bytes, 8 * kMiB);
  imd::MemoryWish wish{budget,         params.ranks,
                       params.ways,    params.frame_bytes,
                       params.window,  static_cast<uint32_t>(manifest.schema.indexed.size()),
                       manifest.layout};
  net::Conversation::Params talk;
  if (!params.ranks_per_node.empty()) {
    SWALE_ASSIGN_OR_RETURN(net::NodeMap nodes, net::NodeMap::in_blocks(params.ranks_per_node));
    talk.nodes = wish.nodes = std::make_shared<const net::NodeMap>(std::move(nodes));
    wish.route = net::RouteChoice::kThreeHop;
    wish.schema_bytes = manifest.schema.value_bytes();
  }
  SWALE_ASSIGN_OR_RETURN(imd::MemoryPlan memory, imd::plan_memory(wish));
  if (params.tiny_hops) {
    memory.hops->fill({.frame_bytes = net::kHopFrameBytesMin, .shared_frames = 0, .window = 1});
    memory.record_bytes_max = net::ThreeHopRouter::message_bytes_max(*memory.hops);
  }
  talk.rank = rank_;
  talk.size = params.ranks;
  talk.channel = SimJob::kChannel;
  talk.secret = kSecret;
  SWALE_RETURN_IF_ERROR(opened_->make_source_home(params.ranks, memory));
  imd::WriterCoreParams core = opened_->core_params(talk, memory, params.ways);
  core.clock = &world_.events.clock();
  SWALE_ASSIGN_OR_RETURN(core_, imd::WriterCore::create(core));
  appender_.emplace(opened_->appender_params(PartitionNumber(rank_), params.ranks, {}, memory));
  return {};
}

// ---- the application

void Node::step_later() {
  if (std::exchange(step_planned_, true)) return;
  after(kActionNanosMax, [this] {
    step_planned_ = false;
    step();
  });
}

void Node::tick_later() {
  at(world_.events.now() + kTick, [this] {
    if (script_ == Script::kDone) return;
    core_->tick();
    pump();
    tick_later();
  });
}

void Node::renew_lock() {
  if (script_ == Script::kDone) return;
  const Nanos next = opened_->lock->renew(world_.events.now());
  if (next != kForever) at(next, [this] { renew_lock(); });
}

// Appends a few records, or ends the epoch.
void Node::step() {
  if (!core_->failure().ok()) return finish(core_->failure());
  for (int burst = 0; script_ == Script::kAppend && burst < 32; ++burst) {
    if (written_ == records_to_write_) {
      if (core_->epochs_committed() < epoch_) break;  // the previous epoch has not ended yet
      if (!end_epoch()) break;
    } else if (!append_one()) {
      break;  // pump() calls again when something has changed
    }
  }
  pump();
}

bool Node::append_one() {
  const ClusterParams& params = world_.params;
  const EpochNumber epoch = world_.outcome.first_epoch + epoch_;
  const Record record = make_record(params.workload, params.seed, epoch, rank_, written_);
  if (!large_ && appender_->goes_elsewhere(record.key, record.value)) {
    const Result<run::RecordView> pointer = appender_->write_value(record.key, record.value);
    if (!pointer.ok()) {
      core_->fail(pointer.status());
      return false;
    }
    large_ = *pointer;
  }
  for (;;) {
    need_ = large_ ? appender_->append(*large_) : appender_->append(record.key, record.value);
    if (need_.what == imd::Appender::Need::What::kNothing) break;
    if (!appender_->provide(core_.get(), need_)) return false;
  }
  large_.reset();
  world_.outcome.model[epoch][record.key][rank_].push_back(record.value);
  ++written_;
  return true;
}

bool Node::end_epoch() {
  for (;;) {
    need_ = appender_->finish_keys();
    if (need_.what == imd::Appender::Need::What::kNothing) break;
    if (!appender_->provide(core_.get(), need_)) return false;
  }
  if (const Status finished = appender_->finish_values(); !finished.ok()) {
    core_->fail(finished);
    return false;
  }
  appender_->end_epoch(core_.get(), epoch_ * 10, epoch_ * 0.5);
  written_ = 0;
  ++epoch_;
  const bool last = epoch_ == world_.params.epochs;
  script_ = last || !world_.params.overlap ? Script::kWaitEpoch : Script::kAppend;
  return true;
}

void Node::finish(const Status& failure) {
  outcome_.failure = failure;
  outcome_.finished = true;
  outcome_.finish_time = world_.events.now();
  script_ = Script::kDone;
  after(kStorageNanosMax, [this] { shut_down(); });
  // Then the application closes the job, which waits for the other ranks only for a limited time.
  at(world_.events.now() + world_.params.silence_deadline, [this] { left_ = true; });
}

// As Writer::shut_down does.
void Node::shut_down() {
  if (committer_) committer_->finish();
  committer_.reset();
  if (opened_) opened_->lock.reset();
}

void Node::advance_script() {
  if (script_ == Script::kDone) return;
  outcome_.epochs_ok = core_->epochs_committed();
  if (!core_->failure().ok()) return finish(core_->failure());
  if (script_ == Script::kWaitEpoch && core_->epochs_committed() == epoch_) {
    script_ = Script::kAppend;
    if (epoch_ == world_.params.epochs) {
      script_ = Script::kWaitClose;
      core_->begin_close();
      return pump();
    }
  }
  if (script_ == Script::kWaitClose && core_->closed()) return finish(Status());
  const bool blocked = !appender_->can_provide(*core_, need_);
  const bool waiting = written_ == records_to_write_ && core_->epochs_committed() < epoch_;
  if (script_ == Script::kAppend && !blocked && !waiting) step_later();
}

// ---- the core's work

void Node::pump() {
  while (const std::optional<net::Post> post = core_->conversation().next_post()) {
    job_.post(*post);
    after(Fabric::kFlightNanosMax, [this, cookie = post->cookie] {
      core_->conversation().on_sent(cookie);
      pump();
    });
  }
  pump_tasks();
  pump_storage();
  if (script_ != Script::kOpen) advance_script();
}

void Node::pump_tasks() {
  for (uint32_t way = 0; way < world_.params.ways; ++way) {
    while (const std::optional<imd::Partition::Task> task = core_->next_task(way)) {
      after(kActionNanosMax, [this, task = *task]() mutable {
        task.work();
        core_->finish_task(task);
        pump();
      });
    }
  }
}

void Node::pump_storage() {
  while (const std::optional<imd::IoRequest> request = core_->next_io()) {
    after(rank_ == world_.params.slow ? kSlowness * kStorageNanosMax : kStorageNanosMax,
          [this, request = *request] {
            const auto number = static_cast<int64_t>(world_.outcome.io_requests++);
            const Faults& faults = world_.params.faults;
            core_->finish_io(
                request, number == faults.io_number ? faults.io_status : opened_->files->execute(request));
            pump();
          });
  }
  if (const std::optional<imd::EpochProtocol::Commit> commit = core_->take_commit()) {
    after(kStorageNanosMax, [this, commit = *commit] {
      if (!committer_) return;
      core_->commit_done(committer_->commit(commit, imd::epoch_id(world_.params.job_id, commit.epoch)));
      pump();
    });
  }
}

}  // namespace swale::sim
