#include "imd/write/writer.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/contain.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/patience.h"
#include "net/job/agree.h"
#include "net/job/memory_share.h"
#include "net/job/opening.h"
#include "run/record.h"

namespace swale::imd {
namespace {

// How often a collective wait tells the log what it is waiting for. Such a wait ends with the answer or with
// the death of a peer (net.silence_deadline_s). It ends by the clock only if imd.collective_deadline_s says
// so: a rank may compute for hours.
constexpr Nanos kPatience = seconds(60);
constexpr size_t kIoBesidesOutput = 5;  // footers and syncs

}  // namespace

Status Writer::start(io::Device& device, const MemoryPlan& memory, uint32_t ways) {
  SWALE_RETURN_IF_ERROR(join(memory.hops
                                 ? net::Conversation::kRoutedChannels
                                 : 1));  // first: what fails below must not change the channels' numbers
  SWALE_RETURN_IF_ERROR(opened_.make_source_home(job_.size(), memory));
  WriterCoreParams params = opened_.core_params(conversation_params(), memory, ways);
  params.partition.by_hash = by_hash_;
  params.heard_call = [this](net::Rank from, net::CallKind kind, EpochNumber epoch,
                             const net::CallStamp& stamp) {
    job_.heard_call(from, channel(), kind, epoch, stamp);
  };
  params.reserved_bytes = budget_.limit();
  params.refused_frames = [this, before = job_.refused_frames()] { return job_.refused_frames() - before; };
  SWALE_ASSIGN_OR_RETURN(reservations_, reserve(budget_, memory));
  SWALE_ASSIGN_OR_RETURN(core_, WriterCore::create(params));
  io_running_.resize(memory.output_buffers + kIoBesidesOutput);
  io_started_.reserve(io_running_.size());
  crew_ = Crew::of_this_process();
  storage_thread_ = io::StorageThread::of(device);
  for (uint32_t way = 0; way < ways; ++way) {
    SWALE_RETURN_IF_ERROR(crew_->join(&workers_.emplace_back(*this, way), ways));
  }
  SWALE_RETURN_IF_ERROR(storage_thread_->add(&storage_));
  serve(core_.get());
  if (appender_.direct()) appender_.intake().open(&core_->partition());
  return {};
}

Status Writer::finish_opening() {
  SWALE_RETURN_IF_ERROR(imd::finish_opening(net::ranks_of(job_), &opened_));
  if (job_.rank() == 0) {
    committer_.emplace(opened_.committer(system_clock()));
  }
  return {};
}

Status Writer::append(Bytes key, Bytes value) {
  Status status;
  try {
    if (append_to_frame(key, value)) [[likely]]
      return status;
    status = append_any(key, value);
  } catch (...) {
    status = status_of_exception();
  }
  return harmless(status) ? status : append_failed(status);
}

// What most appends of a job of several ranks are: no Status is made, moved and looked at. False: nothing was
// done.
inline bool Writer::append_to_frame(Bytes key, Bytes value) {
  if (appender_.direct() || appender_.goes_elsewhere(key, value)) return false;
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  return !failed() && appender_.append_to_frame(key, value);
}

// A record that the application was told is not there must not be committed in part, nor its epoch without
// it.
Status Writer::append_failed(const Status& why) {
  if (failed()) return why;
  MutexLock core_lock(mutex_);
  fail_now(why);
  core_lock.unlock();
  return failure();
}

inline Status Writer::append_any(Bytes key, Bytes value) {
  if (appender_.goes_elsewhere(key, value)) return append_large(key, value);
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  if (failed()) return failure();
  return append_record(key, key, value);
}

// The lock is held until the value and its record are appended: they are of one epoch. What is waited for in
// it does not depend on this rank's application.
Status Writer::append_large(Bytes key, Bytes value) {
  const MutexLock values_lock(values_mutex_);
  if (failed()) return failure();
  SWALE_ASSIGN_OR_RETURN(const run::RecordView record, appender_.write_value(key, value));
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  if (failed()) return failure();
  Status status = append_record(key, record);
  if (status.ok() || !harmless(status)) return status;
  // The value is written: a record without a home is no longer harmless.
  return error(Code::kInternal, Scope::kFatal, "the partitioner answered twice for one key, differently: {}",
               status.message());
}

template <class... Record>
Status Writer::append_record(Bytes key, const Record&... record) {
  for (;;) {
    const Appender::Need need = appender_.append(record...);
    if (need.what == Appender::Need::What::kNothing) return {};
    if (need.what == Appender::Need::What::kHome) return appender_.nowhere(key);
    SWALE_RETURN_IF_ERROR(provide(need));
  }
}

Status Writer::append_run(std::unique_ptr<run::OrderedRecords> records) {
  const Status status = contain([&] { return give_run(std::move(records)); });
  return harmless(status) ? status : append_failed(status);
}

Status Writer::give_run(std::unique_ptr<run::OrderedRecords> records) {
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  if (failed()) return failure();
  MutexLock core_lock(mutex_);
  const auto has_room = [&] { return core_->partition().room_for_run(); };
  if (!has_room()) wait_in_append("the run before to be written", has_room);
  if (!failed()) {
    appender_.intake().append_run(std::move(records));
    announce();
    return {};
  }
  core_lock.unlock();
  return failure();
}

Status Writer::provide(Appender::Need need) {
  MutexLock core_lock(mutex_);
  bool provided = appender_.provide(core_.get(), need);
  const bool to_itself = need.which == job_.rank() && core_->conversation().route() == nullptr;
  const bool leaves = need.what == Appender::Need::What::kFrame && !to_itself;
  leaves ? after_change() : announce();
  if (!provided) {
    wait_in_append(need.text(), [&] { return appender_.can_provide(*core_, need); });
    provided = !failed() && appender_.provide(core_.get(), need);
    announce();
  }
  if (provided && !failed()) return {};
  core_lock.unlock();
  return failure();
}

Status Writer::finish_keys() {
  for (;;) {
    const Appender::Need need = appender_.finish_keys();
    if (need.what == Appender::Need::What::kNothing) return {};
    SWALE_RETURN_IF_ERROR(provide(need));
  }
}

Status Writer::epoch_end(int64_t step, double time) {
  SWALE_RETURN_IF_ERROR(epoch_end_begin(step, time));
  return epoch_end_wait();
}

Status Writer::epoch_end_begin(int64_t step, double time) {
  const Status status = contain([&] { return begin_end(step, time); });
  return harmless(status) ? status : append_failed(status);
}

Status Writer::begin_end(int64_t step, double time) {
  if (epoch_ending_) {
    return invalid_argument("{}: the end of an epoch has begun and was not waited for yet",
                            opened_.directory);
  }
  if (opened_.last_step && step <= *opened_.last_step && !failed()) {
    return invalid_argument(
        "{}: the epoch that ends has step {}, and the last epoch has step {}: steps must increase. "
        "To go back to a checkpoint, open the directory with imd.resume_after=STEP; "
        "to write steps again beside the old ones, with imd.steps=any",
        opened_.directory, step, *opened_.last_step);
  }
  const MutexLock values_lock(values_mutex_);
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  if (failed()) return failure();
  SWALE_RETURN_IF_ERROR(finish_keys());
  net::CallStamp call;
  const EpochNumber epoch = opened_.first_epoch + appender_.epochs_ended();
  SWALE_RETURN_IF_ERROR(
      job_.begin_call(channel(), net::CallKind::kEndEpoch, epoch, opened_.directory, &call));
  SWALE_RETURN_IF_ERROR(appender_.finish_values());
  epoch_ending_ = true;
  if (opened_.last_step) opened_.last_step = step;
  MutexLock core_lock(mutex_);
  closing_attributes_ = std::exchange(attributes_, {});
  appender_.end_epoch(core_.get(), step, time, call);
  after_change();
  return {};
}

Status Writer::epoch_end_wait() {
  if (!std::exchange(epoch_ending_, false)) return {};
  const Status status = contain([&] { return wait_for_end(); });
  return status.ok() ? status : append_failed(status);
}

Status Writer::wait_for_end() {
  MutexLock core_lock(mutex_);
  go_on();
  const auto over = [&] { return core_->epochs_committed() == appender_.epochs_ended(); };
  wait_for("the end of the epoch", over);
  const bool committed = over();
  core_lock.unlock();
  if (!committed) return failure();
  if (appender_.direct()) {
    const BiasedMutex::Guard guard(appender_.intake().mutex);
    core_lock.lock();
    core_->start_small();
  }
  return {};
}

Status Writer::set_attributes(Described what, Bytes json, const Status& wrong) {
  std::optional<std::string> document;
  const Status mine = contain([&]() -> Status {
    if (failed()) return failure();
    SWALE_RETURN_IF_ERROR(wrong);
    SWALE_ASSIGN_OR_RETURN(document, check_attributes(json));
    return {};
  });
  bool threw = true;
  const Status status = contain([&] {
    const Status agreed = agree_on_attributes(what, document ? *document : std::string(), mine);
    threw = false;
    return agreed;
  });
  if (threw) job_.give_up(status);  // the others wait for this rank, or will
  if (status.ok()) (what == Described::kDirectory ? attributes_.directory : attributes_.epoch).swap(document);
  return status;
}

// By a hash, so that what is sent does not grow with the document.
Status Writer::agree_on_attributes(Described what, Bytes json, const Status& mine) {
  SWALE_RETURN_IF_ERROR(net::begin_collective(job_, net::CallKind::kSetAttributes, opened_.directory, mine));
  if (job_.size() == 1) return {};
  const net::Ranks ranks = net::ranks_of(job_);
  std::string digest = what == Described::kDirectory ? "d" : "e";
  append_u64(&digest, hash_bytes(json));
  append_u64(&digest, json.size());
  SWALE_ASSIGN_OR_RETURN(const net::Word of_first, net::first_word(ranks, ranks.rank == 0 ? digest : ""));
  SWALE_ASSIGN_OR_RETURN(const net::Word other,
                         net::first_word(ranks, of_first.text == digest ? "" : digest));
  if (other.rank < 0) return {};
  return invalid_argument(
      "{}: rank {} sets other attributes than rank 0: all ranks must give the same document, byte for byte",
      opened_.directory, other.rank);
}

void Writer::pause() {
  const MutexLock lock(mutex_);
  core_->pause();
}

void Writer::resume() {
  const MutexLock lock(mutex_);
  go_on();
}

void Writer::go_on() {
  if (core_->resume()) announce();
}

// The ranks part only when all have come: until then a slower one may still be sending records here.
Status Writer::close() {
  Status result = contain([&] { return part(); });
  if (!result.ok() && !failed() && result.code() != Code::kAborted) {
    MutexLock core_lock(mutex_);
    fail_now(result);
  }
  closed_ = true;
  shut_down();
  return result;
}

Status Writer::part() {
  Status result = epoch_end_wait();
  const BiasedMutex::Guard guard(appender_.intake().mutex);
  if (result.ok() && failed()) result = failure();
  if (result.ok()) {
    MutexLock core_lock(mutex_);
    const uint64_t dropped = appender_.records_of_open_epoch();
    core_lock.unlock();
    if (dropped != 0) {
      result = error(
          Code::kAborted, Scope::kFile,
          "{}: {} records were appended on rank {} after the last epoch end and are dropped; end the epoch "
          "before closing",
          opened_.directory, dropped, job_.rank());
    }
    net::CallStamp call;
    SWALE_RETURN_IF_ERROR(
        job_.begin_call(channel(), net::CallKind::kCloseDirectory, 0, opened_.directory, &call));
    core_lock.lock();
    core_->begin_close(call);
    after_change();
    wait_for("all ranks to close", [&] { return core_->closed(); });
    // A rank that died instead of closing takes nothing away from what is committed; the job's close tells of
    // it.
    const Code code = core_->failure().code();
    const bool excused = core_->closed() || code == Code::kUnavailable || code == Code::kAborted;
    core_lock.unlock();
    if (!excused && result.ok()) result = failure();
  }
  return result;
}

Status Writer::failure() {
  const MutexLock lock(mutex_);
  const Status& cause = core_->failure();
  if (!std::exchange(failure_told_, true)) return cause;
  return error(Code::kAborted, cause.scope(), "{}: writing has failed before: {}", opened_.directory,
               cause.message());
}

void Writer::wait_for(const char* what, const std::function<bool()>& done) {
  const std::function<bool()> over = [&] { return failed() || done(); };
  const Clock& clock = system_clock();
  Patience patience(collective_deadline_, clock.now());
  const bool limited = collective_deadline_ != kForever;
  const Nanos step = limited ? std::min(patience.step(), kPatience) : kPatience;
  Nanos told = clock.now();
  while (!wait_until(over, step)) {
    const Nanos now = clock.now();
    if (limited && !core_->awaits_ranks()) {
      patience = Patience(collective_deadline_, now);
    } else if (limited && patience.over(now)) {
      return fail_locked(error(Code::kDeadlineExceeded, Scope::kFatal,
                               "rank {}: {}: waited {:g} s (imd.collective_deadline_s) for {}, which lives "
                               "but does not come: do all ranks make the same collective calls?",
                               job_.rank(), opened_.directory, to_seconds(collective_deadline_),
                               core_->waiting_for()));
    }
    if (now - told < kPatience) continue;
    told = now;
    log_warn("{}: rank {} is waiting for {}; it waits for {}", opened_.directory, job_.rank(), what,
             core_->waiting_for());
  }
}

void Writer::wait_in_append(const char* what, const std::function<bool()>& done) {
  go_on();
  const Nanos start = system_clock().now();
  wait_for(what, done);
  core_->count_append_wait(system_clock().now() - start);
}

Writer::~Writer() {
  {
    const MutexLock lock(mutex_);
    if (!closed_ && joined() && !alone_) {
      quiet_ = true;
      fail_locked(error(Code::kAborted, Scope::kFatal,
                        "{}: rank {} gave up writing without closing the directory", opened_.directory,
                        job_.rank()));
    }
  }
  shut_down();
}

void Writer::shut_down() noexcept {
  // The transport gives back every frame, also those of dead peers, unless it is stuck itself.
  const bool core_is_lent = !leave(kPatience);
  if (core_is_lent) {
    log_error("{}: the transport still holds {} frames; their memory is left to it", opened_.directory,
              core_->conversation().frames_lent());
  }
  for (Worker& worker : workers_) crew_->leave(&worker);
  if (storage_thread_) storage_thread_->remove(&storage_);
  if (committer_) {
    if (const Status done = contain([&] { committer_->finish(); }); !done.ok())
      log_warn("{}", done.message());
  }
  committer_.reset();
  if (core_is_lent) static_cast<void>(core_.release());
  if (opened_.files) {
    const Status trimmed = contain([&] { return opened_.files->trim(); });
    if (!trimmed.ok()) log_warn("{}: {}", opened_.directory, trimmed.message());
    opened_.files.reset();
  }
  opened_.lock.reset();
}

MetricsSnapshot Writer::metrics() const {
  const MutexLock lock(mutex_);
  MetricsSnapshot snapshot = core_ ? core_->metrics() : MetricsSnapshot();
  snapshot.push_back({"progress_waited", "ns", static_cast<uint64_t>(delivery_waited_)});
  for (const MemoryBudget::Row& row : budget_.report())
    snapshot.push_back({"memory: " + row.name, "bytes", row.bytes});
  return snapshot;
}

namespace {

// Takes this directory's share of the process's memory and puts it into the wish. All ranks get the smallest
// of their offers, since their frames must be equal; an exact wish is nobody's to change. Collective.
Status take_share(net::Job& job, const std::string& directory, bool exact, MemoryWish* wish,
                  MemoryBudget::Reservation* share) {
  const size_t least = exact ? wish->budget_bytes : std::min(least_budget_bytes(*wish), wish->budget_bytes);
  const MemoryLimit limit = net::memory_limit(job, 2 * default_share_bytes(job.ranks_on_fullest_node()));
  SWALE_ASSIGN_OR_RETURN(
      *share, net::take_equal_share(job, {"directory", directory}, least, wish->budget_bytes, limit));
  wish->budget_bytes = share->bytes();
  return {};
}

}  // namespace

Result<std::unique_ptr<Writer>> Writer::open_collectively(net::Job& job, io::Device& device,
                                                          const std::string& directory, Create create,
                                                          const WriterOptions& options) {
  const size_t budget =
      options.memory_bytes != 0 ? options.memory_bytes : default_share_bytes(job.ranks_on_fullest_node());
  MemoryWish wish{budget, job.size(), options.ways, options.frame_bytes, options.window,
                  0,      {},         job.route(),  job.nodes()};
  Status possible = plan_memory(wish).status();
  if (possible.ok()) possible = options.partitioner.check();
  SWALE_RETURN_IF_ERROR(net::begin_collective(job, net::CallKind::kOpenDirectory, directory, possible));
  SWALE_RETURN_IF_ERROR(agree_on_options(net::ranks_of(job), create, options));
  SWALE_ASSIGN_OR_RETURN(OpenedDirectory opened,
                         open_directory(net::ranks_of(job), device, {}, directory, create, options));
  wish.indexed_fields = static_cast<uint32_t>(opened.manifest.schema.indexed.size());
  wish.layout = opened.manifest.layout;
  wish.schema_bytes = opened.manifest.schema.value_bytes();
  wish.gives_runs = options.gives_runs;
  MemoryBudget::Reservation share;
  const Status taken = take_share(job, directory, options.memory_bytes != 0, &wish, &share);
  Result<MemoryPlan> plan = taken.ok() ? plan_memory(wish) : taken;
  if (const Status planned = agree(job, plan.status()); !planned.ok()) {
    opened.discard();
    return planned;
  }
  if (const uint32_t most = options.ablation.output_buffers_max; most != 0) {
    plan->output_buffers = std::min(plan->output_buffers, most);
  }
  std::unique_ptr<Writer> writer(new Writer(job, std::move(opened), wish.budget_bytes, *plan,
                                            options.partitioner, options.ablation.delivery));
  writer->share_ = std::move(share);
  writer->collective_deadline_ = options.collective_deadline;
  Status started = agree(job, contain([&] { return writer->start(device, *plan, options.ways); }));
  if (started.ok()) started = writer->finish_opening();
  if (!started.ok()) {
    writer->opened_.discard();  // no files of this rank are left
    return started;
  }
  return writer;
}

Result<std::unique_ptr<Writer>> Writer::open(net::Job& job, io::Device& device, const std::string& directory,
                                             Create create, const WriterOptions& options) {
  Result<std::unique_ptr<Writer>> opened = std::unique_ptr<Writer>();
  const Status status = contain([&] { opened = open_collectively(job, device, directory, create, options); });
  if (status.ok()) return opened;
  // What has been opened here is closed again. The others wait for this rank, or will.
  job.give_up(error(status.code(), Scope::kFatal, "rank {}: opening {}: {}", job.rank(), directory,
                    status.message()));
  return status;
}

}  // namespace swale::imd
