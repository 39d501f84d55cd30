// The threads around WriterCore. One mutex guards the core; the heavy work (sorting and gathering, storage, the
// wire) runs outside it. A second one guards the Batcher, so that an append touches the core once per full frame.
// Order: append_mutex_ before post_mutex_ (only tried) before core_mutex_.
//
// Frames reach the transport in the order in which the Router numbered them: post_mutex_ is held from taking them to
// having posted them. Whoever makes an event that may let frames leave calls send_ready after it, with the core
// unlocked; events of the transport need not, on_progress follows them.
#include "imd/writer.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/biased_mutex.h"
#include "base/hash.h"
#include "base/log.h"
#include "imd/batcher.h"
#include "imd/committer.h"
#include "imd/partition_files.h"
#include "imd/writer_core.h"
#include "imd/writer_open.h"
#include "io/io_queue.h"
#include "run/record.h"

namespace swale::imd {
namespace {

// How often a collective wait tells the log what it is waiting for. Such a wait ends with the answer or with the
// death of a peer (net.silence_deadline_s), never by the clock alone: a rank may compute for hours.
constexpr std::chrono::seconds kPatience(60);
constexpr size_t kPostsPerTurn = 16;
constexpr Nanos kTick = seconds(1);
constexpr size_t kIoBesidesOutput = 4;  // footers and syncs

class ThreadedWriter final : public Writer, public net::ChannelEvents {
 public:
  ThreadedWriter(net::Job& job, OpenedDirectory opened, size_t budget_bytes)
      : job_(job),
        alone_(job.size() == 1),
        opened_(std::move(opened)),
        budget_(budget_bytes),
        batcher_(job.size()) {}
  ~ThreadedWriter() override { shut_down(); }

  // Joins the channel and starts the threads. No frame can come before every rank has done so: the caller agrees.
  Status start(io::Device& device, const MemoryPlan& memory, uint32_t ways);

  Status append(Bytes key, Bytes value) override;
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

 private:
  using Lock = std::unique_lock<std::mutex>;

  // A thread of the application that waits. It is woken when its own condition holds and not by every event: it would
  // only meet the progress thread at the core's mutex.
  struct Waiter {
    std::function<bool()> done;  // called with the core locked
    std::condition_variable wake;
  };

  [[gnu::noinline]] static Status refused(size_t key_bytes, size_t value_bytes);
  [[gnu::noinline]] Status append_or_wait(Bytes key, Bytes value);
  Status replace_frame(net::Rank destination);
  Status make_room(uint32_t way);
  Status wait_for_intake();
  void work(uint32_t way);
  bool at_rest() const { return paused_ && !core_->deliveries_wait(); }
  void store();
  void commit(Lock& core_lock, const EpochProtocol::Commit& commit);
  bool start_io(Lock& core_lock);
  void reap_io(Lock& core_lock);
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
  // Waits until `done`, or for kPatience. False: not done.
  bool wait_until(Lock& core_lock, const std::function<bool()>& done);
  // Waits until `done` or a failure; tells the log from time to time.
  void wait_for(Lock& core_lock, const char* what, const std::function<bool()>& done);
  void wake_waiters();  // call with the core locked
  // The first failure as it was, later ones as kAborted with that cause.
  Status failure();
  void shut_down();

  net::Job& job_;
  const bool alone_;
  OpenedDirectory opened_;
  std::optional<Committer> committer_;  // on rank 0
  MemoryBudget budget_;
  std::vector<MemoryBudget::Reservation> reservations_;
  uint32_t channel_ = 0;
  bool channel_open_ = false;

  BiasedMutex append_mutex_;
  Batcher batcher_;
  bool intake_closed_ = false;  // to direct appends
  bool epoch_ending_ = false;   // begun and not waited for; of the thread that makes the collective calls

