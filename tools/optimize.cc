#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "capi/options.h"
#include "imd/optimize/follower.h"
#include "imd/optimize/free.h"
#include "imd/optimize/optimizer.h"
#include "net/job/job.h"
#include "net/job/job_settings.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"
#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

constexpr int kNiceBesideJob = 19;

class EndSignals;

// Who makes a pass.
struct Passing {
  net::Job* job = nullptr;              // nullptr: this process alone
  bool speaks = true;                   // for all ranks
  const EndSignals* signals = nullptr;  // that end it; nullptr: the launcher ends all ranks
};

struct OptimizeCommand {
  Common common;
  uint64_t memory_bytes = kGiB;
  uint64_t rate_bytes_per_s = 0;
  uint32_t threads = 0;
  bool full = false;
  bool follow = false;
  bool free = false;
  bool dry_run = false;
  bool yes = false;
  std::string keep = "last";

  int run() const;
  int free_logs(io::Device& device) const;
  Status approve_free(const imd::FreePlan& plan) const;
  std::string plan_text(const imd::FreePlan& plan) const;
  void print_freed(const imd::FreeReport& report) const;
  imd::OptimizeOptions options() const;
  int passes(io::Device& device) const;
  Result<imd::OptimizeReport> patient_pass(io::Device& device, const Passing& by) const;
  Result<imd::OptimizeReport> pass_of(io::Device& device, const Passing& by) const;
  Result<std::unique_ptr<net::Job>> launched() const;
  int follow_job(io::Device& device) const;
  Status approve(const imd::OptimizePlan& plan) const;
  void print_made(const imd::OptimizeReport& report) const;
  void print_text(const imd::OptimizeReport& report) const;
};

// Beside a job it takes only processors that the job leaves, and its requests to a device that is scheduled
// wait for the job's. A thread of the job that wakes takes its processor at once: were it only nice, the job
// would wait for the end of its slice. Threads that are made later do as this one.
void step_back() {
  ::setpriority(PRIO_PROCESS, 0, kNiceBesideJob);
  const sched_param none{};
  static_cast<void>(::sched_setscheduler(0, SCHED_IDLE, &none));  // what a sandbox forbids is left
}

// SIGTERM, SIGINT and SIGHUP, while it lives: the first one does not end the process, but pause says that it
// has come; the second one does. What the caller has the process ignore stays ignored. One at a time.
class EndSignals {
 public:
  EndSignals() {
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    come_ = 0;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction told {};
      told.sa_handler = note;
      told.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
      ::sigaction(kSignals[i], nullptr, &usual_[i]);
      if (usual_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &told, nullptr);
    }
  }
  ~EndSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &usual_[i], nullptr);
    ::close(event_);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Waits so long. False: a signal has come, now or before.
  bool pause(Nanos nanos) const {
    pollfd event{event_, POLLIN, 0};
    const Nanos end = system_clock().now() + nanos;
    while (come_ == 0) {
      const Nanos left = std::max<Nanos>(end - system_clock().now(), 0);
      const timespec wait{left / seconds(1), left % seconds(1)};
      if (::ppoll(&event, 1, &wait, nullptr) == 0) return come_ == 0;
    }
    return false;
  }
  bool come() const { return come_ != 0; }

  // As if it had not been held back: who has started the process learns by which signal it ended.
  void obey() const {
    flush_output();
    ::signal(come_, SIG_DFL);
    ::raise(come_);
  }

 private:
  static void note(int signal) {
    const int saved = errno;
    come_ = signal;
    const uint64_t one = 1;
    static_cast<void>(!::write(event_, &one, sizeof one));
    errno = saved;
  }

  static constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
  static inline volatile sig_atomic_t come_ = 0;
  static inline int event_ = -1;
  struct sigaction usual_[std::size(kSignals)] = {};
};

// Says what it is going to take, and refuses if there is not so much.
Status OptimizeCommand::approve(const imd::OptimizePlan& plan) const {
  if (plan.epochs == 0) return {};
  if (!common.json) {
    print_line(fmt::format(
        "{}: {} epochs, {} records, {} bytes of keys and values; they stay, and their cluster takes at most "
        "{} bytes more",
        common.path, plan.epochs, plan.records, plan.data_bytes, plan.cluster_bytes_max));
    flush_output();
  }
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(common.path, unknown);
  if (unknown || space.available >= plan.cluster_bytes_max) return {};
  return error(
      Code::kNoSpace, Scope::kFile,
      "{}: the cluster takes up to {} bytes, and {} are free; nothing was changed. Make space and run "
      "the command again",
      common.path, plan.cluster_bytes_max, static_cast<uint64_t>(space.available));
}

