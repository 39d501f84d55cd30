#include "stage/stage.h"

#include <thread>
#include <unordered_set>
#include <utility>

#include "base/contain.h"
#include "base/hash.h"
#include "base/start_thread.h"
#include "io/posix_device.h"
#include "stage/file_work.h"
#include "stage/folder_work.h"
#include "stage/journal.h"

namespace swale::stage {
namespace {

constexpr char kJournal[] = ".journal";
constexpr char kLock[] = ".lock";

Status remove_if_there(io::Device& device, const std::string& path) {
  const Status removed = device.remove(path);
  return removed.code() == Code::kNotFound ? Status() : removed;
}

Status failed(const Failure& failure) { return error(Code::kIoError, Scope::kFile, "{}", failure.what); }

}  // namespace

Stage::Stage(const StageOptions& options, const std::atomic<bool>& stop)
    : options_(options),
      stop_(stop),
      outcomes_(!options.way_back.empty()),
      home_(std::make_unique<io::PosixDevice>()) {}

Stage::~Stage() = default;

Result<std::unique_ptr<Stage>> Stage::open(const StageOptions& options, const std::atomic<bool>& stop,
                                           const WrapDevice& wrap) {
  std::unique_ptr<Stage> stage(new Stage(options, stop));
  SWALE_RETURN_IF_ERROR(stage->lock());
  // Before anything else: what an earlier run has said is not true any more.
  SWALE_RETURN_IF_ERROR(stage->write_now(StageState::kRunning));
  const Status begun = contain([&] { return stage->begin(wrap); });
  if (begun.ok()) return stage;
  stage->outcomes_.fail("", begun);
  static_cast<void>(stage->write_now(StageState::kFailed));  // the caller is told of it, too
  return begun;
}

Status Stage::begin(const WrapDevice& wrap) {
  if (options_.manifest.empty()) {
    SWALE_ASSIGN_OR_RETURN(source_, Root::open(options_.from));
  }
  SWALE_ASSIGN_OR_RETURN(plan_, make_plan(options_, source_));
  SWALE_RETURN_IF_ERROR(open_places(wrap));
  SWALE_RETURN_IF_ERROR(open_journal());
  StageCounts& counts = outcomes_.counts();
  counts.files = plan_.files.size() + plan_.links.size();
  for (const Entry& file : plan_.files) counts.bytes += file.bytes();
  return {};
}

Status Stage::lock() {
  io::LockRequest request;
  request.job = "swale stage";
  SWALE_ASSIGN_OR_RETURN(lock_, io::LockFile::acquire(*home_, options_.status + kLock, request));
  return {};
}

Status Stage::open_places(const WrapDevice& wrap) {
  plain_ = std::make_unique<io::PosixDevice>(io::PosixOptions{.links = io::PosixOptions::Links::kNone});
  if (options_.manifest.empty()) {
    SWALE_ASSIGN_OR_RETURN(const bool there, plain_->exists(options_.to));
    SWALE_RETURN_IF_ERROR(io::make_directories(*plain_, options_.to));
    if (!there) {
      top_ = Entry{options_.from, options_.to};
      SWALE_ASSIGN_OR_RETURN(top_->attributes, source_.look(options_.from));
    }
    SWALE_ASSIGN_OR_RETURN(destination_, Root::open(options_.to));
    SWALE_ASSIGN_OR_RETURN(plain_, plain_->anchored(options_.to));
  }
  device_ = wrap ? wrap(*plain_) : nullptr;
  place_ = std::unique_ptr<CopyPlace>(new CopyPlace{
      options_, source_, destination_, device_ ? *device_ : *plain_, stop_, outcomes_.counts().bytes_copied});
  return {};
}

Status Stage::open_journal() {
  SWALE_ASSIGN_OR_RETURN(journal_, Journal::open(*home_, options_.status + kJournal, owner()));
  return {};
}

uint64_t Stage::owner() const {
  std::string text = options_.direction == Direction::kOut ? "out" : "in";
  // What was not synced is gone with the machine's memory, though its names may be there.
  if (options_.direction == Direction::kIn) text += boot_id();
  for (const std::string& part : {options_.manifest, options_.from, options_.to}) text += '\0' + part;
  text += fmt::format("{} of {}", options_.rank, options_.ranks);
  return hash_bytes(text);
}

StageReport Stage::run(const Tick& tick) {
  StageReport report;
  report.state = StageState::kFailed;
  const Status ran = contain([&] {
    for (const Failure& failure : plan_.failures) outcomes_.fail(failure.path, failed(failure));
    for (std::string& text : plan_.remarks) outcomes_.remark(std::move(text));
    with_ticks(tick, [&] { work(); });
    report.state = end();
    report.failures = outcomes_.failures();
    report.remarks = outcomes_.remarks();
  });
  if (!ran.ok()) report.failures.push_back({"", std::string(ran.message())});
  return report;
}

void Stage::work() {
  FolderWork folders(*place_, plan_, top_ ? &*top_ : nullptr, outcomes_);
  folders.make();
  FileWork(*place_, plan_, *journal_, outcomes_).run();
  if (stop_.load()) return;
  remove_strays();
  folders.settle();
  if (place_->durable()) folders.sync();
}

// Parts of an earlier run whose files are not staged any more.
void Stage::remove_strays() {
  std::unordered_set<std::string> planned;
  for (const Entry& file : plan_.files) planned.insert(file.destination);
  for (const std::string& destination : journal_->begun()) {
    if (planned.contains(destination)) continue;
    const Status removed = remove_if_there(place_->device, part_path(destination));
    if (!removed.ok()) outcomes_.remark(std::string(removed.message()));
  }
}

// What the stage has come to; the status file says so.
StageState Stage::end() {
  const StageCounts& counts = outcomes_.counts();
  if (const Status held = lock_->check(); !held.ok()) outcomes_.fail(options_.status + kLock, held);
  if (std::string text = journal_->remark(); !text.empty()) outcomes_.remark(std::move(text));
  if (!options_.way_back.empty() && !stop_.load()) {
    const Status written = io::replace_file(*home_, options_.way_back, outcomes_.way_back());
    if (!written.ok()) outcomes_.fail(options_.way_back, written);
  }
  StageState state = counts.files_done < counts.files ? StageState::kFailed : StageState::kDone;
  if (counts.files_failed > 0) state = StageState::kFailed;
  if (state != StageState::kDone && stop_.load()) state = StageState::kStopped;
  if (state == StageState::kDone)
    if (const Status removed = journal_->remove(); !removed.ok())
      outcomes_.remark(std::string(removed.message()));
  if (const Status written = write_now(state); !written.ok()) {
    outcomes_.fail(options_.status, written);
    if (state == StageState::kDone) state = StageState::kFailed;
  }
  lock_->release();
  return state;
}

Status Stage::write_now(StageState state) {
  StatusText text;
  text.state = state;
  text.seconds = to_seconds(system_clock().now() - began_);
  text.since = lock_->content().since;
  text.failures = outcomes_.failures();
  text.remarks = outcomes_.remarks();
  const bool last = state != StageState::kRunning;
  return write_status(*home_, options_.status, status_json(options_, process_, counts(), text),
                      last ? StatusKind::kLast : StatusKind::kPassing);
}

// Without a thread for the ticks the stage works in silence.
template <class Work>
void Stage::with_ticks(const Tick& tick, const Work& work) {
  Mutex mutex;
  CondVar changed;
  bool over = false;
  std::thread ticker;
  const Status started = start_thread(&ticker, "the thread that tells how far the stage is", [&] {
    Status told;
    for (int ticks = 0;; ++ticks) {
      const Status ticked = contain([&] {
        if (tick) tick(counts());
        return ticks % kTicksAStatus == 0 ? write_now(StageState::kRunning) : Status();
      });
      if (!ticked.ok() && told.ok()) outcomes_.remark(fmt::format("no status: {}", ticked.message()));
      if (!ticked.ok()) told = ticked;
      const MutexLock lock(mutex);
      if (changed.wait_for(lock, kTickNanos, [&] { return over; })) return;
    }
  });
  if (!started.ok()) outcomes_.remark(std::string(started.message()));
  const Status worked = contain(work);
  {
    const MutexLock lock(mutex);
    over = true;
    changed.notify_all();
  }
  if (ticker.joinable()) ticker.join();
  if (!worked.ok()) outcomes_.fail("", worked);
}

Status Stage::clean(const StageOptions& options) {
  std::atomic<bool> stop{false};
  Stage stage(options, stop);
  SWALE_RETURN_IF_ERROR(stage.lock());
  const std::string journal = options.status + kJournal;
  SWALE_ASSIGN_OR_RETURN(const bool unfinished, stage.home_->exists(journal));
  if (unfinished) {
    SWALE_RETURN_IF_ERROR(stage.open_places({}));
    SWALE_RETURN_IF_ERROR(stage.open_journal());
    if (const std::string text = stage.journal_->remark(); !text.empty())
      return error(Code::kIoError, Scope::kFile, "{}", text);
    stage.remove_strays();
    for (const std::string& why : stage.outcomes_.remarks())
      return error(Code::kIoError, Scope::kFile, "{}", why);
    SWALE_RETURN_IF_ERROR(stage.journal_->remove());
  }
  SWALE_RETURN_IF_ERROR(remove_if_there(*stage.home_, options.status));
  stage.lock_->release();
  return {};
}

}  // namespace swale::stage
