// ThreadedWriter: the Writer with its threads around WriterCore: the application's own, the job's progress thread
// (net::ConversationDriver), and the workers and the storage thread that all open directories of the process share
// (base/crew.h, io/storage_thread.h). writer.cc has what the application calls, writer_threads.cc the others.
//
// The driver's mutex guards the core; the heavy work (sorting and gathering, storage, the wire) runs outside it. The
// intake's mutex guards the Appender, so that an append touches the core once per full frame.
// Order: values_mutex_ before the intake's mutex before the driver's before those of crew and storage thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/crew.h"
#include "imd/write/committer.h"
#include "imd/write/partition_files.h"
#include "imd/write/writer.h"
#include "imd/write/writer_core.h"
#include "imd/write/writer_open.h"
#include "io/storage_thread.h"
#include "net/conversation_driver.h"

namespace swale::imd {

class ThreadedWriter final : public Writer, private net::ConversationDriver {
 public:
  ThreadedWriter(net::Job& job, OpenedDirectory opened, size_t budget_bytes, const Partitioner& partitioner,
                 Ablation::Delivery delivery)
      : Writer(opened.appender_params(job.size(), partitioner)),
        ConversationDriver(job),
        delivery_(delivery),
        by_hash_(partitioner.by_hash()),
        opened_(std::move(opened)),
        budget_(budget_bytes) {}
  // Without close it gives up: the other ranks are told, and wait for this one no more.
  ~ThreadedWriter() override;

  void set_collective_deadline(Nanos deadline) { collective_deadline_ = deadline; }  // before start

  // What this directory has of the process's memory; given back when the writer goes.
  void hold_share(MemoryBudget::Reservation share) { share_ = std::move(share); }

  // Joins the channel, the crew and the storage thread of `device`, on which the directory is. No frame can come before
  // every rank has done so: the caller agrees.
  Status start(io::Device& device, const MemoryPlan& memory, uint32_t ways);
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

 private:
  // One way's turns on the crew.
  class Worker final : public Crew::Member {
   public:
    Worker(ThreadedWriter& writer, uint32_t way) : writer_(writer), way_(way) {}
    bool turn() noexcept override { return writer_.work(way_); }

   private:
    ThreadedWriter& writer_;
    const uint32_t way_;
  };

  // What the storage thread asks and tells.
  class Storage final : public io::StorageClient {
   public:
    explicit Storage(ThreadedWriter& writer) : writer_(writer) {}
    bool start(std::vector<io::Operation>* operations) override { return writer_.store(operations); }
    void completed(const io::Completion& completion) override { writer_.stored(completion); }
    void failed(const Status& why) noexcept override;

   private:
    ThreadedWriter& writer_;
  };

  // ConversationDriver
  void on_failed(const Status& why) override;
  void on_event() override;
  void on_frame_taken(Lock& core_lock) override;

  Status append(Bytes key, Bytes value) override;
  Status append_any(Bytes key, Bytes value);
  Status append_failed(const Status& why);
  Status append_large(Bytes key, Bytes value);
  // `record` as Appender::append takes it, whose key is `key`.
  template <class... Record>
  Status append_record(Bytes key, const Record&... record);
  Status provide(Appender::Need need);
  Status begin_end(int64_t step, double time);
  Status wait_for_end();
  Status part();
  bool work(uint32_t way) noexcept;
  bool store(std::vector<io::Operation>* operations);
  void stored(const io::Completion& completion);
  void commit(Lock& core_lock, const EpochProtocol::Commit& commit);
  // Whether the call that answered this has changed nothing: all else fails the writer.
  static bool harmless(const Status& status) {
    return status.ok() || (status.code() == Code::kInvalidArgument && status.scope() == Scope::kOperation);
  }
  void go_on();  // no longer paused. Call with the core locked.
  // Waits until `done` or a failure; tells the log from time to time. Ranks that live and do not come are a failure after
  // collective_deadline_.
  void wait_for(Lock& core_lock, const char* what, const std::function<bool()>& done);
  // As wait_for, for an append, whose waits are counted. The pipeline goes on if it was paused.
  void wait_in_append(Lock& core_lock, const char* what, const std::function<bool()>& done);
  // The first failure as it was, later ones as kAborted with that cause.
  Status failure();
  void shut_down() noexcept;

  const Ablation::Delivery delivery_;
  const bool by_hash_;
  OpenedDirectory opened_;
  std::optional<Committer> committer_;  // on rank 0
  MemoryBudget::Reservation share_;
  MemoryBudget budget_;
  std::vector<MemoryBudget::Reservation> reservations_;
  bool closed_ = false;  // by close
  Nanos collective_deadline_ = kForever;

  std::mutex values_mutex_;    // a large value and its record, or the end of an epoch
  bool epoch_ending_ = false;  // begun and not waited for; of the thread that makes the collective calls

  std::unique_ptr<WriterCore> core_;
  Nanos delivery_waited_ = 0;  // by the progress thread
  bool failure_told_ = false;
  bool quiet_ = false;  // given up by the destructor: whoever destroys an open writer knows why
  std::shared_ptr<Crew> crew_;
  std::deque<Worker> workers_;  // by way; a member does not move
  std::shared_ptr<io::StorageThread> storage_thread_;
  Storage storage_{*this};
  std::vector<std::optional<IoRequest>> io_running_;  // by tag; storage thread only
  std::vector<size_t> io_started_;                    // tags; storage thread only
};

}  // namespace swale::imd
