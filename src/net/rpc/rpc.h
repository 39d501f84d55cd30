// Rpc: requests and responses between the ranks of a job: RpcCore on a channel of the job, with threads.
//
// Each thread that calls has an RpcClient: its completions come there. A thread that waits for one does the
// job's progress meanwhile (Job::drive), so an answer costs no change of threads on its way to the caller.
// Whatever changes the core posts what may leave.
//
// A service gets requests in RpcService::on_requests, on whichever thread made the event: the job's progress
// thread, a thread that waits, or, for requests of this rank to itself, the one that calls. It may answer
// there what takes no longer than a change of threads (some 10 us) and waits for nobody but short locks: no
// storage, no other rank. Everything else it puts where threads of its own find it. A reply may come from any
// thread.
//
// A thread that waits, and a progress thread that has brought a request, poll for at most JobOptions::poll
// before they sleep (polling.h), so that an answer from memory costs no wake-up on either side.
//
// Threads: Rpc's own calls by any thread, open and close collectively. An RpcClient's wait, ask and ask_many
// by one thread at
//   a time; its call, call_many and cancel by any thread, also while another one waits, which then gets their
//   completions.
// Errors: calls fail by completion (rpc_types.h). A peer that goes down fails the calls to it and nothing
// else; a peer that
//   breaks the protocol, and want of memory in an event, fail the conversation on all ranks.
// Limits: RpcOptions; those of RpcCore.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/rpc/rpc_core.h"
#include "net/talk/conversation_driver.h"

namespace swale::net {

inline constexpr size_t kRpcWindowBytesMax = kMiB;

// How much memory they stand for: rpc_memory.h.
struct RpcOptions {
  std::vector<std::string> methods;                // names, by RpcMethod; the same on all ranks
  size_t message_bytes_max = kRpcMessageBytesMax;  // of a request and of a response
  // RpcParams::window_bytes is this by the number of ranks, and at most kRpcWindowBytesMax.
  size_t window_bytes_sum = 64 * kMiB;
  size_t granted_bytes_max = 64 * kMiB;
  size_t calls_max = 4096;
  size_t calls_bytes_max = 128 * kMiB;
  // A request of 32 KiB fits into a frame, and a frame into one segment of UCX (transport.md, "Settings").
  size_t frame_bytes = 32 * kKiB + 64;
  uint16_t window_frames = 4;  // unread at a peer; so many a peer are kept for sending
};

// None of its functions throws.
class RpcService {
 public:
  virtual ~RpcService() = default;
  // Answer each by Rpc::reply, later, or now if that is bounded work (above). Several threads may be here at
  // a time.
  virtual void on_requests(std::span<RpcRequest> requests) = 0;
};

class Rpc;

// Calls of one thread, and their completions. The Rpc outlives it.
class RpcClient {
 public:
  explicit RpcClient(Rpc* rpc);
  ~RpcClient();  // cancels what is open
  RpcClient(const RpcClient&) = delete;

  // When the call leaves: now, or with the next call or wait.
  enum class Leave { kNow, kWithNext };

  // Begins a call; `owner` is the client's. kResourceExhausted: take completions first. Errors otherwise as
  // RpcCore::call.
  Result<CallId> call(RpcCall call, Leave leave = Leave::kNow);
  // To many ranks, all or none.
  Result<std::vector<CallId>> call_many(std::span<const Rank> ranks, RpcCall call);
  bool cancel(CallId id);
  // Waits until a call of this client is complete, or until `until`; if a call of this client found no
  // capacity since the last wait, also until other calls have left some: try again then. Appends all
  // completions that there are; 0: none.
  size_t wait(std::vector<RpcCompletion>* out, Nanos until = kForever);
  // Calls and waits for the answer. Requires that no other call of this client is open.
  Result<std::string> ask(RpcCall call);
  // The same, of many ranks: their answers, in the order of `ranks`.
  std::vector<Result<std::string>> ask_many(std::span<const Rank> ranks, RpcCall call);

