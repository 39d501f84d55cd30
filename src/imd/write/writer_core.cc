#include "imd/write/writer_core.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace swale::imd {
Result<std::unique_ptr<WriterCore>> WriterCore::create(const WriterCoreParams& params) {
  SWALE_ASSIGN_OR_RETURN(net::Conversation conversation, net::Conversation::create(params.talk));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<Partition> partition, Partition::create(params.partition));
  return std::unique_ptr<WriterCore>(new WriterCore(params, std::move(conversation), std::move(partition)));
}

WriterCore::WriterCore(const WriterCoreParams& params, net::Conversation conversation,
                       std::unique_ptr<Partition> partition)
    : params_(params),
      conversation_(std::move(conversation)),
      partition_(std::move(partition)),
      protocol_(rank(), size(), routed() ? EpochProtocol::Ends::kByRoute : EpochProtocol::Ends::kOfEachRank),
      parting_(rank(), size(), routed() ? Parting::Words::kByTree : Parting::Words::kEachToEach),
      appending_epoch_(params.first_epoch),
      opened_(params.clock->now()) {
  if (routed()) conversation_.route()->set_sink(this);
  protocol_.open_epoch(params.first_epoch);
  partition_->begin_epoch(params.first_epoch, epoch_id(params.job_id, params.first_epoch));
}

void WriterCore::submit(net::Rank destination, const net::Frame& frame) {
  assert(size() > 1 || frame.bytes == 0);
  if (frame.bytes == 0) return conversation_.send(destination, frame);
  if (routed()) return submit_routed(frame);
  if (destination != rank()) {
    appending().add(Stat::kNetworkFrames);
    appending().add(Stat::kNetworkBytes, frame.bytes);
    return conversation_.send(destination, frame);
  }
  const bool early = protocol_.ended(rank()) && !protocol_.drained();
  if (early) {
    early_.push_own(rank(), frame);
  } else {
    mark_delivery();
    conversation_.send(rank(), frame);
  }
  drain_delivery();
  after_event();
}

void WriterCore::begin_epoch_end(int64_t step, double time, const std::vector<uint64_t>& records_per_rank,
                                 const RecordTally& appended, const WrittenValues& values,
                                 const net::CallStamp& call, uint64_t keys_sent) {
  closing_values_ = values.range;
  if (values.range.values != 0) values_sync_ = ValuesSync::kWanted;
  RankStats& stats = appending();
  stats.add(Stat::kAppendRecords, appended.records);
  stats.add(Stat::kAppendBytes, appended.data_bytes);
  stats.add(Stat::kEpochOpenNanos, since(opened_));
  opened_ = stage_began_ = params_.clock->now();
  ++appending_epoch_;
  if (size() == 1) protocol_.on_delivered(rank(), appended.records);  // directly
  if (sources() != nullptr) seal_partition();
  protocol_.begin(step, time, records_per_rank, appended, values.tally, call);
  protocol_.add_keys(keys_sent);
  if (routed()) {
    to_route_.push_back({});
    send_routed();
  }
  conversation_.flush_credits();
  after_event();
}

void WriterCore::begin_close(const net::CallStamp& call) {
  parting_.begin(call);
  after_event();
}

std::string WriterCore::waiting_for() const {
  if (parting_.begun()) return parting_.waiting_for();
  const bool drains =
      routed() && protocol_.state() == EpochProtocol::State::kDraining && !protocol_.awaits_ends();
  return drains ? conversation_.route()->waiting_for() : protocol_.waiting_for();
}

// ---- three hops

void WriterCore::submit_routed(const net::Frame& frame) {
  to_route_.push_back({frame});
  send_routed();
  after_event();
}

// Gives the route what it has space for. The front is taken out before an epoch is ended: that may call this
// again.
void WriterCore::send_routed() {
  net::ThreeHopRouter& route = *conversation_.route();
  while (!to_route_.empty() && failure().ok()) {
    ToRoute& next = to_route_.front();
    for (Bytes rest = next.frame.payload().substr(next.read); !rest.empty();) {
      const Batcher::Routed record = Batcher::take_routed(&rest);
      if (!route.send(record.home, record.record)) return;
      next.read = next.frame.bytes - rest.size();
    }
    net::Frame sent = next.frame;
    const bool ends = sent.data == nullptr;
    if (ends && route.ending()) return;
    to_route_.pop_front();
    if (ends) {
      route.end_epoch();
    } else {
      sent.bytes = 0;
      conversation_.send(0, sent);  // back to the pool
    }
  }
}

