// Writer: the writing end of a massive directory on one rank: the threads around WriterCore.
//
// append → Batcher → [Router → wire → Router] → delivery queue → Partition (memtables → runs → logs) → epoch
// end. (In the indirect and the lossy format it is less that travels: docs/design/lossy.md.) The state
// machines are passive (writer_core.h); this class gives them threads: the application's own, the job's
// progress thread, and the workers and the storage thread that all open directories of the process share.
// writer.cc has what the application calls, writer_threads.cc what other threads do.
//
// The driver's mutex guards the core; the heavy work (sorting and gathering, storage, the wire) runs outside
// it. The intake's mutex guards the Appender, so that an append touches the core once per full frame.
// Order: values_mutex_ before the intake's mutex before the driver's before those of crew and storage thread.
//
// Threads: append by any number of threads; the others are collective and made by one thread at a time.
// Errors: the first failure is kept, on all ranks, and no epoch is committed after it: every call answers
// kAborted with that cause. kInvalidArgument (scope operation) of append and epoch_end_begin changes nothing
// and is no such failure; whatever else an append answers is. What throws, for want of memory or in a
// partitioner, is a failure of that call or, on a thread of Swale's own, of the writer.
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
#include "base/crew.h"
#include "base/memory_budget.h"
#include "base/metrics.h"
#include "base/status.h"
#include "imd/write/appender.h"
#include "imd/write/committer.h"
#include "imd/write/memory_plan.h"
#include "imd/write/writer_core.h"
#include "imd/write/writer_open.h"
#include "imd/write/writer_options.h"
#include "io/device.h"
#include "io/storage_thread.h"
#include "net/job/job.h"
#include "net/talk/conversation_driver.h"

namespace swale::imd {

class Writer final : private net::ConversationDriver {
 public:
  using Create = imd::Create;

  // Without close it gives up: the other ranks are told, and wait for this one no more.
  ~Writer() override;

  // Collective: all ranks return the same status code. A rank that throws gives the job up
  // (net::Job::give_up): the others are told, and the job opens nothing more.
  static Result<std::unique_ptr<Writer>> open(net::Job& job, io::Device& device, const std::string& directory,
                                              Create create, const WriterOptions& options);

  Status append(Bytes key, Bytes value);
  // What takes most records of a job of one rank, in short code. False: append must be asked.
  [[gnu::always_inline]] bool append_quickly(Bytes key, Bytes value) {
    return appender_.intake().append_quickly(key, value);
  }
  // Appends records that are in the order of their keys' hashes, as a run of their own. Waits for the one
  // before to be written. Only in a job of one rank, with one way and nothing but the base layout: neither
  // compression nor schema nor filters. Not beside an epoch's end.
  Status append_run(std::unique_ptr<run::OrderedRecords> records);
  Status epoch_end(int64_t step, double time);  // collective; begin and wait in one
  // Begins to end the epoch. What is appended from here on belongs to the next one, and may be appended at
  // once: sorting, writing and the commit go on meanwhile. kInvalidArgument while an earlier one has not been
  // waited for. Collective.
  Status epoch_end_begin(int64_t step, double time);
  // Waits until the epoch that was begun to end is committed; OK at once if there is none. Collective.
  Status epoch_end_wait();

  // Gives the directory, or the open epoch, its attributes (imd/format/attributes.h); they are committed with
  // the open epoch. All ranks must give the same document: kInvalidArgument, and nothing is changed, if they
  // do not, or if it is none. A later call for the same epoch replaces an earlier one's. Collective: a call
  // of the job.
  enum class Described { kDirectory, kEpoch };
  // `wrong`: what the caller found to be wrong with its arguments.
  Status set_attributes(Described what, Bytes json, const Status& wrong = {});

  // No sorting and no writing on this rank until resume, so that the application has its cores. Records from
  // other ranks are received all the time. What needs room goes on by itself: an append that finds the
  // buffers full, records of other ranks that do, and epoch_end_wait. Not collective.
  void pause();
  void resume();

  Status close();  // collective
  const std::string& directory() const { return opened_.directory; }
  const run::Schema& schema() const { return opened_.manifest.schema; }
  MetricsSnapshot metrics() const;

