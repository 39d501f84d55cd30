// Job: one process's membership in a parallel job. Owns the Transport, its liveness watch and the channels.
//
// A channel is one conversation (one open massive directory): its frames carry its number, or one of its
// numbers, and its owner gets their events. Channels are opened in the same order on all ranks, so numbers
// agree without talking. What a closed channel took is free for the next one; its number is not used again,
// so that a late frame of an old conversation is never taken for one of a new conversation. There are 2^32 -
// 2 numbers in the life of a job, which is checked.
//
// A peer is down when its transport says so, or when it has been silent for `silence_deadline`: heartbeats
// flow between ranks that have exchanged a frame, sent by the progress thread, so that a rank which only
// computes is never taken for dead. A stopped or cut-off rank is. Down is final for the life of the job. A
// frame of a peer whose checksum is wrong gives the job up on the rank that receives it.
//
// A job of one rank has no transport and starts no thread: there is nobody to post to, and on_progress is
// never called. Frames for a channel that this rank has not opened yet wait (at most kEarlyBytesMax of them
// in all); those for a channel that it has closed are dropped. Threads: open, close, open_channel and
// allgather are collective and made by one thread at a time; post and wake by any thread. ChannelEvents are
// called by the progress thread, one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/fabric/sparse_per_rank.h"
#include "net/fabric/transport.h"
#include "net/job/job_meeting.h"
#include "net/job/job_options.h"
#include "net/meeting/bootstrap.h"
#include "net/meeting/call_order.h"
#include "net/route/router.h"

namespace swale::net {

class Exchange;
class Liveness;

// None of these throws.
class ChannelEvents {
 public:
  virtual ~ChannelEvents() = default;
  virtual void on_frame(Rank from, const FrameHeader& header, Bytes payload) = 0;
  virtual void on_sent(uint64_t cookie) = 0;  // cookies < 2^32; of this channel's own posts only
  virtual void on_down(Rank peer, const Status& why) = 0;
  virtual Nanos on_progress(Nanos now) = 0;
  // The job can go on no more on this rank (give_up); peers are to be told. At most once.
  virtual void on_failure(const Status& why) = 0;
};

class Job final : private TransportEvents {
 public:
  static constexpr size_t kEarlyBytesMax = 64 * kMiB;

  ~Job() override;  // without close: peers are dropped

  // Collective: if a rank fails, all fail and name it. The job's secret is drawn by rank 0 and travels
  // through the bootstrap.
  static Result<std::unique_ptr<Job>> open(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options);

  Rank rank() const { return bootstrap_->rank(); }
  int32_t size() const { return bootstrap_->size(); }
  uint64_t secret() const { return meeting_.secret; }
  // Frames and messages that were dropped because they do not have the job's secret, or are none at all. Any
  // thread.
  uint64_t refused_frames() const {
    return refused_frames_.load(std::memory_order_relaxed) +
           (transport_ ? transport_->rejected_messages() : 0);
  }
  // The ranks on that machine which has most of them; the same number on all ranks.
  int32_t ranks_on_fullest_node() const { return meeting_.node_map->ranks_on_fullest(); }
  // Which ranks share which nodes, and how records are to travel.
  const std::shared_ptr<const NodeMap>& nodes() const { return meeting_.node_map; }
  RouteChoice route() const { return options_.route; }
  uint64_t memory_bytes() const { return options_.memory_bytes; }
  Nanos collective_deadline() const { return options_.collective_deadline; }

  // Collective. Over the transport (exchange.h), so that a rank which dies, stops or is cut off meanwhile
  // fails it within the silence deadline, by name; one that lives and does not come, after
  // collective_deadline and 10 ms a rank.
  Result<std::vector<std::string>> allgather(Bytes mine);
  // The same, of which each rank gets only the least that was given; an empty string gives nothing. Bytes,
  // messages and memory do not grow with the ranks.
  Result<std::string> least(Bytes mine);
  // The same, of which each rank gets what was given by those that gave something, by rank: bytes grow with
  // these alone.
  Result<std::map<Rank, std::string>> given(Bytes mine);

  // This rank makes its next collective call: before any message of the call is sent. If a peer has made
  // another call in its place, the job is given up, and the failure names both (call_order.h). `path`: for
  // messages.
  Status begin_call(CallKind kind, std::string_view path);
  // The same for a call on a channel's directory. Its messages are to carry the stamp.
  Status begin_call(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path, CallStamp* stamp);
  // What a peer's message says of its call. Any thread, in events too.
  void heard_call(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch, const CallStamp& stamp);
  // The conversation has failed: its calls are compared no more.
  void forget_calls(uint32_t channel) { calls_.forget(channel); }

  // Fails every conversation of this job on this rank, those to come too; the ranks that wait for this one
  // are told. The first failure counts. Any thread, in events too.
  void give_up(const Status& why) noexcept;

