#include "imd/write/writer_core.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace swale::imd {
namespace {

// Cookies below are frames of the pool, those from here on control payloads.
constexpr uint64_t kControlCookieFirst = uint64_t{1} << 32;

}  // namespace

uint64_t epoch_id(uint64_t job_id, uint32_t epoch) {
  char bytes[12];
  std::memcpy(bytes, &job_id, 8);
  std::memcpy(bytes + 8, &epoch, 4);
  return hash_bytes({bytes, sizeof bytes});
}

Result<std::unique_ptr<WriterCore>> WriterCore::create(const WriterCoreParams& params) {
  SWALE_ASSIGN_OR_RETURN(FramePool pool, FramePool::create(params.size, params.memory.frames_per_rank,
                                                           params.memory.frame_bytes));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<Partition> partition, Partition::create(params));
  return std::unique_ptr<WriterCore>(new WriterCore(params, std::move(pool), std::move(partition)));
}

WriterCore::WriterCore(const WriterCoreParams& params, FramePool pool, std::unique_ptr<Partition> partition)
    : params_(params),
      pool_(std::move(pool)),
      router_({params.rank, params.size, params.channel, params.job_secret, params.memory.window}),
      partition_(std::move(partition)),
      protocol_(params.rank, params.size),
      next_control_cookie_(kControlCookieFirst),
      closed_(static_cast<size_t>(params.size)),
      appending_epoch_(params.first_epoch),
      opened_(params.clock->now()) {
  protocol_.open_epoch(params.first_epoch);
  partition_->begin_epoch(params.first_epoch, epoch_id(params.job_id, params.first_epoch));
}

void WriterCore::submit(net::Rank destination, const Frame& frame) {
  assert(params_.size > 1 || frame.bytes == 0);
  if (frame.bytes == 0) {
    if (frame.data != nullptr) pool_.give_back(frame.index);
    return;
  }
  const Bytes payload{frame.data, frame.bytes};
  if (destination != params_.rank) {
    appending().add(Stat::kNetworkFrames);
    appending().add(Stat::kNetworkBytes, payload.size());
    router_.submit(destination, net::FrameKind::kData, payload, frame.index);
    return;
  }
  const bool early = protocol_.ended(params_.rank) && !protocol_.drained();
  if (!early) mark_delivery();
  (early ? early_ : delivery_).push_back({params_.rank, {}, payload, frame.index});
  drain_delivery();
  after_event();
}

void WriterCore::begin_epoch_end(int64_t step, double time, const std::vector<uint64_t>& records_per_rank,
                                 const RecordTally& appended, const WrittenValues& values,
                                 const net::CallStamp& call) {
  closing_values_ = values.range;
  if (values.range.values != 0) values_sync_ = ValuesSync::kWanted;
  RankStats& stats = appending();
  stats.add(Stat::kAppendRecords, appended.records);
  stats.add(Stat::kAppendBytes, appended.data_bytes);
  stats.add(Stat::kEpochOpenNanos, since(opened_));
  opened_ = stage_began_ = params_.clock->now();
  ++appending_epoch_;
  if (params_.size == 1) protocol_.on_delivered(params_.rank, appended.records);  // directly
  protocol_.begin(step, time, records_per_rank, appended, values.tally, call);
  router_.flush_credits();
  after_event();
}

void WriterCore::begin_close(const net::CallStamp& call) {
  closing_ = true;
  ++closes_in_;
  for (net::Rank to = 0; to < params_.size; ++to) {
    if (to != params_.rank) send_control(to, encode(CloseMessage{call}));
  }
}

std::string WriterCore::waiting_for() const {
  if (!closing_) return protocol_.waiting_for();
  net::Rank missing = 0;
  while (missing < params_.size && (missing == params_.rank || closed_[static_cast<size_t>(missing)]))
    ++missing;
  return fmt::format("rank {} to close the directory ({} of {} ranks have)", missing, closes_in_,
                     params_.size);
}

std::optional<net::Post> WriterCore::next_post() {
  std::optional<net::Post> post = router_.next_post();
  if (post && post->cookie != net::kNoCookie) {
    ++frames_lent_;
    appending().raise(Stat::kNetworkFramesMax, frames_lent_);
  }
  return post;
}

void WriterCore::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  if (Status status = router_.on_frame(from, header); !status.ok()) return fail(status);
  if (header.kind != net::FrameKind::kData && header.kind != net::FrameKind::kControl) return;
  if (!failure().ok()) return;  // nothing is taken any more; peers have been told

  if (header.kind == net::FrameKind::kControl) {
    on_control(from, payload);
  } else if (protocol_.is_ahead(from)) {
    enqueue(&early_, from, payload);
  } else {
    on_data(from, payload);
  }
  after_event();
}

