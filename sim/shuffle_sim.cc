#include "sim/shuffle_sim.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/coding.h"
#include "imd/write/appender.h"
#include "imd/write/source_home.h"
#include "imd/write/writer_core.h"
#include "sim/counting_device.h"

namespace swale::sim {
namespace {

constexpr uint32_t kChannel = 1;
constexpr uint64_t kSecret = 0x5ec2e7;
constexpr uint64_t kJobId = 0x10b;
constexpr char kDirectory[] = "/job/particles";
constexpr uint64_t kBurst = 64;            // records that an application appends in one go
constexpr double kAppendSeconds = 0.5e-6;  // of each: far from deciding anything
constexpr int32_t kStorageNodes = 32;      // that share one burst-buffer node
constexpr size_t kKeyBytes = 8;

run::ShuffleFormat format_of(ShuffleMethod method) {
  switch (method) {
    case ShuffleMethod::kIndirect:
      return run::ShuffleFormat::kIndirect;
    case ShuffleMethod::kLossy:
      return run::ShuffleFormat::kLossy;
    case ShuffleMethod::kBase:
      break;
  }
  return run::ShuffleFormat::kBase;
}

// The least of each stage: thousands of ranks share one machine.
imd::MemoryPlan least_plan(const ShuffleSimParams& params) {
  imd::MemoryPlan plan;
  plan.window = 2;
  if (params.three_hop) {
    plan.hops.emplace();
    plan.hops->fill({.frame_bytes = params.frame_bytes, .shared_frames = 8, .window = plan.window});
    plan.frame_bytes = std::max<size_t>(params.frame_bytes, 4 * kKiB);
    plan.frames_per_rank = 4;
    plan.record_bytes_max = std::min(net::ThreeHopRouter::message_bytes_max(*plan.hops),
                                     plan.frame_bytes - imd::Batcher::kRoutedHeadBytes);
    if (params.method == ShuffleMethod::kLossy) plan.key_stage_bytes = imd::KeyStage::kBytesMin;
  } else {
    plan.frame_bytes = params.frame_bytes;
    plan.frames_per_rank = 1u + plan.window;
    plan.record_bytes_max = std::min(params.frame_bytes, run::kEncodedRecordBytesMax);
  }
  plan.output_buffers = 4;
  plan.output_buffer_bytes = 32 * kKiB;
  plan.memtable_bytes = params.memtable_bytes;
  plan.memtable_records = static_cast<uint32_t>(params.memtable_bytes / 32);
  plan.sketch_bytes = 128 * kKiB;
  plan.source_bytes = imd::kSourceHomeBytesMin;
  return plan;
}

// One rank: the product's machines, and an application that appends as fast as it may.
struct Rank {
  enum class Script { kAppend, kFinish, kEnded };

  std::unique_ptr<imd::SourceHome> home;
  std::unique_ptr<imd::ValueLog> values;
  std::unique_ptr<imd::PageLog> pages;
  std::unique_ptr<imd::WriterCore> core;
  std::optional<imd::Appender> appender;
  Script script = Script::kAppend;
  uint64_t appended = 0;
  std::optional<run::RecordView> paged;  // whose value is written
  imd::Appender::Need need;              // of the append that is blocked
  bool step_planned = false;
  Nanos thread_free = 0;
  Nanos thread_busy = 0;
};

class Simulation {
 public:
  explicit Simulation(const ShuffleSimParams& params)
      : params_(params),
        size_(params.nodes * params.ranks_per_node),
        ranks_(static_cast<size_t>(size_)),
        out_free_(static_cast<size_t>(params.nodes)),
        in_free_(static_cast<size_t>(params.nodes)),
        storage_free_(static_cast<size_t>((params.nodes + kStorageNodes - 1) / kStorageNodes)),
        wire_ns_per_byte_(1e9 / params.machine.wire_bytes_per_s(params.nodes)) {
    value_.assign(params.value_bytes, 'v');
  }

