// ThreadedWriter: the Writer with its threads around WriterCore: the application's own, the job's progress thread, one
// worker per way and one storage thread. writer.cc has what the application calls, writer_threads.cc the others.
//
// One mutex guards the core; the heavy work (sorting and gathering, storage, the
// wire) runs outside it. A second one guards the Batcher, so that an append touches the core once per full frame.
// Order: values_mutex_ before intake_.mutex before post_turns_ (never waited for) before core_mutex_.
//
// Frames reach the transport in the order in which the Router numbered them: a turn of post_turns_ lasts from taking them
// to having posted them. Whoever makes an event that may let frames leave calls send_ready after it, with the core
// unlocked; events of the transport need not, on_progress follows them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "imd/write/batcher.h"
#include "imd/write/committer.h"
#include "imd/write/partition_files.h"
#include "imd/write/writer.h"
#include "imd/write/writer_core.h"
#include "imd/write/writer_open.h"
#include "io/io_queue.h"
#include "net/post_turns.h"

namespace swale::imd {

class ThreadedWriter final : public Writer, public net::ChannelEvents {
 public:
  ThreadedWriter(net::Job& job, OpenedDirectory opened, size_t budget_bytes, const Partitioner& partitioner,
                 Ablation::Delivery delivery)
      : job_(job),
        delivery_(delivery),
        alone_(job.size() == 1),
        partitioner_(partitioner),
        opened_(std::move(opened)),
        budget_(budget_bytes),
        batcher_(job.size(), partitioner) {}
  // Without close it gives up: the other ranks are told, and wait for this one no more.
  ~ThreadedWriter() override;

  void set_collective_deadline(Nanos deadline) { collective_deadline_ = deadline; }  // before start

  // What this directory has of the process's memory; given back when the writer goes.
  void hold_share(MemoryBudget::Reservation share) { share_ = std::move(share); }

  // Joins the channel and starts the threads. No frame can come before every rank has done so: the caller agrees.
  Status start(const MemoryPlan& memory, uint32_t ways);
  // Collective, once all have started.
  Status finish_opening();
  // The opening has failed: leaves no files of this rank behind.
  void discard() { opened_.discard(); }

  Status epoch_end(int64_t step, double time) override;
  Status epoch_end_begin(int64_t step, double time) override;
  Status epoch_end_wait() override;
  void pause() override;
  void resume() override;
  Status close() override;
  const std::string& directory() const override { return opened_.directory; }
  MetricsSnapshot metrics() const override;

  void on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) override;
  void on_sent(uint64_t cookie) override;
  void on_down(net::Rank peer, const Status& why) override;
  Nanos on_progress(Nanos now) override;
  void on_failure(const Status& why) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr size_t kPostsPerTurn = 16;

  // A thread of the application that waits. It is woken when its own condition holds and not by every event: it would
  // only meet the progress thread at the core's mutex.
  struct Waiter {
    const std::function<bool()>& done;  // called with the core locked
    std::condition_variable wake;
    Waiter* next = nullptr;
  };