void WriterCore::on_control(net::Rank from, Bytes payload) {
  const Result<Message> message = decode_message(payload, from);
  if (!message.ok()) return fail(message.status());
  const auto* close = std::get_if<CloseMessage>(&*message);
  const auto* end = std::get_if<EndMessage>(&*message);
  if (params_.heard_call && close != nullptr) {
    const uint32_t epoch = params_.first_epoch + epochs_committed_;
    params_.heard_call(from, net::CallKind::kCloseDirectory, epoch, close->call);
  }
  if (params_.heard_call && end != nullptr)
    params_.heard_call(from, net::CallKind::kEndEpoch, end->epoch, end->call);
  if (close == nullptr) return protocol_.on_message(from, *message);
  if (closed_[static_cast<size_t>(from)]) {
    return fail(error(Code::kCorruption, Scope::kPeer, "rank {} closed twice", from));
  }
  closed_[static_cast<size_t>(from)] = true;
  ++closes_in_;
}

void WriterCore::on_data(net::Rank from, Bytes payload) {
  const Bytes rest = delivery_.empty() ? deliver(from, payload) : payload;
  if (rest.empty()) {
    router_.consumed(from);
  } else {
    enqueue(&delivery_, from, rest);
  }
}

void WriterCore::enqueue(std::deque<Delivery>* queue, net::Rank from, Bytes payload) {
  if (queue == &delivery_) mark_delivery();
  queue->push_back({from, std::string(payload), {}, 0});
  queue->back().rest = queue->back().bytes;
  receiving().add(Stat::kDeliveryFrames);
  receiving().raise(Stat::kDeliveryFramesMax, delivery_.size() + early_.size());
}

Bytes WriterCore::deliver(net::Rank from, Bytes payload) {
  const Result<Partition::Accepted> accepted = partition_->accept(payload);
  if (!accepted.ok()) {
    fail(accepted.status().with_context(fmt::format("frame of rank {}", from)));
    return {};
  }
  if (accepted->records != 0) protocol_.on_delivered(from, accepted->records);
  payload.remove_prefix(accepted->bytes);
  return payload;
}

void WriterCore::drain_delivery() {
  while (!delivery_.empty() && failure().ok()) {
    Delivery& next = delivery_.front();
    next.rest = deliver(next.from, next.rest);
    if (!next.rest.empty()) return;  // the memtables are full again
    if (next.from == params_.rank) {
      pool_.give_back(next.own_frame);
    } else {
      router_.consumed(next.from);
    }
    delivery_.pop_front();
    if (delivery_.empty()) receiving().add(Stat::kDeliveryWaitNanos, since(delivery_began_));
  }
}

// What one event makes possible elsewhere. Cheap when there is nothing to do.
void WriterCore::after_event() {
  if (failure().ok()) {
    if (protocol_.take_flush()) begin_next_intake();
    if (partition_->durable() && values_sync_ == ValuesSync::kNone && !durable_reported_) {
      durable_reported_ = true;
      protocol_.on_durable(partition_->tally(), partition_->extrema(), close_stats());
    }
    if (!partition_->failure().ok()) protocol_.fail(partition_->failure());
  }
  if (!failure().ok() && !data_abandoned_) {
    std::vector<uint64_t> dropped;
    router_.abandon_data(&dropped);
    data_abandoned_ = true;
    for (uint64_t cookie : dropped) release(cookie);
  }
  while (std::optional<EpochProtocol::Outgoing> out = protocol_.next_outgoing()) {
    send_control(out->to, std::move(out->payload));
    protocol_.outgoing_sent();
  }
  if (protocol_.state() == EpochProtocol::State::kDone && failure().ok()) next_epoch();
}

void WriterCore::send_control(net::Rank to, std::string message) {
  const uint64_t cookie = next_control_cookie_++;
  const auto lent = control_.emplace(cookie, std::move(message)).first;
  try {
    router_.submit(to, net::FrameKind::kControl, lent->second, cookie);
  } catch (...) {
    control_.erase(lent);
    throw;
  }
}

void WriterCore::next_epoch() {
  ++epochs_committed_;
  protocol_.open_epoch(params_.first_epoch + epochs_committed_);
  if (params_.size > 1) partition_->start_small();
  after_event();
}

void WriterCore::begin_next_intake() {
  const uint32_t next = params_.first_epoch + epochs_committed_ + 1;
  stats_of(next - 1).add(Stat::kEpochDrainNanos, since(stage_began_));
  stage_began_ = params_.clock->now();
  durable_reported_ = false;
  partition_->end_epoch(next, epoch_id(params_.job_id, next), closing_values_);
  if (!early_.empty()) mark_delivery();
  for (Delivery& frame : early_) {
    const bool of_the_wire = frame.from != params_.rank;
    delivery_.push_back(std::move(frame));
    if (of_the_wire) delivery_.back().rest = delivery_.back().bytes;  // a short string's bytes have moved
  }
  early_.clear();
  drain_delivery();
}