  Status make() {
    if (params_.three_hop) {
      const std::vector<int32_t> nodes(static_cast<size_t>(params_.nodes), params_.ranks_per_node);
      SWALE_ASSIGN_OR_RETURN(net::NodeMap map, net::NodeMap::in_blocks(nodes));
      nodes_ = std::make_shared<const net::NodeMap>(std::move(map));
    }
    for (net::Rank rank = 0; rank < size_; ++rank) SWALE_RETURN_IF_ERROR(make_rank(rank));
    return {};
  }

  Result<ShuffleSimResult> run() {
    for (net::Rank rank = 0; rank < size_; ++rank) plan_step(rank, 0);
    while (!committed_ && !events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      clock_.advance(event.time - clock_.now());
      ++result_.events;
      handle(event);
    }
    for (const Rank& rank : ranks_) SWALE_RETURN_IF_ERROR(rank.core->failure());
    if (!committed_) {
      return error(Code::kInternal, Scope::kFatal, "nothing goes on; rank 0 waits for {}",
                   ranks_[0].core->waiting_for());
    }
    result_.total_s = to_seconds(clock_.now());
    result_.records = static_cast<double>(params_.records_per_rank) * size_;
    result_.data_bytes = result_.records * static_cast<double>(kKeyBytes + params_.value_bytes);
    double busy = 0;
    for (const Rank& rank : ranks_) busy += to_seconds(rank.thread_busy);
    result_.thread_busy_mean = busy / size_ / result_.total_s;
    return result_;
  }

 private:
  enum class Kind : uint8_t { kStep, kArrive, kReady, kRead, kStored };
  struct Event {
    Nanos time;
    uint64_t number;  // of the same time the first one first
    Kind kind;
    uint32_t item;  // a rank, a flight or a write
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  struct Flight {
    net::Rank from;
    net::Rank to;
    net::Post post;
  };
  struct Write {
    net::Rank rank;
    imd::IoRequest request;
  };

  Rank& rank_at(net::Rank rank) { return ranks_[static_cast<size_t>(rank)]; }
  size_t node_of(net::Rank rank) const { return static_cast<size_t>(rank / params_.ranks_per_node); }
  Nanos now() const { return clock_.now(); }
  void at(Nanos time, Kind kind, uint32_t item) { events_.push({time, number_++, kind, item}); }

  Status make_rank(net::Rank number) {
    Rank& rank = rank_at(number);
    const imd::LogId log{.job = 0, .partition = PartitionNumber(number)};
    const imd::MemoryPlan memory = params_.memory ? *params_.memory : least_plan(params_);
    const bool sends_keys = params_.method == ShuffleMethod::kLossy && size_ > 1;
    rank.values = std::make_unique<imd::ValueLog>(device_, kDirectory, log);
    rank.pages = std::make_unique<imd::PageLog>(device_, kDirectory, log);
    if (sends_keys) {
      SWALE_ASSIGN_OR_RETURN(rank.home, imd::SourceHome::create({.device = &device_,
                                                                 .directory = kDirectory,
                                                                 .log = log,
                                                                 .ranks = static_cast<uint32_t>(size_),
                                                                 .memory_bytes = memory.source_bytes}));
    }
    imd::WriterCoreParams core;
    core.talk = {.rank = number,
                 .size = size_,
                 .channel = kChannel,
                 .secret = kSecret,
                 .window = memory.window,
                 .frames_per_rank = memory.frames_per_rank,
                 .frame_bytes = memory.frame_bytes,
                 .hops = nodes_ ? memory.hops : std::nullopt,
                 .nodes = nodes_};
    core.partition.rank = number;
    core.partition.size = size_;
    core.partition.memory = memory;
    core.partition.layout.format = format_of(params_.method);
    core.partition.sources = rank.home.get();
    core.job_id = kJobId;
    core.clock = &clock_;
    SWALE_ASSIGN_OR_RETURN(rank.core, imd::WriterCore::create(core));
    imd::AppenderParams appender;
    appender.ranks = size_;
    appender.own = PartitionNumber(number);
    appender.lossy = params_.method == ShuffleMethod::kLossy;
    appender.record_bytes_max = memory.record_bytes_max;
    appender.frames = nodes_ ? imd::Batcher::Frames::kOneForAll : imd::Batcher::Frames::kOneEach;
    if (nodes_ && sends_keys) {
      appender.key_stage_bytes = memory.key_stage_bytes;
      appender.key_message_bytes_max = memory.key_message_bytes_max();
    }
    appender.values = rank.values.get();
    appender.pages = params_.method == ShuffleMethod::kIndirect ? rank.pages.get() : nullptr;
    appender.job_id = kJobId;
    rank.appender.emplace(appender);
    return {};
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::kStep:
        return step(static_cast<net::Rank>(event.item));
      case Kind::kArrive:
        return arrive(event.item);
      case Kind::kReady:
        return ready(event.item);
      case Kind::kRead:
        return read(event.item);
      case Kind::kStored:
        return stored(event.item);
    }
  }

