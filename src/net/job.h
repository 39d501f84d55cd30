// Job: one process's membership in a parallel job. Owns the Transport, its liveness watch and the channels.
//
// A channel is one conversation (one open massive directory): its frames carry its number, and its owner gets
// their events. Channels are opened in the same order on all ranks, so numbers agree without talking. What a closed channel
// took is free for the next one; its number is not used again, so that a late frame of an old conversation is never taken
// for one of a new conversation. There are 2^32 - 2 numbers in the life of a job, which is checked.
//
// A peer is down when its transport says so, or when it has been silent for `silence_deadline`: heartbeats
// flow between ranks that have exchanged a frame, sent by the progress thread, so that a rank which only
// computes is never taken for dead. A stopped or cut-off rank is. Down is final for the life of the job.
//
// A job of one rank has no transport and starts no thread: there is nobody to post to, and on_progress is
// never called. Frames for a channel that this rank has not opened yet wait (at most kEarlyBytesMax of them
// in all); those for a channel that it has closed are dropped. Threads: open, close, open_channel and
// allgather are collective and made by one thread at a time; post and wake by any thread. ChannelEvents are
// called by the progress thread, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "net/bootstrap.h"
#include "net/call_order.h"
#include "net/router.h"
#include "net/transport.h"

namespace swale::net {

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

struct JobOptions {
  std::string transport = "auto";  // "ucx", "loopback" (threads of one process, tests), "auto"
  std::string posting = "auto";    // "queue", "direct", "auto": by what the ranks of this node are joined
  Nanos silence_deadline = 30'000'000'000;
  Nanos heartbeat_interval = 1'000'000'000;
  Nanos close_deadline = 30'000'000'000;
  Nanos collective_deadline = 600'000'000'000;
  uint64_t memory_bytes =
      0;             // that its directories leave to all of the process's together; 0: as Swale chooses
  std::string node;  // what ranks of one machine have in common; "": this_machine (topology.h)
};

class Job {
 public:
  static constexpr size_t kEarlyBytesMax = 64 * kMiB;

  virtual ~Job() = default;

  // Collective: if a rank fails, all fail and name it. The job's secret is drawn by rank 0 and travels
  // through the bootstrap.
  static Result<std::unique_ptr<Job>> open(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options);

  virtual Rank rank() const = 0;
  virtual int32_t size() const = 0;
  virtual uint64_t secret() const = 0;
  // The ranks on that machine which has most of them; the same number on all ranks.
  virtual int32_t ranks_on_fullest_node() const = 0;
  virtual uint64_t memory_bytes() const = 0;  // JobOptions::memory_bytes

  // Collective. Over the transport (exchange.h), so that a rank which dies, stops or is cut off meanwhile fails it within
  // the silence deadline, by name; one that lives and does not come, after collective_deadline and 10 ms a rank.
  virtual Result<std::vector<std::string>> allgather(Bytes mine) = 0;

  // This rank makes its next collective call: before any message of the call is sent. If a peer has made another call in
  // its place, the job is given up, and the failure names both (call_order.h). `path`: for messages.
  virtual Status begin_call(CallKind kind, std::string_view path) = 0;
  // The same for a call on a channel's directory. Its messages are to carry the stamp.
  virtual Status begin_call(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path,
                            CallStamp* stamp) = 0;
  // What a peer's message says of its call. Any thread, in events too.
  virtual void heard_call(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch,
                          const CallStamp& stamp) = 0;
  // The conversation has failed: its calls are compared no more.
  virtual void forget_calls(uint32_t channel) = 0;

  // Fails every conversation of this job on this rank, those to come too; the ranks that wait for this one are told. The
  // first failure counts. Any thread, in events too.
  virtual void give_up(const Status& why) noexcept = 0;

  // Collective (the order decides the number). `events` outlives close_channel. kResourceExhausted when the numbers are
  // used up: on all ranks alike.
  virtual Result<uint32_t> open_channel(ChannelEvents* events) = 0;
  // After it returns no event of the channel is running or will come; wait for the on_sent of what was posted
  // before, or its memory is still lent out. Not to be called from an event.
  virtual void close_channel(uint32_t channel) = 0;

  // post.header must be a FrameHeader of an open channel. Frames to one peer must be posted in the order in
  // which the Router gave them: hold one lock of your own from Router::next_post to the end of post. Where an
  // event needs it too, there only try it. True: the payload is free again and no on_sent will come; false: it is borrowed
  // until on_sent(post.cookie). Throws as Transport::post does.
  [[nodiscard]] virtual bool post(uint32_t channel, const Post& post) = 0;
  // Whether a thread that has frames to post should do so itself (else it calls wake, and posts are made by
  // on_progress alone: the frames then cost it least).
  virtual bool posts_directly() const = 0;
  virtual void wake() = 0;  // makes every channel's on_progress run soon
  // As Transport::drive: events of any channel may come on the calling thread. False in a job of one rank.
  virtual bool drive(const std::function<bool()>& done, Nanos until) = 0;

  // Collective, and only when what was posted has arrived (epoch ends see to that): a rank that has never
  // heard from another does not wait for it. Says goodbye to the peers met, waits for theirs, closes the
  // transport. Peers that were reported down before are no failure; one that is lost during the close, or
  // does not come to it by close_deadline, is. So is, at once, a peer that makes another collective call.
  virtual Status close() = 0;
};

}  // namespace swale::net