  // Collective (the order decides the number). `events` outlives close_channel. kResourceExhausted when the
  // numbers are used up: on all ranks alike. A channel may have several `numbers`, one after the other: it is
  // named by the first.
  Result<uint32_t> open_channel(ChannelEvents* events, uint32_t numbers = 1);
  // After it returns no event of the channel is running or will come; wait for the on_sent of what was posted
  // before, or its memory is still lent out. Not to be called from an event.
  void close_channel(uint32_t channel);

  // post.header must be a FrameHeader of an open channel. Frames to one peer must be posted in the order in
  // which the Router gave them: hold one lock of your own from Router::next_post to the end of post. Where an
  // event needs it too, there only try it. True: the payload is free again and no on_sent will come; false:
  // it is borrowed until on_sent(post.cookie). Throws as Transport::post does.
  [[nodiscard]] bool post(uint32_t channel, const Post& post);
  // Whether a thread that has frames to post should do so itself (else it calls wake, and posts are made by
  // on_progress alone: the frames then cost it least).
  bool posts_directly() const { return meeting_.posting == Posting::kDirect; }
  void wake();  // makes every channel's on_progress run soon
  // As Transport::drive: events of any channel may come on the calling thread. False in a job of one rank.
  bool drive(const std::function<bool()>& done, Nanos until);
  void expect_frame();  // as Transport::expect_frame

  // Collective, and only when what was posted has arrived (epoch ends see to that). Says goodbye to the peers
  // met, waits for the goodbyes of those that it has heard from, closes the transport. A peer that it has
  // only
  // posted to (the news of a failure go to all ranks) may have left without hearing of this rank. Peers that
  // were reported down before are no failure; one that is lost during the close, or
  // does not come to it by close_deadline, is. So is, at once, a peer that makes another collective call.
  Status close();

 private:
  struct EarlyFrame {
    Rank from;
    FrameHeader header;
    std::string payload;
  };
  struct Channel {
    ChannelEvents* events = nullptr;  // nullptr: not opened here yet
    uint32_t numbers = 1;
    std::deque<EarlyFrame> early;                // came before it was opened
    std::vector<std::pair<Rank, Status>> downs;  // happened before it was opened
    bool failure_told = false;
  };
  struct PeerState {
    bool goodbye_said = false;
    bool down = false;
    Status why;
  };

  Job(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options);
  Status start();

  // TransportEvents
  void on_frame(Rank from, Bytes header, Bytes payload) override;
  void on_sent(uint64_t cookie) override;
  void on_down(Rank peer, const Status& why) override;
  Nanos on_progress(Nanos now) override;
  void on_failure(const Status& why) override { give_up(why); }

  Status start_transport();
  void make_exchange();
  void take_frame(Rank from, const FrameHeader& header, Bytes payload);
  void note_down(Rank peer, const Status& why);
  Nanos progress(Nanos now);
  void tell_failure() REQUIRES(events_mutex_);
  Status failure();
  void hear_call_of(Rank from, const FrameHeader& header);
  void dispatch(Rank from, const FrameHeader& header, Bytes payload);
  Channel* find_channel(uint32_t number) REQUIRES(events_mutex_);
  void keep_early(Rank from, const FrameHeader& header, Bytes payload) REQUIRES(events_mutex_);
  // What a channel that is being opened has missed.
  void collect_early(uint32_t number, Channel* channel) REQUIRES(events_mutex_);
  void deliver_early(Channel* channel) REQUIRES(events_mutex_);
  void on_goodbye(Rank from);
  bool post_own(Rank to, FrameKind kind, Bytes payload = {}, uint64_t cookie = kNoCookie);
  bool parted(Rank peer) REQUIRES(states_mutex_);
  bool part() REQUIRES(states_mutex_);
  Status await_goodbyes();
  PeerState& state(Rank peer) REQUIRES(states_mutex_) { return states_.meet(peer); }

  const JobOptions options_;
  std::unique_ptr<Bootstrap> bootstrap_;
  JobMeeting meeting_;
  std::unique_ptr<Liveness> liveness_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Transport> transport_;
  bool closed_ = false;
  std::atomic<uint64_t> refused_frames_{0};

  // Held by the progress thread during every event of a channel, so that close_channel waits for a running
  // one.
  Mutex events_mutex_;
  std::map<uint32_t, Channel> channels_ GUARDED_BY(events_mutex_);
  uint32_t next_channel_ GUARDED_BY(events_mutex_) = 1;
  size_t early_bytes_ GUARDED_BY(events_mutex_) = 0;

  CallOrder calls_;
  Mutex failure_mutex_;
  Status failure_ GUARDED_BY(failure_mutex_);  // of the whole job, on this rank
  std::atomic<bool> failed_{false};
  std::atomic<bool> failure_told_{false};  // to all conversations, which have told their peers

  Mutex states_mutex_;  // after events_mutex_
  CondVar parted_;
  SparsePerRank<PeerState> states_ GUARDED_BY(states_mutex_);
};

}  // namespace swale::net