  // -- the application

  void plan_step(net::Rank number, Nanos time) {
    if (std::exchange(rank_at(number).step_planned, true)) return;
    at(time, Kind::kStep, static_cast<uint32_t>(number));
  }

  void step(net::Rank number) {
    Rank& rank = rank_at(number);
    rank.step_planned = false;
    const uint64_t before = device_.written_bytes();
    bool goes_on = true;
    for (uint64_t i = 0; goes_on && i < kBurst; ++i) goes_on = advance(number);
    // Values are written by the application itself, which waits.
    const uint64_t wrote = device_.written_bytes() - before;
    Nanos next = now() + seconds(kAppendSeconds * kBurst);
    if (wrote > 0) next = std::max(next, store(number, wrote));
    result_.early_bytes += static_cast<double>(wrote);
    if (goes_on) plan_step(number, next);
    pump(number);
  }

  // One record, or what follows the last one. False: it has to wait, or all is done.
  bool advance(net::Rank number) {
    Rank& rank = rank_at(number);
    if (rank.script == Rank::Script::kEnded) return false;
    if (rank.script == Rank::Script::kFinish) return finish(rank);
    if (rank.appended == params_.records_per_rank) {
      rank.script = Rank::Script::kFinish;
      return true;
    }
    char key_bytes[kKeyBytes];
    put_u64(key_bytes, static_cast<uint64_t>(number) * params_.records_per_rank + rank.appended);
    const Bytes key(key_bytes, kKeyBytes);
    if (!rank.paged && rank.appender->goes_elsewhere(key, value_)) {
      const Result<run::RecordView> pointer = rank.appender->write_value(key, value_);
      if (!pointer.ok()) {
        rank.core->fail(pointer.status());
        return false;
      }
      rank.paged = *pointer;
    }
    rank.need = rank.paged ? rank.appender->append(*rank.paged) : rank.appender->append(key, value_);
    if (rank.need.what != imd::Appender::Need::What::kNothing)
      return rank.appender->provide(rank.core.get(), rank.need);
    rank.paged.reset();
    ++rank.appended;
    return true;
  }

  bool finish(Rank& rank) {
    rank.need = rank.appender->finish_keys();
    if (rank.need.what != imd::Appender::Need::What::kNothing)
      return rank.appender->provide(rank.core.get(), rank.need);
    if (const Status finished = rank.appender->finish_values(); !finished.ok()) rank.core->fail(finished);
    rank.appender->end_epoch(rank.core.get(), 0, 0.0);
    rank.script = Rank::Script::kEnded;
    return false;
  }

  // -- what a rank's core has to do