// A message is one record. None is taken between the end of one epoch and the beginning of the next one's
// intake.
bool WriterCore::deliver(net::Rank source, Bytes message) {
  if (sources() != nullptr) return deliver_keys(source, message);
  if (params_.first_epoch + conversation_.route()->complete_epochs() != partition_->open_epoch())
    return false;
  const Result<Partition::Accepted> accepted = partition_->accept(message);
  if (!accepted.ok() || (accepted->bytes != 0 && accepted->bytes != message.size())) {
    const Status why = accepted.ok() ? error(Code::kCorruption, Scope::kPeer,
                                             "a message of {} bytes is no record", message.size())
                                     : accepted.status();
    conversation_.fail(why.with_context(fmt::format("message of rank {}", source)));
    return false;
  }
  if (accepted->bytes == message.size()) {
    if (std::exchange(route_waits_, false)) receiving().add(Stat::kDeliveryWaitNanos, since(delivery_began_));
    return true;
  }
  if (!std::exchange(route_waits_, true)) delivery_began_ = params_.clock->now();
  return false;
}

bool WriterCore::deliver_keys(net::Rank source, Bytes message) {
  if (params_.first_epoch + conversation_.route()->complete_epochs() != sources()->open_epoch()) return false;
  const Status added = sources()->add_message(static_cast<uint32_t>(source), message);
  if (!added.ok()) conversation_.fail(added);
  return added.ok();
}

void WriterCore::epoch_complete(uint32_t /*epoch*/) { protocol_.on_route_complete(); }

// ---- events

void WriterCore::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  switch (conversation_.on_frame(from, header, payload)) {
    case net::Conversation::Came::kControl:
      on_control(from, payload);
      break;
    case net::Conversation::Came::kData:
      if (routed()) {
        fail(
            error(Code::kCorruption, Scope::kPeer,
                  "rank {} sends its records directly, and not by three hops: do all ranks run with the same "
                  "options?",
                  from));
        break;
      }
      protocol_.is_ahead(from) ? enqueue(&early_, from, payload) : on_data(from, payload);
      break;
    case net::Conversation::Came::kNothing:
      break;
  }
  after_event();
}

void WriterCore::on_control(net::Rank from, Bytes bytes) {
  const Result<Message> message = decode_message(bytes, from);
  if (!message.ok()) return fail(message.status());
  const auto* close = std::get_if<CloseMessage>(&*message);
  const auto* end = std::get_if<EndMessage>(&*message);
  if (params_.heard_call && close != nullptr && close->word == CloseWord::kComes) {
    const EpochNumber epoch = params_.first_epoch + epochs_committed_;
    params_.heard_call(from, net::CallKind::kCloseDirectory, epoch, close->call);
  }
  if (params_.heard_call && end != nullptr)
    params_.heard_call(from, net::CallKind::kEndEpoch, end->epoch, end->call);
  if (close == nullptr) return protocol_.on_message(from, *message);
  if (const Status status = parting_.on_message(from, *close); !status.ok()) fail(status);
}

void WriterCore::on_data(net::Rank from, Bytes payload) {
  const Bytes rest = delivery().empty() ? feed(from, payload) : payload;
  if (rest.empty()) {
    conversation_.consumed(from);
  } else {
    enqueue(&delivery(), from, rest);
  }
}

void WriterCore::enqueue(net::Inbox* queue, net::Rank from, Bytes payload) {
  if (queue == &delivery()) mark_delivery();
  queue->push(from, payload);
  receiving().add(Stat::kDeliveryFrames);
  receiving().raise(Stat::kDeliveryFramesMax, delivery().size() + early_.size());
}