void OptimizeCommand::print_text(const imd::OptimizeReport& report) const {
  if (report.plan.epochs_lost > 0)
    complain("{}: {} epochs with lost parts are left as they are", common.path, report.plan.epochs_lost);
  const uint64_t left = report.plan.epochs_left;
  if (report.number == 0) {
    print_line(fmt::format("{}: nothing to do: every epoch that is whole is in a cluster", common.path));
    return;
  }
  print_line(fmt::format("{}: cluster {:04} has {} epochs: {} series, {} bytes{}", common.path, report.number,
                         report.plan.epochs, report.series, report.bytes,
                         left == 0 ? "" : fmt::format("; {} do not fit into --memory: another pass", left)));
}

imd::OptimizeOptions OptimizeCommand::options() const {
  imd::OptimizeOptions options;
  options.memory_bytes = memory_bytes;
  options.rate_bytes_per_s = rate_bytes_per_s;
  options.threads = threads;
  options.full = full;
  options.approve = [this](const imd::OptimizePlan& plan) { return approve(plan); };
  return options;
}

void OptimizeCommand::print_made(const imd::OptimizeReport& report) const {
  if (!common.json) return print_text(report);
  print_json({{"path", common.path},
              {"cluster", report.number == 0 ? Json() : Json(report.number)},
              {"epochs", report.plan.epochs},
              {"epochs_lost", report.plan.epochs_lost},
              {"epochs_left", report.plan.epochs_left},
              {"records", report.plan.records},
              {"data_bytes", report.plan.data_bytes},
              {"cluster_bytes_max", report.plan.cluster_bytes_max},
              {"series", report.series},
              {"bytes", report.bytes},
              {"stripes", report.stripes}});
  flush_output();
}

// The job whose ranks share the pass. nullptr: there is no launcher, or one rank.
Result<std::unique_ptr<net::Job>> OptimizeCommand::launched() const {
  SWALE_RETURN_IF_ERROR(capi::check_process_variables());
  SWALE_ASSIGN_OR_RETURN(const net::JobSettings settings, capi::job_settings("", capi::process_environment));
  SWALE_ASSIGN_OR_RETURN(const net::LaunchEnvironment launch, net::detect_launch(capi::process_environment));
  if (launch.size == 1) return std::unique_ptr<net::Job>();
  if (follow || free) {
    return invalid_argument(
        "{}: --follow and --free are work for one process; started were {} ranks: run it without the "
        "launcher",
        common.path, launch.size);
  }
  SWALE_ASSIGN_OR_RETURN(const net::RendezvousOptions meeting,
                         net::rendezvous_options(settings, launch, capi::process_environment));
  SWALE_ASSIGN_OR_RETURN(auto bootstrap, net::rendezvous_bootstrap(meeting));
  return net::Job::open(std::move(bootstrap), settings.job);
}

Result<imd::OptimizeReport> OptimizeCommand::pass_of(io::Device& device, const Passing& by) const {
  ProgressBar bar;
  imd::OptimizeOptions of_pass = options();
  of_pass.job = by.job;
  if (by.signals != nullptr) of_pass.pause = [&](Nanos nanos) { return by.signals->pause(nanos); };
  if (!common.json && by.speaks && ProgressBar::wanted())
    of_pass.progress = [&](uint64_t done, uint64_t records) { bar.update(done, records, "records"); };
  return imd::optimize_directory(device, common.path, of_pass);
}

int OptimizeCommand::passes(io::Device& device) const {
  const Result<std::unique_ptr<net::Job>> job = launched();
  if (!job.ok()) return fail(job.status());
  const bool speaks = *job == nullptr || (*job)->rank() == 0;
  std::optional<EndSignals> signals;
  if (*job == nullptr) signals.emplace();
  const Passing by{job->get(), speaks, signals ? &*signals : nullptr};
  Result<imd::OptimizeReport> report = patient_pass(device, by);
  // More epochs than one pass has memory for.
  while (report.ok() && report->plan.epochs_left > 0) {
    if (speaks) print_made(*report);
    report = patient_pass(device, by);
  }
  const Status closed = *job != nullptr ? (*job)->close() : Status();
  if (!report.ok()) {
    const int failed = fail(report.status());
    if (signals && signals->come()) signals->obey();
    return failed;
  }
  if (!closed.ok()) return fail(closed);
  if (!speaks) return finish_output(kExitOk);
  print_made(*report);
  return finish_output(kExitOk);
}