 private:
  // One way's turns on the crew.
  class Worker final : public Crew::Member {
   public:
    Worker(Writer& writer, uint32_t way) : writer_(writer), way_(way) {}
    bool turn() noexcept override { return writer_.work(way_); }

   private:
    Writer& writer_;
    const uint32_t way_;
  };

  // What the storage thread asks and tells.
  class Storage final : public io::StorageClient {
   public:
    explicit Storage(Writer& writer) : writer_(writer) {}
    bool start(std::vector<io::Operation>* operations) override { return writer_.store(operations); }
    void completed(const io::Completion& completion) override { writer_.stored(completion); }
    void failed(const Status& why) noexcept override;

   private:
    Writer& writer_;
  };

  static Result<std::unique_ptr<Writer>> open_collectively(net::Job& job, io::Device& device,
                                                           const std::string& directory, Create create,
                                                           const WriterOptions& options);
  Writer(net::Job& job, OpenedDirectory opened, size_t budget_bytes, const MemoryPlan& memory,
         const Partitioner& partitioner, Ablation::Delivery delivery)
      : ConversationDriver(job),
        appender_(opened.appender_params(PartitionNumber(job.rank()), job.size(), partitioner, memory)),
        delivery_(delivery),
        by_hash_(partitioner.by_hash()),
        opened_(std::move(opened)),
        budget_(budget_bytes) {}
  // Joins the channel, the crew and the storage thread of `device`, on which the directory is. No frame can
  // come before every rank has done so: the caller agrees.
  Status start(io::Device& device, const MemoryPlan& memory, uint32_t ways);
  Status finish_opening();  // collective, once all have started

  // ConversationDriver
  void on_failed(const Status& why) override REQUIRES(mutex_);
  void on_event() override REQUIRES(mutex_);
  void on_frame_taken() override REQUIRES(mutex_);

  bool append_to_frame(Bytes key, Bytes value);
  Status append_any(Bytes key, Bytes value);
  Status append_failed(const Status& why);
  Status append_large(Bytes key, Bytes value);
  Status give_run(std::unique_ptr<run::OrderedRecords> records);
  // `record` as Appender::append takes it, whose key is `key`.
  template <class... Record>
  Status append_record(Bytes key, const Record&... record);
  Status provide(Appender::Need need);
  Status finish_keys();
  Status begin_end(int64_t step, double time);
  Status wait_for_end();
  Status agree_on_attributes(Described what, Bytes json, const Status& mine);
  Status part();
  bool work(uint32_t way) noexcept;
  bool store(std::vector<io::Operation>* operations);
  void stored(const io::Completion& completion);
  void commit(const EpochProtocol::Commit& commit) REQUIRES(mutex_);
  // Whether the call that answered this has changed nothing: all else fails the writer.
  static bool harmless(const Status& status) {
    return status.ok() || (status.code() == Code::kInvalidArgument && status.scope() == Scope::kOperation);
  }
  void go_on() REQUIRES(mutex_);  // no longer paused
  // Waits until `done` or a failure; tells the log from time to time. Ranks that live and do not come are a
  // failure after collective_deadline_.
  void wait_for(const char* what, const std::function<bool()>& done) REQUIRES(mutex_);
  // As wait_for, for an append, whose waits are counted. The pipeline goes on if it was paused.
  void wait_in_append(const char* what, const std::function<bool()>& done) REQUIRES(mutex_);
  // The first failure as it was, later ones as kAborted with that cause.
  Status failure();
  void shut_down() noexcept;

  Appender appender_;
  const Ablation::Delivery delivery_;
  const bool by_hash_;
  OpenedDirectory opened_;
  std::optional<Committer> committer_;  // on rank 0
  MemoryBudget::Reservation share_;
  MemoryBudget budget_;
  std::vector<MemoryBudget::Reservation> reservations_;
  bool closed_ = false;  // by close
  Nanos collective_deadline_ = kForever;

  Mutex values_mutex_;     // a large value and its record, or the end of an epoch
  Attributes attributes_;  // of the open epoch; of the thread that makes the collective calls
  Attributes closing_attributes_ GUARDED_BY(mutex_);
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