void WriterCore::on_sent(uint64_t cookie) {
  if (cookie == net::kNoCookie) return;
  --frames_lent_;
  release(cookie);
}

void WriterCore::release(uint64_t cookie) {
  if (cookie < kControlCookieFirst) {
    pool_.give_back(static_cast<uint32_t>(cookie));
  } else {
    control_.erase(cookie);
  }
}

void WriterCore::on_down(net::Rank peer, const Status& why) {
  std::vector<uint64_t> dropped;
  router_.on_down(peer, &dropped);
  for (uint64_t cookie : dropped) release(cookie);
  fail(why);
}

std::optional<Partition::Task> WriterCore::next_task(uint32_t way) {
  if (!failure().ok()) return std::nullopt;
  std::optional<Partition::Task> task = partition_->next_task(way);
  if (task) task->began = params_.clock->now();
  return task;
}

// After a failure nothing more is done to the partition: an exception may have left it half-way.
void WriterCore::finish_task(const Partition::Task& task) {
  if (!failure().ok()) return;
  RankStats& stats = stats_of(task.epoch);
  using Work = Partition::Work;
  const bool of_run = task.kind == Work::kPack || task.kind == Work::kRun;
  stats.add(of_run ? Stat::kSortNanos : Stat::kIndexNanos, since(task.began));
  if (task.kind != Work::kPack && task.done()) stats.add(of_run ? Stat::kSortRuns : Stat::kIndexSegments);
  partition_->finish_task(task);
  drain_delivery();
  after_event();
}

std::optional<IoRequest> WriterCore::next_io() {
  if (!failure().ok()) return std::nullopt;
  std::optional<IoRequest> request;
  if (values_sync_ == ValuesSync::kWanted) {
    values_sync_ = ValuesSync::kRunning;
    request = IoRequest{
        IoRequest::Kind::kSync, LogFile::kValues, 0, {}, kNoBuffer, params_.first_epoch + epochs_committed_};
  } else {
    request = partition_->next_io();
  }
  if (request) {
    request->began = params_.clock->now();
    stats_of(request->epoch).raise(Stat::kWriteRequestsMax, ++requests_out_);
  }
  return request;
}

void WriterCore::finish_io(const IoRequest& request, const Status& status) {
  if (!failure().ok()) return;
  RankStats& stats = stats_of(request.epoch);
  --requests_out_;
  if (request.kind == IoRequest::Kind::kSync) {
    stats.add(Stat::kSyncNanos, since(request.began));
  } else {
    stats.add(Stat::kWriteRequests);
    stats.add(Stat::kWriteNanos, since(request.began));
    stats.add(request.file == LogFile::kData ? Stat::kWriteDataBytes : Stat::kWriteIndexBytes,
              request.data.size());
  }
  if (request.file != LogFile::kValues) {
    partition_->finish_io(request, status);
  } else {
    values_sync_ = ValuesSync::kNone;
    if (!status.ok()) protocol_.fail(status);
  }
  after_event();
}

void WriterCore::commit_done(const Status& status) {
  protocol_.on_commit_done(status);
  after_event();
}

void WriterCore::tick() {
  if (!failure().ok()) return after_event();
  const bool waiting = protocol_.state() != EpochProtocol::State::kOpen || !router_.idle() || closes_in_ != 0;
  if (waiting) router_.probe();
}

// Something is about to be put into the delivery queue.
void WriterCore::mark_delivery() {
  if (delivery_.empty()) delivery_began_ = params_.clock->now();
}

// Of the epoch that has become durable here: its place is free for the epoch after the open one.
EpochStats WriterCore::close_stats() {
  RankStats& stats = stats_of(params_.first_epoch + epochs_committed_);
  stats.add(Stat::kEpochFlushNanos, since(stage_began_));
  stats.add(Stat::kIndexedRecords, partition_->tally().records);
  stats.add(Stat::kNetworkCreditWaits, router_.waits_for_credit() - credit_waits_reported_);
  credit_waits_reported_ = router_.waits_for_credit();
  totals_.merge(stats);
  return EpochStats::of(params_.rank, std::exchange(stats, {}));
}

MetricsSnapshot WriterCore::metrics() const {
  RankStats now = totals_;
  for (const RankStats& stats : stats_) now.merge(stats);
  MetricsSnapshot snapshot = {{"epochs.committed", "", epochs_committed_},
                              {"data_log.end", "bytes", partition_->data_end_block() * run::kBlockBytes}};
  for (const StatRow& row : stat_rows()) {
    if (row.stat == Stat::kCommitNanos) continue;  // the committer's
    snapshot.push_back({std::string(row.name), std::string(row.unit), now.value(row.stat)});
  }
  return snapshot;
}

void WriterCore::fail(const Status& status) {
  protocol_.fail(status);
  after_event();
}

}  // namespace swale::imd
