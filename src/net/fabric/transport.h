// Transport: moves frames between the ranks of one job; the thin layer over a fabric (UCX, TLS,
// in-process loopback).
//
// What it promises (tests/transport contract suite, run over every implementation):
//   - frames from one rank to another arrive whole, at most once, and in the order of their post calls;
//   - post never blocks and makes no call of TransportEvents; the payload's memory is borrowed until post
//     says that it is free, or until on_sent(cookie), which else comes exactly once per post, also when the
//     peer is gone;
//   - on_down(peer) comes at most once per peer, after the last on_frame from it;
//   - with nothing to do the progress thread sleeps in the kernel: idle CPU is about zero; wake() ends the
//   sleep. A thread that expects a frame (drive, expect_frame) may poll for TransportOptions::poll first.
// What it does not promise: memory at the receiver. Frames arrive whether or not anybody is ready, so senders
// must hold credits: that is Router's work. Nor does it find silent peers: that is Liveness' work.
//
// Threads: one progress thread per Transport makes every TransportEvents call, one at a time; a thread that
// is in drive does so in its place. post and wake may be called by any thread, also from inside an event, and
// under any lock of the caller's: they wait for nobody who might wait for it. Posts to one peer from several
// threads need an order of the caller's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "net/fabric/job_key.h"

namespace swale::net {

using Rank = int32_t;
class AddressBook;

// The progress thread calls these, and code that knows no exceptions: none of them throws.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  // `header` and `payload` live only during the call.
  virtual void on_frame(Rank from, Bytes header, Bytes payload) = 0;
  virtual void on_sent(uint64_t cookie) = 0;
  virtual void on_down(Rank peer, const Status& why) = 0;
  // Called when the fabric has nothing more to hand over, before every sleep, and after wake(). Returns the
  // latest time at which it wants to be called again (heartbeats, deadlines).
  virtual Nanos on_progress(Nanos now) = 0;
  // The transport lacked memory for something that it had to do: a peer may not be met, or its frame may be
  // lost. It goes on, so that peers can be told; conversations have to be given up.
  virtual void on_failure(const Status& why) = 0;
};

// Which thread puts a posted frame on the wire: the progress thread, out of a queue, or the one that posts.
// The second saves a change of threads per frame; a frame that cannot leave at once goes through the queue
// too.
enum class Posting { kQueue, kDirect };

// Whom a transport must reach. kNode: all ranks share one memory (memory_probe.h), so the fabric uses that
// and nothing else: it opens no port, whatever the environment says. kHardware: all ranks have RDMA devices,
// and nobody says that the network is private: UCX leaves TCP out.
enum class Reach { kAnywhere, kNode, kHardware };

struct TransportOptions {
  Posting posting = Posting::kDirect;
  Reach reach = Reach::kAnywhere;
  // The job's: messages without it are a stranger's.
  uint64_t secret = 0;
  // The job's, for a fabric that proves with it who is of the job (tls).
  JobKey key;
  // How long a thread that expects a frame polls before it sleeps (polling.h); 0: never.
  Nanos poll = 0;
  // When the job takes a peer for silent. A fabric that has deadlines of its own is more patient.
  Nanos silence_deadline = seconds(30);
  // For a benchmark's comparison only: a fabric that encrypts does not, nor asks who its peers are.
  bool in_clear = false;
  // Settings of the fabric's own, stronger than the environment; of UCX without the prefix "UCX_": tests. Of
  // tls: tls_transport.h.
  std::vector<std::pair<std::string, std::string>> settings;
};

class Transport {
 public:
  static constexpr size_t kHeaderBytesMax = 64;

  virtual ~Transport() = default;

  // How peers reach this rank; opaque bytes, at most 4 KiB. Valid before start.
  virtual std::string address() const = 0;

  // Starts the progress thread. A rank is looked up in the book, and connected to, on first use; a failure of
  // either arrives as on_down. Memory grows with the ranks that are met. `events` outlives the Transport's
  // close.
  virtual Status start(std::shared_ptr<const AddressBook> book, TransportEvents* events) = 0;

  // Sends header and payload to `to` (not to oneself). The header is copied. True: the payload is free again
  // and no on_sent will come; false: it is borrowed until on_sent. Throws std::bad_alloc if there is no
  // memory for its place in the queue: nothing has been done then, and the same frame may be posted again.
  [[nodiscard]] virtual bool post(Rank to, Bytes header, Bytes payload, uint64_t cookie) = 0;

  virtual void wake() = 0;

  // For a thread that waits for an event: does the progress thread's work, events included, until `done` or
  // `until`, and so saves a change of threads. It sleeps when there is nothing to do. `done` is called
  // between events. False, at once: another thread does so already, or the transport cannot: wait in another
  // way. Not from an event, nor under a lock that one takes.
  virtual bool drive(const std::function<bool()>& /*done*/, Nanos /*until*/) { return false; }

  // A frame is likely to come soon, because a peer has just been answered: the progress thread polls for a
  // while before it sleeps. Any thread, also in events.
  virtual void expect_frame() {}

  // Gives a peer up, say because it has been silent: posts to it come back by on_sent, nothing more is heard
  // from it, and on_down(peer, why) follows on the progress thread, unless it was down already. Any thread.
  virtual void drop(Rank peer, const Status& why) = 0;

  // Lets posted frames leave and arrive, parts from the peers, stops the progress thread. Call when all ranks
  // have agreed to close: a peer that has never heard from us does not know that it should wait for our first
  // frame. Peers already down are dropped by force. After `deadline` everything is dropped by force. No
  // on_down comes from here on.
  virtual Status close(Deadline deadline) = 0;

  // Messages that were dropped because they are not of this job. Any thread.
  virtual uint64_t rejected_messages() const { return 0; }
};

}  // namespace swale::net
