// JobFs: the drain: when a program asks, when memory is short, and when nobody writes.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/contain.h"
#include "base/log.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
namespace {

constexpr int kDrainTries = 8;  // of a file that is renamed while it is drained
constexpr Nanos kLookEvery = milliseconds(100);
constexpr int kOpenLater = 30;           // times as long without writes, after which open files are drained
constexpr size_t kKeptAtOnce = 4;        // chunks, while programs wait
constexpr int kKeepTries = 1000;         // of a chunk in which somebody writes
constexpr uint64_t kSmallSpilled = 256;  // chunks of less than a MiB

// (Where compilers inline a list in braces, they take it for uninitialized.)
std::vector<Drain::Drained> only(const meta::FileId& file, Result<Drain::Outcome> outcome) {
  std::vector<Drain::Drained> drained;
  drained.push_back({file, std::move(outcome)});
  return drained;
}

}  // namespace

// The programs made the files before: the times of their directories are theirs.
std::vector<HiddenTimes::Change> JobFs::hide_times(std::span<const meta::FileId> files) {
  std::vector<HiddenTimes::Change> hidden;
  std::set<meta::FileId> seen;
  for (const meta::FileId& file : files) {
    const auto place = nodes_.place_of(file);
    if (!place || !seen.insert(place->parent).second) continue;
    auto directory = parent_on_backing(file);
    if (directory.ok()) hidden.emplace_back(hidden_, place->parent, std::move(*directory));
  }
  return hidden;
}

// Programs wait while logs are read and records are written, never for the backing: what uses it needs
// nothing of theirs. At least the first file has a result.
JobFs::DrainedFiles JobFs::drain_steps(std::span<const meta::FileId> files, uint64_t bytes_limit,
                                       std::optional<NameTurn>* publishing) {
  uint64_t holds = 0;
  backing_.forget_dresses();
  touched_ = {};
  {
    const auto turn = take_turn();
    if (!turn.ok()) return only(files.front(), turn.status());
    const MutexLock lock(mutex_);
    in_hand_.settle(files);  // times that change there now would pass for those of others
    holds = in_hand_.holds();
    ++drains_begun_;
    const auto begun = drain_->begin(files, bytes_limit);
    if (!begun.ok()) return only(files.front(), begun.status());
    files = files.first(*begun);
  }
  // Else the names could lead to a file of the same id elsewhere, whose bytes the logs have no more.
  // (Of several nodes each change of a file's name is durable before it is answered.)
  const bool names_are_kept = fsync_drains() || shared_;
  if (const Status named = names_are_kept ? Status() : sync_names(meta::kRootDirectory); !named.ok())
    return give_up_drain(named);
  drain_->look();
  while (fill()) drain_->put();
  drain_->settle();
  const MutexLock changing(change_mutex_);
  auto turn = take_turn();
  if (!turn.ok()) return give_up_drain(turn.status());
  const FilesInHand::Hold hold(in_hand_, files);
  if (options_.dresses_again && (shared_ || hold.number() != holds + 1)) drain_->dress_again();
  {
    const MutexLock lock(mutex_);
    drain_->announce();
  }
  if (publishing != nullptr) publishing->emplace(std::move(*turn));
  {
    auto hidden = hide_times(files);
    drain_->publish();
    for (HiddenTimes::Change& each : hidden) touched_ = each.end();
  }
  {
    const MutexLock lock(mutex_);
    drain_->record();
  }
  DrainedFiles drained = drain_->finish();
  const MutexLock lock(mutex_);
  for (Drain::Drained& each : drained) {
    if (!each.outcome.ok() || *each.outcome == Drain::Outcome::kNothing) continue;
    const Status marked = set_mode(each.file, kRetimed, kOnBacking);
    if (!marked.ok() && marked.posix_error() != ENOENT) each.outcome = marked;
    const bool is_done = each.outcome.ok() && *each.outcome == Drain::Outcome::kDone;
    if (is_done && !lost_.why(each.file).empty()) each.outcome = Drain::Outcome::kBare;
  }
  return drained;
}

JobFs::DrainedFiles JobFs::give_up_drain(const Status& why) {
  {
    const MutexLock lock(mutex_);
    drain_->give_up(why);
  }
  return drain_->finish();
}

// A step that throws must not leave a drain under way, which no other one could follow.
JobFs::DrainedFiles JobFs::drain_batch(std::span<const meta::FileId> files, uint64_t bytes_limit,
                                       std::optional<NameTurn>* publishing) {
  DrainedFiles drained;
  const Status done =
      contain([&]() REQUIRES(drain_mutex_) { drained = drain_steps(files, bytes_limit, publishing); });
  if (done.ok()) return drained;
  drained = give_up_drain(done);
  return drained.empty() ? only(files.front(), done) : drained;
}