  std::mutex post_mutex_;  // only tried
  std::atomic<bool> post_wanted_{false};
  mutable std::mutex core_mutex_;
  std::unique_ptr<WriterCore> core_;
  bool core_is_lent_ = false;  // to a transport that does not give it back
  std::vector<Waiter*> waiters_;
  std::condition_variable workers_;
  std::condition_variable storage_;
  bool stopping_ = false;
  bool paused_ = false;
  uint32_t epochs_ended_ = 0;
  bool failure_told_ = false;
  bool storage_in_queue_ = false;  // the storage thread waits in io_queue_, not for storage_
  std::unique_ptr<io::IoQueue> io_queue_;
  std::vector<std::optional<IoRequest>> io_running_;  // by tag; storage thread only
  Nanos next_tick_ = 0;                               // progress thread only
  std::atomic<bool> failed_{false};                   // core_->failure(), readable without the lock
  std::vector<std::thread> threads_;
};

Status ThreadedWriter::start(io::Device& device, const MemoryPlan& memory, uint32_t ways) {
  const auto next_epoch = static_cast<uint32_t>(opened_.manifest.epochs.size());
  if (job_.rank() == 0) {
    JobEntry entry{fmt::format("{:016x}", opened_.job_id), job_.size(), ways, "hash"};
    committer_.emplace(device, opened_.directory, opened_.manifest, std::move(entry));
  }
  channel_ = job_.open_channel(this);
  channel_open_ = true;
  WriterCoreParams params;
  params.rank = job_.rank();
  params.size = job_.size();
  params.channel = channel_;
  params.job_secret = job_.secret();
  params.job_id = opened_.job_id;
  params.first_epoch = next_epoch;
  params.ways = ways;
  params.data_end_block = opened_.files->data_end_block();
  params.index_end = opened_.files->index_end();
  params.memory = memory;
  params.indexed = opened_.manifest.schema.indexed;
  SWALE_ASSIGN_OR_RETURN(reservations_, reserve(budget_, memory, job_.size(), ways));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<WriterCore> core,
                         WriterCore::create(params, opened_.files->take_footer()));
  {
    const std::lock_guard lock(core_mutex_);
    core_ = std::move(core);
  }
  io_running_.resize(memory.output_buffers + kIoBesidesOutput);
  SWALE_ASSIGN_OR_RETURN(io_queue_, device.make_queue(io_running_.size()));
  for (uint32_t way = 0; way < ways; ++way) threads_.emplace_back([this, way] { work(way); });
  threads_.emplace_back([this] { store(); });
  return {};
}

Status ThreadedWriter::append(Bytes key, Bytes value) {
  if (key.size() - 1 >= run::kKeyBytesMax || value.size() > run::kValueBytesMax) [[unlikely]]
    return refused(key.size(), value.size());
  const BiasedMutex::Guard guard(append_mutex_);
  // A job of one rank: no frames, and no lock but this one until a memtable is full.
  if (alone_ && !intake_closed_ && !failed_.load(std::memory_order_relaxed)) [[likely]] {
    const Hash hash = hash_bytes(key);
    const Partition::Appended appended = core_->append_directly(hash, key, value);
    if (appended.row != nullptr) [[likely]] {
      batcher_.count({appended.row, key.size() + value.size()}, key.size());
      return {};
    }
  }
  return append_or_wait(key, value);
}

Status ThreadedWriter::refused(size_t key_bytes, size_t value_bytes) {
  return invalid_argument("a key of {} and a value of {} bytes: keys have 1 to {} bytes, values 0 to {}",
                          key_bytes, value_bytes, run::kKeyBytesMax, run::kValueBytesMax);
}

Status ThreadedWriter::append_or_wait(Bytes key, Bytes value) {
  if (failed_.load(std::memory_order_relaxed)) return failure();
  if (!alone_) {
    for (;;) {
      const net::Rank full = batcher_.append(key, value);
      if (full == Batcher::kAccepted) return {};
      SWALE_RETURN_IF_ERROR(replace_frame(full));
    }
  }
  if (intake_closed_) SWALE_RETURN_IF_ERROR(wait_for_intake());
  const Hash hash = hash_bytes(key);
  for (;;) {
    const Partition::Appended appended = core_->append_directly(hash, key, value);
    if (appended.row != nullptr) {
      batcher_.count({appended.row, key.size() + value.size()}, key.size());
      return {};
    }
    SWALE_RETURN_IF_ERROR(make_room(appended.way));
  }
}

Status ThreadedWriter::make_room(uint32_t way) {
  Lock core_lock(core_mutex_);
  bool made = core_->make_room(way);
  if (!made) {
    go_on();
    wait_for(core_lock, "room in a memtable", [&] { return core_->has_room(way); });
    made = !failed_ && core_->make_room(way);
  }
  announce();
  if (made) return {};
  core_lock.unlock();
  return failure();
}

Status ThreadedWriter::wait_for_intake() {
  Lock core_lock(core_mutex_);
  go_on();
  wait_for(core_lock, "a memtable for the next epoch", [&] { return core_->intake_open(); });
  intake_closed_ = !core_->intake_open();
  if (!intake_closed_) return {};
  core_lock.unlock();
  return failure();
}

Status ThreadedWriter::replace_frame(net::Rank destination) {
  Lock core_lock(core_mutex_);
  core_->submit(destination, batcher_.exchange(destination, {}));
  announce();
  if (destination != job_.rank()) send_ready(core_lock);
  if (!core_->frame_available(destination)) go_on();
  wait_for(core_lock, "a free frame", [&] { return core_->frame_available(destination); });
  if (failed_) {
    core_lock.unlock();
    return failure();
  }
  batcher_.exchange(destination, core_->take_frame(destination));
  return {};
}

Status ThreadedWriter::epoch_end(int64_t step, double time) {
  SWALE_RETURN_IF_ERROR(epoch_end_begin(step, time));
  return epoch_end_wait();
}

Status ThreadedWriter::epoch_end_begin(int64_t step, double time) {
  if (epoch_ending_) {
    return invalid_argument("{}: the end of an epoch has begun and was not waited for yet",
                            opened_.directory);
  }
  const BiasedMutex::Guard guard(append_mutex_);
  if (failed_) return failure();
  epoch_ending_ = true;
  Lock core_lock(core_mutex_);
  for (net::Rank rank = 0; rank < job_.size(); ++rank) core_->submit(rank, batcher_.exchange(rank, {}));
  ++epochs_ended_;
  core_->begin_epoch_end(step, time, batcher_.records_per_rank(), batcher_.tally());
  intake_closed_ = !core_->intake_open();
  batcher_.begin_epoch();
  announce();
  send_ready(core_lock);
  return {};
}

Status ThreadedWriter::epoch_end_wait() {
  if (!std::exchange(epoch_ending_, false)) return {};
  Lock core_lock(core_mutex_);
  go_on();
  wait_for(core_lock, "the end of the epoch", [&] { return core_->epochs_committed() == epochs_ended_; });
  if (core_->epochs_committed() == epochs_ended_) return {};
  core_lock.unlock();
  return failure();
}

void ThreadedWriter::pause() {
  const std::lock_guard lock(core_mutex_);
  paused_ = true;
}

void ThreadedWriter::resume() {
  const std::lock_guard lock(core_mutex_);
  go_on();
}

void ThreadedWriter::go_on() {
  if (std::exchange(paused_, false)) announce();
}

// The ranks part only when all have come: until then a slower one may still be sending records here.
Status ThreadedWriter::close() {
  Status result = epoch_end_wait();
  const BiasedMutex::Guard guard(append_mutex_);
  if (result.ok() && failed_) result = failure();
  if (result.ok()) {
    if (const uint64_t dropped = batcher_.tally().records; dropped != 0) {
      result = error(
          Code::kAborted, Scope::kFile,
          "{}: {} records were appended on rank {} after the last epoch end and are dropped; end the epoch "
          "before closing",
          opened_.directory, dropped, job_.rank());
    }
    Lock core_lock(core_mutex_);
    core_->begin_close();
    announce();
    send_ready(core_lock);
    wait_for(core_lock, "all ranks to close", [&] { return core_->closed(); });
  }
  shut_down();
  return result;
}

Status ThreadedWriter::failure() {
  const std::lock_guard lock(core_mutex_);
  const Status& cause = core_->failure();
  if (!std::exchange(failure_told_, true)) return cause;
  return error(Code::kAborted, cause.scope(), "{}: writing has failed before: {}", opened_.directory,
               cause.message());
}

bool ThreadedWriter::wait_until(Lock& core_lock, const std::function<bool()>& done) {
  if (done()) return true;
  Waiter waiter{done, {}};
  waiters_.push_back(&waiter);
  const bool is_done = waiter.wake.wait_for(core_lock, kPatience, done);
  std::erase(waiters_, &waiter);
  return is_done;
}

void ThreadedWriter::wait_for(Lock& core_lock, const char* what, const std::function<bool()>& done) {
  while (!wait_until(core_lock, [&] { return failed_ || done(); })) {
    log_warn("{}: rank {} is waiting for {}; it waits for {}", opened_.directory, job_.rank(), what,
             core_->waiting_for());
  }
}

void ThreadedWriter::wake_waiters() {
  for (Waiter* waiter : waiters_) {
    if (waiter->done()) waiter->wake.notify_one();
  }
}

void ThreadedWriter::announce() {
  if (!core_->failure().ok() && !failed_.exchange(true)) {
    log_error("{}: rank {}: {}", opened_.directory, job_.rank(), core_->failure().to_string());
  }
  wake_waiters();
  if (at_rest()) return;
  if (core_->has_task()) workers_.notify_all();
  if (core_->has_io()) storage_in_queue_ ? io_queue_->wake() : storage_.notify_one();
}

void ThreadedWriter::work(uint32_t way) {
  Lock core_lock(core_mutex_);
  while (!stopping_) {
    std::optional<Partition::Task> task;
    if (!at_rest()) task = core_->next_task(way);
    if (!task) {
      workers_.wait(core_lock);
      continue;
    }
    core_lock.unlock();
    task->work();
    core_lock.lock();
    core_->finish_task(*task);
    announce();
    send_ready(core_lock);
  }
}

void ThreadedWriter::store() {
  Lock core_lock(core_mutex_);
  while (!stopping_ || io_queue_->in_flight() != 0) {
    if (const std::optional<EpochProtocol::Commit> next = core_->take_commit()) {
      commit(core_lock, *next);
    } else if (!start_io(core_lock)) {
      io_queue_->in_flight() != 0 ? reap_io(core_lock) : storage_.wait(core_lock);
    }
  }
}

void ThreadedWriter::commit(Lock& core_lock, const EpochProtocol::Commit& commit) {
  core_lock.unlock();
  const Status status = committer_->commit(commit, epoch_id(opened_.job_id, commit.epoch));
  core_lock.lock();
  core_->commit_done(status);
  announce();
  send_ready(core_lock);
}

// Gives storage everything that the core has for it. False: nothing.
bool ThreadedWriter::start_io(Lock& core_lock) {
  std::vector<io::Operation> operations;
  for (size_t tag = 0; tag < io_running_.size() && !at_rest(); ++tag) {
    if (io_running_[tag]) continue;
    io_running_[tag] = core_->next_io();
    if (!io_running_[tag]) break;
    operations.push_back(opened_.files->operation(*io_running_[tag], tag));
  }
  if (operations.empty()) return false;
  core_lock.unlock();
  io_queue_->submit(operations);
  core_lock.lock();
  return true;
}

void ThreadedWriter::reap_io(Lock& core_lock) {
  storage_in_queue_ = true;
  core_lock.unlock();
  std::vector<io::Completion> completions;
  io_queue_->wait(1, &completions);
  core_lock.lock();
  storage_in_queue_ = false;
  for (const io::Completion& completion : completions) {
    core_->finish_io(*std::exchange(io_running_[completion.tag], std::nullopt), completion.status);
  }
  announce();
  send_ready(core_lock);
}

void ThreadedWriter::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  const std::lock_guard lock(core_mutex_);
  if (!core_) return;
  core_->on_frame(from, header, payload);
  announce();
}