  void pump(net::Rank number) {
    Rank& rank = rank_at(number);
    imd::WriterCore& core = *rank.core;
    for (bool any = true; any;) {
      any = false;
      while (const std::optional<net::Post> post = core.conversation().next_post()) {
        send(number, *post);
        any = true;
      }
      while (std::optional<imd::Partition::Task> task = core.next_task(0)) {
        const uint64_t before = device_.written_bytes();
        task->work();
        const uint64_t wrote = device_.written_bytes() - before;  // a table
        result_.index_bytes += static_cast<double>(wrote);
        if (wrote > 0) store(number, wrote);
        core.finish_task(*task);
        any = true;
      }
      while (const std::optional<imd::IoRequest> request = core.next_io()) {
        write(number, *request);
        any = true;
      }
    }
    if (core.take_commit()) committed_ = true;
    const bool waits = rank.script != Rank::Script::kEnded && !rank.step_planned;
    if (waits && core.failure().ok() && rank.appender->can_provide(core, rank.need)) plan_step(number, now());
  }

  // -- storage

  // When so many bytes more will be there.
  Nanos store(net::Rank number, uint64_t bytes) {
    const size_t group = node_of(number) / kStorageNodes;
    const auto nodes = static_cast<size_t>(params_.nodes);
    const size_t members = std::min<size_t>(kStorageNodes, nodes - group * kStorageNodes);
    const double rate =
        params_.machine.storage_bytes_per_s * params_.machine.storage_use * static_cast<double>(members);
    Nanos& free = storage_free_[group];
    free = std::max(free, now()) + seconds(static_cast<double>(bytes) / rate);
    result_.stored_bytes += static_cast<double>(bytes);
    return free;
  }

  void write(net::Rank number, const imd::IoRequest& request) {
    if (request.file == imd::LogFile::kIndex) result_.index_bytes += static_cast<double>(request.data.size());
    const bool writes = request.kind == imd::IoRequest::Kind::kWrite;
    const Nanos done = writes ? store(number, request.data.size()) : now() + 1;
    at(done, Kind::kStored, keep(&writes_, &writes_unused_, Write{number, request}));
  }

  void stored(uint32_t item) {
    const Write done = writes_[item];
    writes_unused_.push_back(item);
    rank_at(done.rank).core->finish_io(done.request, {});
    pump(done.rank);
  }

  // -- the network

  template <class Item>
  static uint32_t keep(std::vector<Item>* items, std::vector<uint32_t>* unused, const Item& item) {
    if (unused->empty()) {
      items->push_back(item);
      return static_cast<uint32_t>(items->size() - 1);
    }
    const uint32_t place = unused->back();
    unused->pop_back();
    (*items)[place] = item;
    return place;
  }

  static double bytes_of(const Flight& flight) {
    return static_cast<double>(flight.post.header.size() + flight.post.payload.size());
  }
  bool remote(const Flight& flight) const { return node_of(flight.from) != node_of(flight.to); }

  // The half of a frame's time that one rank's network thread has. A credit takes none, and waits for its
  // turn.
  Nanos thread(net::Rank number, const Flight& flight, Nanos from) {
    const double whole = remote(flight) ? params_.machine.frame_s : params_.machine.local_frame_s;
    const Nanos half = flight.post.payload.empty() ? 0 : seconds(whole / 2);
    Rank& rank = rank_at(number);
    rank.thread_free = std::max(rank.thread_free, from) + half;
    rank.thread_busy += half;
    return rank.thread_free;
  }

  Nanos pass(std::vector<Nanos>* nodes, size_t node, const Flight& flight, Nanos from) const {
    Nanos& free = (*nodes)[node];
    free = std::max(free, from) + static_cast<Nanos>(bytes_of(flight) * wire_ns_per_byte_);
    return free;
  }

  void send(net::Rank from, const net::Post& post) {
    const Flight flight{from, post.to, post};
    Nanos time = thread(from, flight, now());
    if (remote(flight)) {
      result_.wire_bytes += bytes_of(flight);
      time = pass(&out_free_, node_of(from), flight, time) + seconds(params_.machine.latency_s);
    }
    at(std::max(time, now() + 1), Kind::kArrive, keep(&flights_, &flights_unused_, flight));
  }

  // At the receiver's node: its bandwidth is shared by all that come. A frame that need not wait has passed
  // as it came.
  void arrive(uint32_t item) {
    const Flight& flight = flights_[item];
    if (!remote(flight)) return ready(item);
    const auto passing = static_cast<Nanos>(bytes_of(flight) * wire_ns_per_byte_);
    at(pass(&in_free_, node_of(flight.to), flight, now() - passing), Kind::kReady, item);
  }