  Status append(Bytes key, Bytes value) override;
  Status append_any(Bytes key, Bytes value);
  Status append_failed(const Status& why);
  Status append_large(Bytes key, Bytes value);
  void begin_values(uint32_t epochs_ended);
  // To a frame of its destination, or in a job of one rank straight to a memtable: `record` as both take it, whose key
  // is `key`.
  template <class... Record>
  Status append_to_frame(Bytes key, const Record&... record);
  template <class... Record>
  Status append_to_memtable(Hash hash, const Record&... record);
  Status nowhere(Bytes key) const;
  Status replace_frame(net::Rank destination);
  Status make_room(uint32_t way);
  Status wait_for_intake();
  Status begin_end(int64_t step, double time);
  Status wait_for_end();
  Status part();
  void work(uint32_t way);
  void work_once(Lock& core_lock, uint32_t way);
  bool at_rest() const { return paused_ && !core_->deliveries_wait(); }
  void store();
  void store_once(Lock& core_lock);
  void commit(Lock& core_lock, const EpochProtocol::Commit& commit);
  bool start_io(Lock& core_lock);
  void reap_io(Lock& core_lock);
  // Whether the call that answered this has changed nothing: all else fails the writer.
  static bool harmless(const Status& status) {
    return status.ok() || (status.code() == Code::kInvalidArgument && status.scope() == Scope::kOperation);
  }
  // Fails the writer: nobody waits for it any more, here or elsewhere. Call with the core locked. What memory does not
  // suffice for now, telling the other ranks, is done by on_progress when it does.
  void fail_locked(const Status& why) noexcept;
  // The same with the core's lock, and what is to be told leaves at once.
  void fail(Lock& core_lock, const Status& why) noexcept;
  // Wakes whoever the core now has something for. Call with the core locked, after every event.
  void announce();
  void go_on();  // no longer paused; likewise
  // Sees to it that what may leave now does: posts it, or has the progress thread do so.
  void send_ready();
  void send_ready(Lock& core_lock) {
    if (alone_) return;
    core_lock.unlock();
    send_ready();
    core_lock.lock();
  }
  void post_ready();
  bool post_some();
  // Waits until `done`, or for `patience`. False: not done.
  bool wait_until(Lock& core_lock, const std::function<bool()>& done, std::chrono::nanoseconds patience);
  // Waits until `done` or a failure; tells the log from time to time. Ranks that live and do not come are a failure after
  // collective_deadline_.
  void wait_for(Lock& core_lock, const char* what, const std::function<bool()>& done);
  void wait_for_delivery(Lock& core_lock);  // the progress thread, Ablation::Delivery::kWait
  // As wait_for, for an append, whose waits are counted. The pipeline goes on if it was paused.
  void wait_in_append(Lock& core_lock, const char* what, const std::function<bool()>& done);
  void wake_waiters();  // call with the core locked
  // The first failure as it was, later ones as kAborted with that cause.
  Status failure();
  void shut_down() noexcept;
  void leave_channel();

  net::Job& job_;
  const Ablation::Delivery delivery_;
  const bool alone_;
  const Partitioner partitioner_;
  OpenedDirectory opened_;
  std::optional<Committer> committer_;  // on rank 0
  MemoryBudget::Reservation share_;
  MemoryBudget budget_;
  std::vector<MemoryBudget::Reservation> reservations_;
  uint32_t channel_ = 0;
  bool channel_open_ = false;
  bool closed_ = false;  // by close
  Nanos collective_deadline_ = kForever;

  std::mutex values_mutex_;    // a large value and its record, or the end of an epoch
  Batcher batcher_;            // guarded by intake_.mutex
  bool epoch_ending_ = false;  // begun and not waited for; of the thread that makes the collective calls

  net::PostTurns post_turns_;
  // Taken from the core and not posted yet; of the thread whose turn it is. They outlive a turn only if posting throws.
  std::array<net::Post, kPostsPerTurn> posts_;
  size_t posts_begin_ = 0;
  size_t posts_end_ = 0;
  std::atomic<bool> posts_wait_{false};
  mutable std::mutex core_mutex_;
  std::unique_ptr<WriterCore> core_;
  bool core_is_lent_ = false;  // to a transport that does not give it back
  Waiter* waiters_ = nullptr;
  std::condition_variable workers_;
  std::condition_variable storage_;
  bool stopping_ = false;
  bool paused_ = false;
  uint32_t epochs_ended_ = 0;
  Nanos delivery_waited_ = 0;  // by the progress thread
  bool failure_told_ = false;
  bool storage_in_queue_ = false;  // the storage thread waits in io_queue_, not for storage_
  std::unique_ptr<io::IoQueue> io_queue_;
  std::vector<std::optional<IoRequest>> io_running_;  // by tag; storage thread only
  std::vector<io::Completion> completions_;           // storage thread only
  Nanos next_tick_ = 0;                               // progress thread only
  std::atomic<bool> failed_{false};                   // core_->failure(), readable without the lock
  std::vector<std::thread> threads_;
};

}  // namespace swale::imd
