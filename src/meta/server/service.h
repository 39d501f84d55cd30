// Service: the metadata servers of one rank, with threads: ServerCores, and a server of a tree, on net::Rpc.
//
// Small requests are handled where they arrive, so an answer from memory costs no change of threads. Large
// ones, and all storage work, are done by the storage thread. Calls to other servers are made at once, or
// after others if this rank may have no more open; a third thread waits for their completions, and sleeps
// while none is open. A thread of this rank that changes the tree may write the log itself (OwnCommits): its
// answer then needs no other thread.
//
// Threads: two of its own; the rest by any thread. Errors: a core that runs out of memory in an event answers
// nothing more and says why (health). Limits: of RpcOptions.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "meta/server/names_server.h"
#include "meta/server/server_core.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

// Where the servers of a rank account for what is stored in them.
class ContentBudget {
 public:
  virtual ~ContentBudget() = default;
  // They store `bytes` now. A failure: the process may not have so much.
  virtual Status stored(uint64_t bytes) = 0;
};

class Service final : public net::RpcService {
 public:
  // `hosts`: the rank of each server. `patience`: how long a call to another server may take. `budget`
  // outlives the service; null: nobody counts. `names`: the tree's server of this rank; null: none.
  Service(std::vector<std::unique_ptr<ServerCore>> cores, std::vector<net::Rank> hosts, Nanos patience,
          ContentBudget* budget = nullptr, std::unique_ptr<NamesServer> names = nullptr);
  ~Service() override;

  // The threads start, and requests that came before are handled. kResourceExhausted if a thread cannot be
  // started, or if what is stored does not fit into the budget.
  Status start(net::Rpc* rpc);
  // Finishes half-done changes of an earlier job, or has each server that could not know of what it owes.
  // After all ranks have started, and before any asks.
  Status resume(Nanos deadline);
  // Waits for the operations on several servers that are under way, when no client asks any more.
  Status come_to_rest(Nanos deadline);
  // Everything that was accepted is durable; then the threads end. No request may come any more.
  Status stop();

  void on_requests(std::span<net::RpcRequest> requests) override;

  // While one lives, changes of the tree that this thread asks for wake no storage thread. This thread writes
  // them, together, when the OwnCommits ends, or before it waits for an answer (Pause). Whoever asks the tree
  // meanwhile has them written: nobody waits for a thread that is at something else.
  class OwnCommits {
   public:
    explicit OwnCommits(Service* service);  // null: it does nothing
    ~OwnCommits();
    OwnCommits(const OwnCommits&) = delete;
    OwnCommits& operator=(const OwnCommits&) = delete;

    // A thread that waits may have to handle requests of others.
    class Pause {
     public:
      Pause();
      ~Pause();
      Pause(const Pause&) = delete;
      Pause& operator=(const Pause&) = delete;

     private:
      Service* const outer_;
    };

   private:
    Service* const outer_;
  };

  // A file that is made without a message (NamesCore::make_file), by a thread that writes the log itself.
  class Making {
   public:
    // With `names` null, or where somebody else has to be asked, has_begun() is false, and nothing was done.
    Making(Service* service, const NewFile& file);
    bool has_begun() const { return state_ != nullptr; }
    // Waits until it is written. Once.
    Result<MadeFile> end(Nanos patience);

   private:
    friend Service;
    struct State {
      MadeFile made;
      Status failure;
      bool done = false;
    };
    Service* const service_;
    std::shared_ptr<State> state_;  // guarded by the service's mutex
  };

  // Runs `act` on each core, locked.
  template <class Act>
  void with_cores(const Act& act) {
    const MutexLock lock(mutex_);
    for (const auto& core : cores_) act(*core);
  }
  template <class Act>
  void with_names(const Act& act) {
    const MutexLock lock(mutex_);
    if (names_ != nullptr) act(*names_);
  }

 private:
  ServerCore* core_of(Bytes payload) REQUIRES(mutex_);
  ServedCore* served_of(const net::RpcRequest& request) REQUIRES(mutex_);
  Status wait_for_rest(const MutexLock& lock, Nanos deadline) REQUIRES(mutex_);
  void handle(net::RpcRequest& request) REQUIRES(mutex_);
  void flush() REQUIRES(mutex_);  // gives the mutex up meanwhile
  void commit_names() noexcept;
  static void commit_kept() noexcept;
  Status make(net::RpcClient* upstream, const Call& call) EXCLUDES(mutex_);
  void keep_unsent(std::vector<Call>* calls, size_t first) REQUIRES(mutex_);
  void handle_queued() REQUIRES(mutex_);
  void rest() REQUIRES(mutex_);  // gives the mutex up meanwhile
  void store() EXCLUDES(mutex_);
  void await() EXCLUDES(mutex_);
  void fail(const Status& why) REQUIRES(mutex_);
  // A completion of a core's call, which counts no more. One that is told later counts until then.
  void tell(uint64_t tag, Result<std::string> response) REQUIRES(mutex_);
  void tell_paused() REQUIRES(mutex_);
  Status account() REQUIRES(mutex_);

  const std::vector<net::Rank> hosts_;
  const Nanos patience_;
  ContentBudget* const budget_;
  Mutex mutex_;
  CondVar work_;  // for the storage thread
  CondVar upstream_work_;
  CondVar resumed_;                       // something has happened while resume() waits
  CondVar made_;                          // a file is, whose maker sleeps
  size_t makers_ GUARDED_BY(mutex_) = 0;  // that sleep
  net::Rpc* rpc_ GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<net::RpcClient> upstream_ GUARDED_BY(mutex_);  // none once stopped
  std::vector<std::unique_ptr<ServerCore>> cores_ GUARDED_BY(mutex_);
  std::unique_ptr<NamesServer> names_ GUARDED_BY(mutex_);
  std::vector<ServedCore*> served_ GUARDED_BY(mutex_);          // all of them; their places are in tags
  std::vector<std::unique_ptr<Work>> left_ GUARDED_BY(mutex_);  // of the tree's, for the storage thread
  std::deque<net::RpcRequest> queue_ GUARDED_BY(mutex_);        // for the storage thread
  size_t open_calls_ GUARDED_BY(mutex_) = 0;  // of the cores that are not complete, unsent ones too
  // for which this rank had no capacity (RpcOptions::calls_max)
  std::vector<Call> unsent_ GUARDED_BY(mutex_);
  // Failures that their cores hear later (ServedCore::pause_after_failure).
  struct Paused {
    Nanos due;
    uint64_t tag;
    Status why;
  };
  std::vector<Paused> paused_ GUARDED_BY(mutex_);
  size_t sending_ GUARDED_BY(mutex_) = 0;  // threads that make calls now
  bool resuming_ GUARDED_BY(mutex_) = false;
  uint64_t puts_seen_ GUARDED_BY(mutex_) = 0;  // of all cores, when rest() looked last
  Nanos quiet_since_ GUARDED_BY(mutex_) = 0;   // no put has come since
  bool settled_ GUARDED_BY(mutex_) = true;     // as far as puts have come
  bool trimmed_ GUARDED_BY(mutex_) = true;     // since the shards settled last
  uint64_t accounted_ GUARDED_BY(mutex_) = 0;  // stored_count() of all cores, when account() has looked
  bool full_ GUARDED_BY(mutex_) = true;        // the cores refuse what grows, or nobody has looked yet
  bool stop_ GUARDED_BY(mutex_) = false;
  Status failure_ GUARDED_BY(mutex_);
  std::thread storage_;
  std::thread awaiting_;
};

}  // namespace swale::meta