Bytes WriterCore::feed(net::Rank from, Bytes payload) {
  if (sources() != nullptr) {
    const Result<uint32_t> pairs = sources()->add(static_cast<uint32_t>(from), payload);
    pairs.ok() ? protocol_.on_delivered(from, *pairs) : fail(pairs.status());
    return {};
  }
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
  if (routed() && failure().ok()) {
    conversation_.route()->resume();
    conversation_.fail(conversation_.route()->failure());
    return;
  }
  while (!delivery().empty() && failure().ok()) {
    const Bytes next = delivery().front();
    const Bytes rest = feed(delivery().from(), next);
    delivery().advance(next.size() - rest.size());
    if (!rest.empty()) return;  // the memtables are full again
    conversation_.finish_front();
    if (delivery().empty()) receiving().add(Stat::kDeliveryWaitNanos, since(delivery_began_));
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
  conversation_.fail(protocol_.failure());  // whichever failed first
  protocol_.fail(conversation_.failure());
  for (std::deque<EpochProtocol::Outgoing>& outgoing = protocol_.outgoing(); !outgoing.empty();
       outgoing.pop_front()) {
    conversation_.send_control(outgoing.front().to, outgoing.front().payload);
  }
  for (std::deque<Parting::Outgoing>& outgoing = parting_.outgoing(); !outgoing.empty();
       outgoing.pop_front()) {
    conversation_.send_control(outgoing.front().first, outgoing.front().second);
  }
  if (protocol_.state() == EpochProtocol::State::kDone && failure().ok()) next_epoch();
}

void WriterCore::next_epoch() {
  ++epochs_committed_;
  protocol_.open_epoch(params_.first_epoch + epochs_committed_);
  if (!direct()) partition_->start_small();
  after_event();
}

// No more records of the epoch that this rank ends.
void WriterCore::seal_partition() {
  const EpochNumber next = params_.first_epoch + epochs_committed_ + 1;
  durable_reported_ = false;
  partition_->end_epoch(next, epoch_id(params_.job_id, next), closing_values_);
}

// Everything of the closing epoch is in.
void WriterCore::begin_next_intake() {
  const EpochNumber next = params_.first_epoch + epochs_committed_ + 1;
  stats_of(next - 1).add(Stat::kEpochDrainNanos, since(stage_began_));
  stage_began_ = params_.clock->now();
  if (sources() == nullptr) {
    seal_partition();
  } else {
    const Status closed = sources()->close_epoch(epoch_id(params_.job_id, next - 1), next);
    if (!closed.ok()) return fail(closed);
    protocol_.add_keys(0 - sources()->take_digest());
    partition_->make_table();
  }
  if (!early_.empty()) mark_delivery();
  delivery().append(&early_);
  drain_delivery();
}

std::optional<Partition::Task> WriterCore::next_task(uint32_t way) {
  if (!works()) return std::nullopt;
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
  if (!works()) return std::nullopt;
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
  const bool waiting =
      protocol_.state() != EpochProtocol::State::kOpen || !conversation_.idle() || parting_.under_way();
  if (waiting) conversation_.probe();
}

// Something is about to be put into the delivery queue.
void WriterCore::mark_delivery() {
  if (delivery().empty()) delivery_began_ = params_.clock->now();
}

// Closes the statistics of the epoch that has become durable here. Its place is free for the epoch after the
// open one.
EpochStats WriterCore::close_stats() {
  RankStats& stats = stats_of(params_.first_epoch + epochs_committed_);
  stats.add(Stat::kEpochFlushNanos, since(stage_began_));
  stats.add(Stat::kIndexedRecords, partition_->tally().records);
  stats.raise(Stat::kMemoryReserved, params_.reserved_bytes);
  stats.raise(Stat::kNetworkFramesMax, conversation_.take_frames_lent_max());
  stats.add(Stat::kNetworkCreditWaits, conversation_.waits_for_credit() - credit_waits_reported_);
  credit_waits_reported_ = conversation_.waits_for_credit();
  if (params_.refused_frames) {
    const uint64_t refused = params_.refused_frames();
    stats.add(Stat::kNetworkRefused, refused - std::exchange(refused_reported_, refused));
  }
  if (const net::ThreeHopRouter* const route = conversation_.route()) {
    stats.add(Stat::kNetworkFrames,
              route->data_frames() - std::exchange(route_frames_reported_, route->data_frames()));
    stats.add(Stat::kNetworkBytes,
              route->data_bytes() - std::exchange(route_bytes_reported_, route->data_bytes()));
  }
  totals_.merge(stats);
  return EpochStats::of(rank(), std::exchange(stats, {}));
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
  conversation_.fail(status);
  after_event();
}

}  // namespace swale::imd