// Waits for another pass. Ranks would wait in a collective call, which has a deadline: they are refused.
Result<imd::OptimizeReport> OptimizeCommand::patient_pass(io::Device& device, const Passing& by) const {
  Result<imd::OptimizeReport> report = pass_of(device, by);
  for (bool told = false; by.job == nullptr && report.status().code() == Code::kBusy;
       report = pass_of(device, by)) {
    if (!std::exchange(told, true)) complain("{}; this one waits for it", report.status().message());
    if (!by.signals->pause(seconds(1))) break;
  }
  return report;
}

int OptimizeCommand::follow_job(io::Device& device) const {
  EndSignals signals;
  imd::FollowOptions following;
  following.pass = options();
  following.pass.epochs_min = imd::kFollowEpochsMin;
  following.pass.pause = [&](Nanos nanos) { return signals.pause(nanos); };
  uint64_t made = 0;
  following.made = [&](const imd::OptimizeReport& report) {
    ++made;
    print_made(report);
  };
  const Status status = imd::follow_directory(device, common.path, following);
  if (status.ok()) {
    if (!common.json)
      print_line(fmt::format("{}: no job writes to it; {} clusters were made", common.path, made));
    return finish_output(kExitOk);
  }
  if (!signals.come()) return fail(status);
  complain("{}: ends, as it was told to; the clusters that were made stay, and the next call continues",
           common.path);
  return finish_output(kExitOk);
}

// A person at a terminal is asked; everybody else has said --yes.
Status OptimizeCommand::approve_free(const imd::FreePlan& plan) const {
  if (!common.json) {
    print_line(plan_text(plan));
    flush_output();
  }
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(common.path, unknown);
  if (!unknown && space.available < plan.copy_bytes_max) {
    return error(
        Code::kNoSpace, Scope::kFile,
        "{}: the epochs to keep take up to {} bytes, and {} are free; nothing was changed. Keep fewer, "
        "or make space, and run the command again",
        common.path, plan.copy_bytes_max, static_cast<uint64_t>(space.available));
  }
  if (yes) return {};
  if (::isatty(STDIN_FILENO) != 1) {
    return invalid_argument("{}: what --free removes cannot be brought back: say --yes; nothing was changed",
                            common.path);
  }
  complain("remove them? (y or n)");
  const int answer = std::getchar();
  if (answer == 'y' || answer == 'Y') return {};
  return error(Code::kAborted, Scope::kOperation, "{}: nothing was changed", common.path);
}

std::string OptimizeCommand::plan_text(const imd::FreePlan& plan) const {
  return fmt::format(
      "{}: {} epochs will be in clusters only: {} files of {} bytes go; {} epochs are copied first ({} bytes "
      "at most), {} keep their files. Scanning a freed frame of a cluster of {} epochs costs {} times its "
      "bytes",
      common.path, plan.epochs, plan.files, plan.bytes, plan.epochs_copied, plan.copy_bytes_max,
      plan.epochs_left, plan.cluster_epochs, plan.cluster_epochs);
}

void OptimizeCommand::print_freed(const imd::FreeReport& report) const {
  const imd::FreePlan& plan = report.plan;
  if (common.json) {
    return print_json({{"path", common.path},
                       {"dry_run", dry_run},
                       {"job", report.job == 0 ? Json() : Json(report.job)},
                       {"epochs", plan.epochs},
                       {"epochs_copied", plan.epochs_copied},
                       {"epochs_left", plan.epochs_left},
                       {"copy_bytes_max", plan.copy_bytes_max},
                       {"files", plan.files},
                       {"bytes", plan.bytes},
                       {"cluster_epochs", plan.cluster_epochs}});
  }
  if (plan.nothing() && plan.epochs_left == 0) {
    print_line(fmt::format("{}: nothing to free: only epochs to keep have files", common.path));
  } else if (plan.nothing()) {
    print_line(
        fmt::format("{}: nothing to free: {} epochs keep their files, because no cluster has them, or "
                    "an epoch of the same job",
                    common.path, plan.epochs_left));
  } else if (dry_run) {
    print_line(plan_text(plan));
  } else {
    print_line(fmt::format("{}: {} files of {} bytes are gone", common.path, plan.files, plan.bytes));
  }
}

