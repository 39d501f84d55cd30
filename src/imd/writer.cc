#include "imd/writer.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "imd/threaded_writer.h"
#include "run/record.h"

namespace swale::imd {
namespace {

// How often a collective wait tells the log what it is waiting for. Such a wait ends with the answer or with the
// death of a peer (net.silence_deadline_s), never by the clock alone: a rank may compute for hours.
constexpr std::chrono::seconds kPatience(60);
constexpr size_t kIoBesidesOutput = 5;  // footers and syncs

Status agree_on_partitioner(net::Job& job, const std::string& name) {
  if (job.size() == 1) return {};
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, job.allgather(name));
  for (size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    return invalid_argument(
        "rank 0 opened with dir.partitioner={}, rank {} with {}: all ranks must give the same", names[0],
        rank, names[rank]);
  }
  return {};
}

}  // namespace

Status ThreadedWriter::start(io::Device& device, const MemoryPlan& memory, uint32_t ways) {
  const auto next_epoch = static_cast<uint32_t>(opened_.manifest.epochs.size());
  if (job_.rank() == 0) {
    JobEntry entry{fmt::format("{:016x}", opened_.job_id), job_.size(), ways, partitioner_.name};
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
  params.by_hash = partitioner_.by_hash();
  params.indexed = opened_.manifest.schema.indexed;
  params.layout = opened_.manifest.layout;
  SWALE_ASSIGN_OR_RETURN(reservations_, reserve(budget_, memory, job_.size(), ways));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<WriterCore> core,
                         WriterCore::create(params, opened_.files->take_footer()));
  {
    const std::lock_guard lock(core_mutex_);
    core_ = std::move(core);
  }
  begin_values(0);
  io_running_.resize(memory.output_buffers + kIoBesidesOutput);
  SWALE_ASSIGN_OR_RETURN(io_queue_, device.make_queue(io_running_.size()));
  for (uint32_t way = 0; way < ways; ++way) threads_.emplace_back([this, way] { work(way); });
  threads_.emplace_back([this] { store(); });
  if (!partitioner_.by_hash()) intake_.forbid_quickly();
  if (alone_) intake_.open(&core_->partition());
  return {};
}

void ThreadedWriter::begin_values(uint32_t epochs_ended) {
  const auto epoch = static_cast<uint32_t>(opened_.manifest.epochs.size()) + epochs_ended;
  opened_.files->values().begin_epoch(epoch, epoch_id(opened_.job_id, epoch));
}

Status ThreadedWriter::append(Bytes key, Bytes value) {
  if (key.size() - 1 >= run::kKeyBytesMax || value.size() > run::kValueBytesMax)
    return append_large(key, value);
  const BiasedMutex::Guard guard(intake_.mutex);
  if (failed_.load(std::memory_order_relaxed)) return failure();
  if (!alone_) return append_to_frame(key, key, value);
  return partitioner_.has_home(key, 1) ? append_to_memtable(hash_bytes(key), key, value) : nowhere(key);
}

// The value goes to this rank's value log, a record that points to it takes the usual way. The lock is held until both
// are done: they are of one epoch. What is waited for in it does not depend on this rank's application.
Status ThreadedWriter::append_large(Bytes key, Bytes value) {
  if (key.size() - 1 >= run::kKeyBytesMax || value.size() > run::kLargeValueBytesMax) {
    return invalid_argument("a key of {} and a value of {} bytes: keys have 1 to {} bytes, values 0 to {}",
                            key.size(), value.size(), run::kKeyBytesMax, run::kLargeValueBytesMax);
  }
  const std::lock_guard values_lock(values_mutex_);
  if (failed_) return failure();
  // Before the value is written: a key without a home changes nothing.
  if (!partitioner_.has_home(key, static_cast<uint32_t>(job_.size()))) return nowhere(key);
  const Hash hash = hash_bytes(key);
  const Result<run::ValuePointer> pointer = opened_.files->values().append(hash, value);
  if (!pointer.ok()) {
    Lock core_lock(core_mutex_);
    core_->fail(pointer.status());
    announce();
    send_ready(core_lock);
    core_lock.unlock();
    return failure();
  }
  const size_t prefix_bytes = opened_.manifest.schema.value_bytes();
  const std::string encoded = run::encode_large_record(
      key, run::encode_large_value({.prefix = value.substr(0, prefix_bytes), .pointer = *pointer}));
  run::RecordView record;
  if (run::parse_record(encoded, &record) != run::RecordParse::kOk)
    return error(Code::kInternal, Scope::kOperation, "a record of {} bytes was encoded wrongly",
                 encoded.size());
  const BiasedMutex::Guard guard(intake_.mutex);
  if (failed_) return failure();
  return alone_ ? append_to_memtable(hash, record) : append_to_frame(key, record);
}

template <class... Record>
Status ThreadedWriter::append_to_memtable(Hash hash, const Record&... record) {
  if (intake_.closed()) SWALE_RETURN_IF_ERROR(wait_for_intake());
  for (;;) {
    const Partition::Appended appended = intake_.append(hash, record...);
    if (appended.row != nullptr) return {};
    SWALE_RETURN_IF_ERROR(make_room(appended.way));
  }
}

Status ThreadedWriter::nowhere(Bytes key) const {
  const auto ranks = static_cast<uint32_t>(job_.size());
  return partitioner_.out_of_range(partitioner_.ask(key, ranks), ranks);
}