bool JobFs::fill() {
  const MutexLock lock(mutex_);
  return drain_->fill();
}

// The first of the files; and again, one by one, those that were renamed meanwhile, or that found no space
// beside the others, whose old bytes are gone then.
JobFs::DrainedFiles JobFs::drain_some(std::span<const meta::FileId> files, uint64_t bytes_limit) {
  DrainedFiles drained = drain_batch(files, bytes_limit);
  const bool many = drained.size() > 1;
  for (Drain::Drained& each : drained) {
    const auto code = [&each] { return each.outcome.status().code(); };
    bool again = code() == Code::kBusy || (many && code() == Code::kNoSpace);
    for (int tries = 1; again && tries < kDrainTries; ++tries) {
      each = std::move(drain_batch({&each.file, 1}, bytes_limit).front());
      again = code() == Code::kBusy;
    }
    note(each.file, each.outcome);
  }
  return drained;
}

void JobFs::note(const meta::FileId& file, const Result<Drain::Outcome>& outcome) {
  if (!outcome.ok()) {
    ++failed_drains_;
    log_error("{}", outcome.status().message());
    const MutexLock lock(failure_mutex_);
    last_failure_ = outcome.status().message();
    return;
  }
  if (*outcome == Drain::Outcome::kKeptAside) kept_aside_.add(nodes_.path_of(file).value_or(text_of(file)));
  if (*outcome != Drain::Outcome::kNothing) ++drained_files_;
}

// kNotYet: it takes a drain. A sync that the journal does not take costs a chunk, an open file, until it is
// drained; and a process that was stopped in the middle of a write keeps its chunk.
Result<NodeLogs::Kept> JobFs::keep_on_node(const FileTime& file) {
  using Kept = NodeLogs::Kept;
  std::vector<NodeLogs::ChunkPart> chunks;
  {
    const RequestLock lock(mutex_, requests_);
    const NodeLogs& logs = files_->logs();
    if (logs.spilled_chunks() > kSmallSpilled + logs.spilled_bytes() / kMiB) return Kept::kNotYet;
    SWALE_ASSIGN_OR_RETURN(chunks, files_->in_memory(file.file));
    // The usual sync: the last bytes of a file, and nobody is in the middle of a write.
    if (chunks.size() <= kKeptAtOnce) {
      SWALE_ASSIGN_OR_RETURN(const Kept kept, files_->keep(chunks, file));
      if (kept != Kept::kNotYet) return kept;
    }
  }
  Kept all = Kept::kJournal;
  for (std::span<const NodeLogs::ChunkPart> left = chunks; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kKeptAtOnce));
    Kept kept = Kept::kNotYet;
    for (int tries = 0; kept == Kept::kNotYet; ++tries) {
      if (tries == kKeepTries) return Kept::kNotYet;
      if (tries > 0) std::this_thread::yield();
      const RequestLock lock(mutex_, requests_);
      SWALE_ASSIGN_OR_RETURN(kept, files_->keep(some, file));
    }
    if (kept == Kept::kFiles) all = kept;
    left = left.subspan(some.size());
  }
  return all;
}

// What is committed is in the index.
Result<bool> JobFs::keep_committed(const meta::FileId& file) {
  const auto kept = keep_on_node({file, 0});
  const Code code = kept.status().code();
  if (code == Code::kNotFound) return true;  // a drain has taken all of it
  if (code == Code::kNoSpace) return false;
  if (!kept.ok()) return kept.status();
  return *kept != NodeLogs::Kept::kNotYet;
}

// The root of the file leads, of several nodes: for the one that asks.
Result<Drain::Outcome> JobFs::drain_here(const meta::FileId& file, NodeId asks,
                                         const SeenBacking& seen) noexcept {
  Result<Drain::Outcome> outcome = Drain::Outcome::kNothing;
  const Status contained = contain([&] {
    const MutexLock draining(drain_mutex_);
    for (int tries = 0; tries < kDrainTries; ++tries) {
      // Until all nodes know: they open what was drained by its name, which may not go before.
      std::optional<NameTurn> publishing;
      const auto wanted = lead_->prepare(file, asks, seen);
      // Whatever fails after this, the root must hear the end: it drains the file for nobody else before.
      const Status led = contain([&]() NO_THREAD_SAFETY_ANALYSIS {
        if (!wanted.ok())
          outcome = wanted.status();
        else if (*wanted)
          outcome = std::move(drain_batch({&file, 1}, Drain::kBatchBytes, &publishing).front().outcome);
        else
          outcome = drain_times(file, &publishing);
      });
      if (!led.ok()) outcome = led;
      const bool all_there = outcome.ok() && (!*wanted || *outcome != Drain::Outcome::kNothing);
      if (wanted.ok()) lead_->end(file, all_there, touched_);
      if (outcome.status().code() != Code::kBusy) break;
    }
  });
  if (!contained.ok()) return contained;
  if (!outcome.ok() && !nodes_.place_of(file)) return Drain::Outcome::kNothing;  // it was removed meanwhile
  return outcome;
}