void ThreadedWriter::on_sent(uint64_t cookie) {
  const std::lock_guard lock(core_mutex_);
  core_->on_sent(cookie);
  wake_waiters();
}

void ThreadedWriter::on_down(net::Rank peer, const Status& why) {
  const std::lock_guard lock(core_mutex_);
  if (!core_) return;
  core_->on_down(peer, why);
  announce();
}

Nanos ThreadedWriter::on_progress(Nanos now) {
  if (now >= next_tick_) {
    next_tick_ = now + kTick;
    const std::lock_guard lock(core_mutex_);
    if (core_) core_->tick();
  }
  post_ready();
  return next_tick_;
}

void ThreadedWriter::send_ready() {
  if (alone_) return;
  if (job_.posts_directly()) {
    post_ready();
  } else {
    job_.wake();
  }
}

// Whoever finds another thread posting leaves it to that thread, which looks again after it has let go: nobody waits.
void ThreadedWriter::post_ready() {
  post_wanted_.store(true);
  while (post_wanted_.load()) {
    const std::unique_lock order(post_mutex_, std::try_to_lock);
    if (!order.owns_lock()) return;
    post_wanted_.store(false);
    while (post_some()) {
    }
  }
}

// Under post_mutex_. False: nothing more may leave now.
bool ThreadedWriter::post_some() {
  std::array<net::Post, kPostsPerTurn> posts;
  size_t count = 0;
  {
    const std::lock_guard lock(core_mutex_);
    if (!core_) return false;
    for (std::optional<net::Post> post; count < posts.size() && (post = core_->next_post()); ++count) {
      posts[count] = *post;
    }
  }
  if (count == 0) return false;
  std::array<bool, kPostsPerTurn> free{};
  for (size_t i = 0; i < count; ++i) free[i] = job_.post(channel_, posts[i]);
  const std::lock_guard lock(core_mutex_);
  for (size_t i = 0; i < count; ++i) {
    if (free[i]) core_->on_sent(posts[i].cookie);
  }
  wake_waiters();
  return count == posts.size();
}