int OptimizeCommand::free_logs(io::Device& device) const {
  imd::FreeOptions options;
  options.keep = keep;
  options.dry_run = dry_run;
  options.approve = [this](const imd::FreePlan& plan) { return approve_free(plan); };
  const Result<imd::FreeReport> report = imd::free_directory(device, common.path, options);
  if (!report.ok()) return fail(report.status());
  print_freed(*report);
  return finish_output(kExitOk);
}

int OptimizeCommand::run() const {
  if (follow || rate_bytes_per_s != 0) step_back();
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage, common.path);
  const Status right = expect_engine(device, common.path, kImdEngine);
  if (!right.ok()) return fail(right);
  if (!free && (yes || dry_run || keep != "last"))
    return fail(invalid_argument("--keep, --yes and --dry-run say something to --free, which was not given"));
  if (free || follow) {
    const Result<std::unique_ptr<net::Job>> job = launched();
    if (!job.ok()) return fail(job.status());
    return free ? free_logs(device) : follow_job(device);
  }
  return passes(device);
}

}  // namespace

void add_optimize(CLI::App& app, Run* run) {
  auto command = std::make_shared<OptimizeCommand>();
  OptionSet sub = add_command(
      app, "optimize", "copies epochs by key, so that trajectories take two reads",
      {
          .description =
              "Makes a cluster: a copy of all epochs that no cluster has, in which the values of a key lie "
              "side by side. Queries of these epochs then read the cluster: two reads for a trajectory, "
              "however many epochs it has, in place of two for each epoch. For each million records it pays "
              "from some thousand trajectories of 4 epochs on that are in no memory, from some hundred of "
              "16, from some twenty of 1,000; of one epoch it hardly ever does.\n\n"
              "The epochs themselves stay as they are, so the directory takes up to twice its bytes; the "
              "command says first how many. Scans and top read the epochs themselves. A job may write "
              "meanwhile; its later epochs are for the next call, or --follow waits for them. A second "
              "call waits for the first. A call that was killed leaves nothing that answers, and the next "
              "one removes its files; Ctrl-C leaves none. A cluster that is damaged is not used. To be rid "
              "of all clusters, remove the folder DIR/clusters.\n\n"
              "Started by a launcher (mpirun, srun), its ranks share the work: each makes a part of the "
              "cluster, with --memory of its own; the first one prints. All get the same options.\n\n"
              "--free makes no cluster: it removes the data and index files of jobs whose epochs are all "
              "in clusters, but for epochs to keep, which it copies first. From then on DIR/clusters is the "
              "only copy: do not remove it. Scans and top of such an epoch read its whole cluster. Values in "
              "files of their own stay.",
          .examples = {{"swale optimize out/particles", "a cluster of all epochs"},
                       {"mpirun -n 8 swale optimize out/particles", "the same by eight processes"},
                       {"swale optimize out/particles --full --json | jq .bytes",
                        "one cluster in place of all others"},
                       {"swale optimize out/particles --follow --rate 100M",
                        "beside the job that writes it, without taking device or processors from it"},
                       {"swale optimize out/particles --free --keep last,every=100 --yes",
                        "frees the space of what clusters have; the last and each 100th epoch stay quick to "
                        "scan"}},
      });
  command->common.add_path(sub);
  sub.add_option("--memory", command->memory_bytes, "memory to sort in (default 1G)")
      .size_between(imd::kOptimizeMemoryMin, uint64_t{1} << 40)
      .type_name("BYTES");
  sub.add_flag("--full", command->full, "one cluster of all epochs, in place of the others");
  sub.add_option("--rate", command->rate_bytes_per_s, "bytes that it reads and writes in a second, at most")
      .size_between(kMiB, uint64_t{1} << 40)
      .type_name("BYTES");
  sub.add_option("--threads", command->threads, "threads that sort (default: one for each processor)")
      .between(1, 256)
      .type_name("N");
  sub.add_flag(
         "--follow", command->follow,
         "beside a running job: a cluster of every 16 epochs that it has written, of the rest at its end; "
         "ends then, or on SIGTERM")
      .excludes("--full");
  sub.add_flag("--free", command->free, "removes files of epochs that clusters have; asks first")
      .excludes("--full")
      .excludes("--follow")
      .excludes("--memory")
      .excludes("--rate")
      .excludes("--threads");
  sub.add_option(
         "--keep", command->keep,
         "with --free, the epochs that stay outside of clusters, too: last (default), N, N:M, every=N, "
         "several with commas, or none")
      .type_name("EPOCHS");
  sub.add_flag("--yes", command->yes, "with --free: does not ask");
  sub.add_flag("-n,--dry-run", command->dry_run, "with --free: prints what would go, and removes nothing");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