// Those that wait are drained together: the processes of a job sync their files at the same time.
Result<Drain::Outcome> JobFs::drain_file(const meta::FileId& file) noexcept {
  Wanted own{file, {}};
  const Status contained = contain([&] {
    if (shared_) {
      std::set<meta::FileId>::node_type retimed;
      {
        const MutexLock lock(mutex_);
        retimed = retimed_.extract(file);  // what comes from now on may come too late for this drain
      }
      own.outcome = drain_at_root(file);
      note(file, *own.outcome);
      const MutexLock lock(mutex_);
      if (!own.outcome->ok() && !retimed.empty()) retimed_.insert(std::move(retimed));
      return;
    }
    {
      const MutexLock lock(wanted_mutex_);
      wanted_.push_back(&own);
    }
    const MutexLock draining(drain_mutex_);
    while (!own.outcome) drain_wanted();
  });
  {
    const MutexLock lock(wanted_mutex_);
    std::erase(wanted_, &own);
  }
  if (!contained.ok()) return contained;
  return *own.outcome;
}

// Who comes from now on may have written after these files are fixed, and waits for the next turn.
void JobFs::drain_wanted() {
  std::vector<Wanted*> waiting;
  {
    const MutexLock lock(wanted_mutex_);
    waiting = wanted_;
  }
  std::erase_if(waiting, [](const Wanted* each) { return each->outcome.has_value(); });
  std::vector<meta::FileId> files;
  for (const Wanted* const each : waiting)
    if (std::find(files.begin(), files.end(), each->file) == files.end()) files.push_back(each->file);
  for (const Drain::Drained& drained : drain_some(files, Drain::kBatchBytes))
    for (Wanted* const each : waiting)
      if (each->file == drained.file) each->outcome = drained.outcome;
}

JobFs::DrainedFiles JobFs::drain_first(std::span<const meta::FileId> files, uint64_t bytes_limit) {
  if (shared_) return only(files.front(), drain_file(files.front()));
  const MutexLock draining(drain_mutex_);
  return drain_some(files, bytes_limit);
}

// What the end of a job must say of a drain that has come to its end.
Status JobFs::failure_of(const meta::FileId& file, Drain::Outcome outcome) {
  if (outcome != Drain::Outcome::kBare) return {};  // of kKeptAside kept_aside_ knows
  const std::string why = lost_.why(file);
  if (!why.empty()) return error(Code::kIoError, Scope::kFile, "{}", why);
  return error(
      Code::kIoError, Scope::kFile,
      "{}: an attribute of it does not fit the backing, which has the file's bytes; the log of node {} "
      "names it",
      nodes_.path_of(file).value_or(text_of(file)), root_of(file));
}

Status JobFs::drain_each(std::span<const meta::FileId> files) {
  Status first;
  while (!files.empty()) {
    const DrainedFiles drained = drain_first(files, Drain::kBatchBytes);
    files = files.subspan(drained.size());
    for (const Drain::Drained& each : drained) {
      Status failed = each.outcome.ok() ? failure_of(each.file, *each.outcome) : each.outcome.status();
      if (first.ok() && !failed.ok()) first = std::move(failed);
    }
  }
  return first;
}

Status JobFs::drain_all() noexcept {
  return contain([&]() -> Status {
    std::vector<meta::FileId> files;
    {
      const MutexLock lock(mutex_);
      SWALE_RETURN_IF_ERROR(files_->take());
      files = undrained();
    }
    const Status drained = drain_each(files);
    for (JobNode* const directory : nodes_.changed_directories()) {
      keep_time(*directory);
      nodes_.forget(directory, 1);
    }
    const Status lost = find_lost();
    const Status aside = kept_aside();
    return !drained.ok() ? drained : !aside.ok() ? aside : lost;
  });
}

