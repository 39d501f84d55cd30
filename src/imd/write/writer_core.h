// WriterCore: everything one rank does to write a massive directory, as one passive state machine:
// Conversation, delivery queue, Partition and EpochProtocol, and the wiring between them. Threads (writer.cc)
// and the deterministic scheduler (sim/) drive the very same object.
//
//   in:  submit (full frames of the Batcher), begin_epoch_end, events of a Participant, finish_task,
//        finish_io, commit_done
//   out: conversation() (to the transport), next_task (CPU), next_io (logs), take_commit (the epoch's record
//   on rank 0)
//
// Delivery queue: a data frame goes from the wire's memory straight into the memtables while they have room.
// What does not fit is copied into the queue, and its credit is returned only once it has been taken; so the
// queue holds at most `window` frames per peer, its memory is reserved, and the thread that feeds the wire
// never waits (deltafs-scaling-2018, section IV-D).
//
// The next epoch is open while one is being closed: as soon as everything of the closing epoch is in, records
// of the next one are taken. What a peer sends after its END, before the others' ENDs are in, waits in the
// same queue.
//
// A job of one rank has no frames: its records go straight into the memtables (direct_intake.h). So do those
// of a directory of the lossy format; its frames have batches of keys, which go to the SourceHome. There the
// partition's epoch ends when this rank's application says so, and the home's when all batches are in.
//
// Where records go by three hops (Conversation::route), the frames of the Batcher are queued here, and their
// records are given to the route one by one as it has space; it delivers them one by one, and keeps those for
// which there is no room. In the lossy format the frames have messages of keys (KeyStage), which go to the
// SourceHome likewise.
//
// Threads: none; the owner serialises calls, except Task::work and the execution of I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "imd/format/epoch_id.h"
#include "imd/write/batcher.h"
#include "imd/write/epoch_protocol.h"
#include "imd/write/memory_plan.h"
#include "imd/write/parting.h"
#include "imd/write/partition.h"
#include "imd/write/value_log.h"
#include "net/meeting/call_order.h"
#include "net/talk/inbox.h"
#include "net/talk/participant.h"

namespace swale::imd {

struct WriterCoreParams {
  net::Conversation::Params talk = {};
  PartitionParams partition = {};
  uint64_t job_id = 0;  // epoch ids derive from it
  EpochNumber first_epoch = {};
  const Clock* clock = &system_clock();  // for statistics alone
  // A peer's message names its collective call (net/meeting/call_order.h).
  std::function<void(net::Rank, net::CallKind, EpochNumber epoch, const net::CallStamp&)> heard_call = {};
  // As Job::refused_frames, for statistics alone; empty: nothing is refused.
  std::function<uint64_t()> refused_frames = {};
  uint64_t reserved_bytes = 0;  // of the process's memory, for statistics alone
};

class WriterCore final : public net::Participant, private net::MessageSink {
 public:
  // kResourceExhausted if the memory of the plan is not to be had.
  static Result<std::unique_ptr<WriterCore>> create(const WriterCoreParams& params);

  // -- The application's side
  bool frame_available(net::Rank destination) const { return conversation_.frame_available(destination); }
  net::Frame take_frame(net::Rank destination) { return conversation_.take_frame(destination); }
  // Sends a frame on its way; an empty one goes back to the pool.
  void submit(net::Rank destination, const net::Frame& frame);
  // For the DirectIntake of a job of one rank: Partition::append may be called without the lock that
  // serialises the calls here, by the thread that calls make_room and begin_epoch_end.
  Partition& partition() { return *partition_; }
  bool make_room(uint32_t way) { return partition_->make_room(way); }
  bool has_room(uint32_t way) const { return partition_->has_room(way); }
  // With one rank; with several the core does it.
  void start_small() { partition_->start_small(); }
  // An append had to wait.
  void count_append_wait(Nanos waited) {
    appending().add(Stat::kAppendWaits);
    appending().add(Stat::kAppendWaitNanos, static_cast<uint64_t>(waited));
  }
  // To be asked after begin_epoch_end, and waited for, before the next record is taken directly.
  bool intake_open() const { return partition_->intake_open(); }
  // The epoch's last frame has been submitted. Requires that the epoch before is committed. What is submitted
  // from here on belongs to the next epoch. `values`: what the epoch has in this rank's value log, to be
  // synced by next_io. `keys_sent`: their digests (key_digest), where keys go by three hops.
  void begin_epoch_end(int64_t step, double time, const std::vector<uint64_t>& records_per_rank,
                       const RecordTally& appended, const WrittenValues& values = {},
                       const net::CallStamp& call = {}, uint64_t keys_sent = 0);
  // No more epochs from this rank. closed() once every rank has said so: then nobody sends here any more.
  void begin_close(const net::CallStamp& call = {});
  bool closed() const { return parting_.over(); }
  // Whether this rank has come to the end of an epoch, or to the close, and waits for ranks that have not: as
  // long as these live, they may take any time.
  bool awaits_ranks() const { return protocol_.awaits_ends() || parting_.awaits_ranks(); }
  // Epochs that were committed since construction; the open epoch's number is first_epoch + this.
  uint32_t epochs_committed() const { return epochs_committed_; }
  // The first failure, here or reported by a peer: the epoch is lost and nothing goes on.
  const Status& failure() const { return conversation_.failure(); }
  std::string waiting_for() const;