template <class... Record>
Status ThreadedWriter::append_to_frame(Bytes key, const Record&... record) {
  for (;;) {
    const net::Rank full = batcher_.append(record...);
    if (full == Batcher::kAccepted) return {};
    if (full == Batcher::kNowhere) return nowhere(key);
    SWALE_RETURN_IF_ERROR(replace_frame(full));
  }
}

Status ThreadedWriter::make_room(uint32_t way) {
  Lock core_lock(core_mutex_);
  bool made = core_->make_room(way);
  if (!made) {
    wait_in_append(core_lock, "room in a memtable", [&] { return core_->has_room(way); });
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
  if (!core_->intake_open())
    wait_in_append(core_lock, "a memtable for the next epoch", [&] { return core_->intake_open(); });
  if (core_->intake_open()) {
    intake_.open(&core_->partition());
    return {};
  }
  core_lock.unlock();
  return failure();
}

Status ThreadedWriter::replace_frame(net::Rank destination) {
  Lock core_lock(core_mutex_);
  core_->submit(destination, batcher_.exchange(destination, {}));
  announce();
  if (destination != job_.rank()) send_ready(core_lock);
  if (!core_->frame_available(destination))
    wait_in_append(core_lock, "a free frame", [&] { return core_->frame_available(destination); });
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
  const std::lock_guard values_lock(values_mutex_);
  const BiasedMutex::Guard guard(intake_.mutex);
  if (failed_) return failure();
  epoch_ending_ = true;
  const WrittenValues values = opened_.files->values().written();
  Lock core_lock(core_mutex_);
  for (net::Rank rank = 0; rank < job_.size(); ++rank) core_->submit(rank, batcher_.exchange(rank, {}));
  ++epochs_ended_;
  batcher_.count(intake_.take_tally());
  core_->begin_epoch_end(step, time, batcher_.records_per_rank(), batcher_.tally(), values);
  begin_values(epochs_ended_);
  if (!core_->intake_open()) intake_.close();
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
  const bool committed = core_->epochs_committed() == epochs_ended_;
  core_lock.unlock();
  if (!committed) return failure();
  if (alone_) {
    const BiasedMutex::Guard guard(intake_.mutex);
    core_lock.lock();
    core_->start_small();
  }
  return {};
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
  const BiasedMutex::Guard guard(intake_.mutex);
  if (result.ok() && failed_) result = failure();
  if (result.ok()) {
    if (const uint64_t dropped = batcher_.tally().records + intake_.tally().records; dropped != 0) {
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

void ThreadedWriter::wait_in_append(Lock& core_lock, const char* what, const std::function<bool()>& done) {
  go_on();
  const Nanos start = system_clock().now();
  wait_for(core_lock, what, done);
  core_->count_append_wait(system_clock().now() - start);
}

void ThreadedWriter::wake_waiters() {
  for (Waiter* waiter : waiters_) {
    if (waiter->done()) waiter->wake.notify_one();
  }
}

void ThreadedWriter::announce() {
  if (!core_->failure().ok() && !failed_.exchange(true)) {
    intake_.shut();
    log_error("{}: rank {}: {}", opened_.directory, job_.rank(), core_->failure().to_string());
  }
  wake_waiters();
  if (at_rest()) return;
  if (core_->has_task()) workers_.notify_all();
  if (core_->has_io()) storage_in_queue_ ? io_queue_->wake() : storage_.notify_one();
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
  if (committer_) committer_->finish();
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
  snapshot.push_back({"progress_waited", "ns", static_cast<uint64_t>(delivery_waited_)});
  for (const MemoryBudget::Row& row : budget_.report())
    snapshot.push_back({"memory: " + row.name, "bytes", row.bytes});
  return snapshot;
}

Result<std::unique_ptr<Writer>> Writer::open(net::Job& job, io::Device& device, const std::string& directory,
                                             Create create, const WriterOptions& options) {
  const size_t budget = options.memory_bytes != 0 ? options.memory_bytes : default_budget_bytes(job.size());
  MemoryWish wish{budget, job.size(), options.ways, options.frame_bytes, options.window, 0, {}};
  SWALE_RETURN_IF_ERROR(agree(job, plan_memory(wish).status()));
  SWALE_RETURN_IF_ERROR(agree(job, options.partitioner.check()));
  SWALE_RETURN_IF_ERROR(agree_on_partitioner(job, options.partitioner.name));
  SWALE_ASSIGN_OR_RETURN(OpenedDirectory opened, open_directory(job, device, directory, create, options));
  wish.indexed_fields = static_cast<uint32_t>(opened.manifest.schema.indexed.size());
  wish.layout = opened.manifest.layout;
  Result<MemoryPlan> plan = plan_memory(wish);
  SWALE_RETURN_IF_ERROR(agree(job, plan.status()));
  if (const uint32_t most = options.ablation.output_buffers_max; most != 0) {
    plan->output_buffers = std::min(plan->output_buffers, most);
  }
  auto writer = std::make_unique<ThreadedWriter>(job, std::move(opened), budget, options.partitioner,
                                                 options.ablation.delivery);
  SWALE_RETURN_IF_ERROR(agree(job, writer->start(device, *plan, options.ways)));
  SWALE_RETURN_IF_ERROR(writer->finish_opening(device));
  return std::unique_ptr<Writer>(std::move(writer));
}

}  // namespace swale::imd