// Drains the oldest files until no writer waits. What the backing has no space for fails those that wait.
void JobFs::make_space() {
  std::set<meta::FileId> tried;
  for (;;) {
    std::vector<meta::FileId> oldest;
    requests_.let_pass();
    {
      const MutexLock lock(mutex_);
      const Status served = files_->serve();
      if (!served.ok() && tried.empty()) log_warn("{}", served.message());
      if (!files_->logs().starves()) return;
      oldest = files_->oldest(Drain::kFilesMax, tried);
    }
    if (oldest.empty() || stopping_.load()) return;
    Status full;
    for (const Drain::Drained& each : drain_first(oldest, Drain::kSpaceBytes)) {
      tried.insert(each.file);
      if (each.outcome.status().code() == Code::kNoSpace) full = each.outcome.status();
    }
    if (full.ok()) continue;
    const MutexLock lock(mutex_);
    files_->logs().refuse(full.posix_error());
    return;
  }
}

std::vector<meta::FileId> JobFs::undrained() {
  std::vector<meta::FileId> files = files_->undrained();
  for (const meta::FileId& id : retimed_)
    if (!files_->is_undrained(id)) files.push_back(id);
  return files;
}

std::vector<meta::FileId> JobFs::next_to_drain(const std::set<meta::FileId>& but) {
  std::vector<meta::FileId> files = files_->oldest(Drain::kFilesMax, but);
  for (const meta::FileId& id : retimed_)
    if (files.size() < Drain::kFilesMax && !but.contains(id) && !files_->is_undrained(id))
      files.push_back(id);
  return files;
}

// Until somebody writes. Those that failed are tried again after the next write.
void JobFs::drain_idle(uint64_t writes, OpenFiles open, std::set<meta::FileId>* failed) {
  std::set<meta::FileId> passed_over = *failed;
  while (!stopping_.load() && writes_so_far() == writes) {
    std::vector<meta::FileId> files;
    {
      const MutexLock lock(mutex_);
      files = next_to_drain(passed_over);
      passed_over.insert(files.begin(), files.end());
      if (files.empty()) return;
      if (open == OpenFiles::kStay)
        std::erase_if(files, [this](const meta::FileId& id) REQUIRES(mutex_) { return is_open(id); });
    }
    while (!files.empty() && !stopping_.load()) {
      const DrainedFiles drained = drain_first(files, Drain::kBatchBytes);
      for (const Drain::Drained& each : drained)
        if (!each.outcome.ok()) failed->insert(each.file);
      files.erase(files.begin(), files.begin() + static_cast<ptrdiff_t>(drained.size()));
    }
  }
}

uint64_t JobFs::writes_so_far() {
  const MutexLock lock(mutex_);
  return writes_.load() + grants_.admitted();
}

bool JobFs::is_open(const meta::FileId& file) {
  JobNode* const node = nodes_.find(file);
  if (node == nullptr) return false;
  const bool open = node->opens > 0;
  nodes_.forget(node, 1);
  return open;
}

// Nobody writes: what is on its way to storage arrives, what has come to rest gets its checksums, memory is
// made ready, and files that are over are closed, until somebody does.
void JobFs::settle_logs() noexcept {
  for (bool more = true; more && !stopping_.load();) {
    requests_.let_pass();
    std::unique_ptr<io::File> nameless;  // is closed without the mutex
    const MutexLock lock(mutex_);
    NodeLogs& logs = files_->logs();
    if (logs.has_rung()) return;
    more = logs.arrive_next() || logs.settle_next() || logs.prepare_next();
    if (!more) nameless = logs.take_nameless();
    more = more || nameless != nullptr;
  }
}

void JobFs::keep() noexcept {
  NodeLogs* logs = nullptr;
  {
    const MutexLock lock(mutex_);
    logs = &files_->logs();
  }
  const Clock& clock = system_clock();
  uint64_t writes = writes_so_far();
  Nanos quiet_since = clock.now(), looked = quiet_since, written = quiet_since;
  std::set<meta::FileId> failed;
  while (!stopping_.load()) {
    const Status kept = contain([&] {
      if (shared_ && clock.now() - looked >= options_.idle) {
        looked = clock.now();
        drop_nameless();
      }
      if (!have_all_begun()) return;
      make_space();
      if (const uint64_t now = writes_so_far(); now != writes) {
        writes = now;
        quiet_since = written = clock.now();
        failed.clear();
      } else if (options_.drains_alone && clock.now() - quiet_since >= options_.idle) {
        const bool late = clock.now() - written >= kOpenLater * options_.idle;
        drain_idle(writes, late ? OpenFiles::kToo : OpenFiles::kStay, &failed);
        quiet_since = clock.now();
      }
    });
    if (!kept.ok()) log_warn("{}", kept.message());
    if (!logs->wait(kLookEvery)) settle_logs();
  }
  const MutexLock lock(mutex_);
  const Status rested = logs->rest();  // what this thread has begun
  if (!rested.ok()) log_warn("{}", rested.message());
}

}  // namespace swale::fs