  // -- The wire
  net::Conversation& conversation() override { return conversation_; }
  void on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) override;
  void on_control(net::Rank from, Bytes bytes) override;
  // A failure counts even if telling it throws for want of memory.
  void fail(const Status& status) override;
  // While this rank waits for others it makes sure that they would notice a lost frame.
  void tick() override;
  // Records have arrived for which the memtables have no room.
  bool deliveries_wait() const { return !conversation_.inbox().empty() || route_waits_; }

  // -- CPU work and storage
  bool has_task(uint32_t way) const { return works() && partition_->has_task(way); }
  bool has_io() const {
    return (works() && (partition_->has_io() || values_sync_ == ValuesSync::kWanted)) ||
           (failure().ok() && protocol_.has_commit());
  }
  std::optional<Partition::Task> next_task(uint32_t way);
  void finish_task(const Partition::Task& task);
  std::optional<IoRequest> next_io();
  void finish_io(const IoRequest& request, const Status& status);
  std::optional<EpochProtocol::Commit> take_commit() { return protocol_.take_commit(); }
  void commit_done(const Status& status);
  // No tasks and no writing until resume, except while records have arrived for which the memtables have no
  // room.
  void pause() { paused_ = true; }
  bool resume() { return std::exchange(paused_, false); }  // whether it was paused

  // -- For statistics and tests
  // What this rank has counted since it was opened: over all epochs, the open one included.
  MetricsSnapshot metrics() const;

 private:
  WriterCore(const WriterCoreParams& params, net::Conversation conversation,
             std::unique_ptr<Partition> partition);

  // The sync of the value log at an epoch's end.
  enum class ValuesSync { kNone, kWanted, kRunning };

  // Two epochs at most are alive at a time: the closing one and the open one.
  RankStats& stats_of(EpochNumber epoch) { return stats_[epoch % 2]; }
  RankStats& appending() { return stats_of(appending_epoch_); }
  RankStats& receiving() { return stats_of(partition_->open_epoch()); }
  uint64_t since(Nanos start) const { return static_cast<uint64_t>(params_.clock->now() - start); }
  SourceHome* sources() const { return params_.partition.sources; }
  // Whether the application's records go into this rank's memtables without frames.
  bool direct() const { return size() == 1 || sources() != nullptr; }
  void seal_partition();
  void mark_delivery();
  EpochStats close_stats();

  // net::MessageSink
  bool deliver(net::Rank source, Bytes message) override;
  bool deliver_keys(net::Rank source, Bytes message);
  void epoch_complete(uint32_t epoch) override;
  void may_send() override { send_routed(); }

  // Frames of the Batcher whose records go by three hops, and the ends of epochs between them.
  struct ToRoute {
    net::Frame frame;  // of the end of an epoch: without data
    size_t read = 0;
  };
  bool routed() const { return conversation_.route() != nullptr; }
  void send_routed();
  void submit_routed(const net::Frame& frame);

  void on_data(net::Rank from, Bytes payload);
  void enqueue(net::Inbox* queue, net::Rank from, Bytes payload);
  void begin_next_intake();
  // Feeds the partition; returns what it did not take.
  Bytes feed(net::Rank from, Bytes payload);
  void drain_delivery();
  void after_event();
  void next_epoch();

  bool works() const { return failure().ok() && (!paused_ || deliveries_wait()); }
  net::Inbox& delivery() { return conversation_.inbox(); }
  net::Rank rank() const { return params_.talk.rank; }
  int32_t size() const { return params_.talk.size; }

  const WriterCoreParams params_;
  net::Conversation conversation_;
  std::unique_ptr<Partition> partition_;
  EpochProtocol protocol_;
  net::Inbox early_;  // data of the next epoch; the delivery queue is the conversation's inbox
  uint32_t epochs_committed_ = 0;
  Parting parting_;
  std::deque<ToRoute> to_route_;
  bool route_waits_ = false;  // with records for which the memtables have no room
  bool paused_ = false;
  bool durable_reported_ = false;
  run::ValueRange closing_values_;
  ValuesSync values_sync_ = ValuesSync::kNone;

  // Statistics. Of epochs that are over, only the totals are kept.
  RankStats stats_[2];  // by parity of the epoch's number
  RankStats totals_;
  EpochNumber appending_epoch_;  // the application's open one
  uint64_t credit_waits_reported_ = 0;
  uint64_t refused_reported_ = 0;
  uint64_t route_frames_reported_ = 0;
  uint64_t route_bytes_reported_ = 0;
  uint32_t requests_out_ = 0;
  Nanos opened_;              // when the application's open epoch was
  Nanos stage_began_ = 0;     // the current stage of the closing epoch
  Nanos delivery_began_ = 0;  // when the delivery queue was last empty
};

}  // namespace swale::imd