 private:
  friend class Rpc;
  Rpc* const rpc_;
  uint64_t owner_ = 0;               // index in Rpc::clients_
  std::vector<RpcCompletion> done_;  // guarded by Rpc::mutex_
  // done_ is not empty, or freed_, or its thread is to look at the deadlines again
  std::atomic<bool> ready_{false};
  // Guarded by Rpc::mutex_.
  bool refused_ = false;  // a call, for want of capacity
  bool freed_ = false;    // some has been left since
  bool waiting_ = false;  // for wake_
  Nanos wake_at_ = 0;     // its thread sleeps until then at most; 0: it does not wait
  CondVar wake_;
};

class Rpc final : private ConversationDriver, private Participant {
 public:
  // Collective: if a rank fails, all fail and name it; so they do if options differ. `service` outlives the
  // Rpc; nullptr: this rank answers nothing (requests to it fail as kUnsupported).
  static Result<std::unique_ptr<Rpc>> open(Job& job, const RpcOptions& options, RpcService* service);
  // Without close it gives up: the other ranks are told.
  ~Rpc() override;

  Rank rank() const { return job_.rank(); }
  int32_t size() const { return job_.size(); }

  // Answers a request. False: nobody waits for it any more.
  bool reply(ReplyToken token, Result<RpcPayload> response);
  // The same; `bytes` are the caller's again when it returns. They are copied once if there are frames free.
  bool reply_with(ReplyToken token, Bytes bytes);
  bool wanted(ReplyToken token);

  // Why nothing is asked or answered any more; OK while this is not so.
  Status failure() const;

  // Collective, when this rank's calls are complete: no rank leaves before all have come here.
  Status close();

 private:
  friend class RpcClient;

  Rpc(Job& job, const RpcOptions& options, RpcService* service)
      : ConversationDriver(job), options_(options), service_(service) {}
  Status start();
  void part();

  Conversation& conversation() override REQUIRES(mutex_) { return *conversation_; }
  void before_posts() override REQUIRES(mutex_);
  void on_frame(Rank from, const FrameHeader& header, Bytes payload) override REQUIRES(mutex_);
  void on_control(Rank, Bytes) override {}
  void on_down(Rank peer, const Status& why) override REQUIRES(mutex_);
  void fail(const Status& why) override REQUIRES(mutex_);
  void tick() override REQUIRES(mutex_);
  void on_failed(const Status& why) override REQUIRES(mutex_);
  void on_event() override REQUIRES(mutex_) { hand_out(); }
  void on_frame_taken() override REQUIRES(mutex_);

  Result<CallId> call(RpcClient* client, RpcCall&& call, RpcClient::Leave leave);
  Result<std::vector<CallId>> call_many(RpcClient* client, std::span<const Rank> ranks, RpcCall call);
  bool cancel(CallId id);
  size_t wait(RpcClient* client, std::vector<RpcCompletion>* out, Nanos until);
  // What gives the mutex up meanwhile: wait_for_one, sleep, drive, dispatch, changed.
  void wait_for_one(RpcClient* client, Nanos until) REQUIRES(mutex_);
  void sleep(RpcClient* client) REQUIRES(mutex_);
  bool drive(RpcClient* client) REQUIRES(mutex_);
  void dispatch() REQUIRES(mutex_);
  void changed(RpcClient::Leave leave = RpcClient::Leave::kNow) REQUIRES(mutex_);
  void hand_out() REQUIRES(mutex_);
  void refuse(RpcClient* client, const Status& why) REQUIRES(mutex_);
  void wake(RpcClient* client) REQUIRES(mutex_);
  void keep_deadline(RpcClient* client) REQUIRES(mutex_);
  void add(RpcClient* client);
  void remove(RpcClient* client);

  const RpcOptions options_;
  RpcService* const service_;
  bool closed_ = false;
  std::unique_ptr<Conversation> conversation_ GUARDED_BY(mutex_);
  std::unique_ptr<RpcCore> core_ GUARDED_BY(mutex_);
  std::vector<RpcClient*> clients_ GUARDED_BY(mutex_);  // by owner; nullptr: free
  bool any_refused_ GUARDED_BY(mutex_) = false;         // since capacity was left
  RpcClient* driver_ GUARDED_BY(mutex_) = nullptr;      // does the job's progress, if any
  std::thread::id driver_thread_ GUARDED_BY(mutex_);
  // In on_requests, called by an event: what it replies leaves after the event.
  std::thread::id event_thread_ GUARDED_BY(mutex_);
};

}  // namespace swale::net