void ThreadedWriter::shut_down() {
  if (std::exchange(channel_open_, false)) {
    send_ready();
    {
      // The transport gives back every frame, also those of dead peers, unless it is stuck itself.
      Lock lock(core_mutex_);
      const auto all_said = [this] { return !core_ || core_->all_said(); };
      if (!wait_until(lock, all_said) && core_->frames_lent() != 0) {
        log_error("{}: the transport still holds {} frames; their memory is left to it", opened_.directory,
                  core_->frames_lent());
        core_is_lent_ = true;
      }
    }
    job_.close_channel(channel_);
  }
  {
    const std::lock_guard lock(core_mutex_);
    stopping_ = true;
    workers_.notify_all();
    storage_in_queue_ ? io_queue_->wake() : storage_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (core_is_lent_) static_cast<void>(core_.release());
  if (opened_.files) {
    if (const Status trimmed = opened_.files->trim(); !trimmed.ok()) log_warn("{}", trimmed.to_string());
    io_queue_.reset();
    opened_.files.reset();
  }
  opened_.lock.reset();
}

MetricsSnapshot ThreadedWriter::metrics() const {
  const std::lock_guard lock(core_mutex_);
  MetricsSnapshot snapshot = core_ ? core_->metrics() : MetricsSnapshot();
  for (const MemoryBudget::Row& row : budget_.report())
    snapshot.push_back({"memory: " + row.name, "bytes", row.bytes});
  return snapshot;
}

}  // namespace

Result<std::unique_ptr<Writer>> Writer::open(net::Job& job, io::Device& device, const std::string& directory,
                                             Create create, const WriterOptions& options) {
  const size_t budget = options.memory_bytes != 0 ? options.memory_bytes : default_budget_bytes(job.size());
  MemoryWish wish{budget, job.size(), options.ways, options.frame_bytes, options.window, 0};
  SWALE_RETURN_IF_ERROR(agree(job, plan_memory(wish).status()));
  SWALE_ASSIGN_OR_RETURN(OpenedDirectory opened,
                         open_directory(job, device, directory, create, options));
  wish.indexed_fields = static_cast<uint32_t>(opened.manifest.schema.indexed.size());
  const Result<MemoryPlan> plan = plan_memory(wish);
  SWALE_RETURN_IF_ERROR(agree(job, plan.status()));
  auto writer = std::make_unique<ThreadedWriter>(job, std::move(opened), budget);
  SWALE_RETURN_IF_ERROR(agree(job, writer->start(device, *plan, options.ways)));
  return std::unique_ptr<Writer>(std::move(writer));
}

}  // namespace swale::imd