  void ready(uint32_t item) { at(thread(flights_[item].to, flights_[item], now()), Kind::kRead, item); }

  void read(uint32_t item) {
    const Flight flight = flights_[item];
    flights_unused_.push_back(item);
    imd::WriterCore& to = *rank_at(flight.to).core;
    const Bytes head(flight.post.header.data(), flight.post.header.size());
    const Result<net::FrameHeader> header = net::FrameHeader::decode(head, flight.post.payload, kSecret);
    if (!header.ok()) return to.fail(header.status());
    const bool data = header->kind == net::FrameKind::kData;
    (data ? remote(flight) ? result_.remote_frames : result_.local_frames : result_.other_frames) += 1;
    to.on_frame(flight.from, *header, flight.post.payload);
    rank_at(flight.from).core->conversation().on_sent(flight.post.cookie);
    pump(flight.to);
    pump(flight.from);
  }

  const ShuffleSimParams params_;
  const int32_t size_;
  ManualClock clock_;
  CountingDevice device_;
  std::shared_ptr<const net::NodeMap> nodes_;  // by three hops
  std::vector<Rank> ranks_;
  std::vector<Nanos> out_free_;  // of each node
  std::vector<Nanos> in_free_;
  std::vector<Nanos> storage_free_;  // of each group of nodes
  const double wire_ns_per_byte_;
  std::string value_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t number_ = 0;
  std::vector<Flight> flights_;
  std::vector<uint32_t> flights_unused_;
  std::vector<Write> writes_;
  std::vector<uint32_t> writes_unused_;
  bool committed_ = false;
  ShuffleSimResult result_;
};

}  // namespace

ShuffleMachine scaled(ShuffleMachine machine, double share) {
  machine.frame_s *= share;
  machine.local_frame_s *= share;
  machine.latency_s *= share;
  return machine;
}

Result<ShuffleSimResult> run_shuffle(const ShuffleSimParams& params) {
  Simulation simulation(params);
  SWALE_RETURN_IF_ERROR(simulation.make());
  return simulation.run();
}

// As Memtable's chunks are: a 2,048th of the arena, or one record.
double memtable_records(size_t arena_bytes, size_t data_bytes) {
  constexpr size_t kLine = 64, kHead = 8, kRowHead = 8;
  const size_t row = kRowHead + data_bytes;
  const size_t chunk = std::max((arena_bytes / 2048 / kLine | 1) * kLine, round_up(kHead + row, kLine));
  return static_cast<double>(arena_bytes / chunk * ((chunk - kHead) / row));
}

ShuffleJob job_of(const ShuffleSimParams& params) {
  return {params.nodes, params.ranks_per_node, static_cast<double>(params.records_per_rank)};
}

ShuffleLoad load_of(const ShuffleSimParams& params, const ShuffleSimResult& result) {
  const double data = static_cast<double>(kKeyBytes + params.value_bytes);
  const double remote = result.records * (1 - 1.0 / params.nodes);
  const double ranks = static_cast<double>(params.nodes) * params.ranks_per_node;
  ShuffleLoad load;
  load.data_bytes = data;
  load.stored_bytes = result.stored_bytes / result.records;
  load.wire_bytes = remote > 0 ? result.wire_bytes / remote : 0;
  load.frame_bytes = static_cast<double>(params.frame_bytes);
  load.three_hop = params.three_hop;
  load.tail_bytes = result.index_bytes / ranks;
  if (params.method == ShuffleMethod::kLossy) return load;  // its records do not come by the network
  const bool moves = params.method == ShuffleMethod::kBase;
  const size_t moved = moves ? kKeyBytes + params.value_bytes : kKeyBytes + run::kPagePointerBytes;
  load.memtable_records = memtable_records(params.memtable_bytes, moved);
  load.early_bytes = result.early_bytes / result.records;
  return load;
}

}  // namespace swale::sim
