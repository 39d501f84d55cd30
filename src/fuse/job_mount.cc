#include "fuse/job_mount.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/coding.h"
#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/sealed_document.h"
#include "fs/job/backing_claim.h"
#include "fs/job/job_attach.h"
#include "fs/job/job_fs.h"
#include "fs/job/light_server.h"
#include "fs/job/shared_stand_ins.h"
#include "fs/job/stand_ins.h"
#include "fs/job/unmounted_server.h"
#include "fuse/job_folders.h"
#include "fuse/mounted.h"
#include "fuse/node_meeting.h"
#include "fuse/unmounted_trees.h"
#include "fuse/watch.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/job/agree.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fuse {
namespace {

constexpr Nanos kNamesDeadline = seconds(30);
constexpr uint64_t kWaitForSpace = 600'000'000'000;  // of a writer, while the drain makes some
// At the end a node waits for the programs of the others. A dead node ends that within the silence deadline.
constexpr Nanos kLongestJob = seconds(7 * 24 * 3600);
constexpr Nanos kWatchEvery = seconds(1);
constexpr size_t kHostsNamed = 16;
constexpr int kDrainTries = 3;

// Ends this process's mount when the backing is this server's no more.
class BackingWatch {
 public:
  explicit BackingWatch(const fs::BackingClaim& claim)
      : claim_(claim), watch_(kWatchEvery, [this] { look(); }) {}

  // Once the mount handles SIGTERM.
  Status start() { return watch_.start("the thread that looks whose the backing is"); }
  void stop() { watch_.stop(); }
  bool lost() const { return lost_.load(); }

 private:
  void look() {
    if (lost() || claim_.expect_own().code() != Code::kAborted) return;
    lost_.store(true);
    ::kill(::getpid(), SIGTERM);
  }

  const fs::BackingClaim& claim_;
  std::atomic<bool> lost_ = false;
  Watch watch_;
};

class JobMount {
 public:
  explicit JobMount(const JobMountOptions& options) : options_(options) {}
  ~JobMount() { leave_at_once(); }
  JobMount(const JobMount&) = delete;
  JobMount& operator=(const JobMount&) = delete;

  Status run() {
    SWALE_ASSIGN_OR_RETURN(folders_, find_job_folders(options_));
    const Status begun = options_.nodes ? meet() : begin_alone();
    // Without the backing nothing is in a buffer that was empty: nobody would come for it.
    if (!begun.ok() && buffer_is_new_ && !claim_) remove_job_folders(folders_, options_);
    SWALE_RETURN_IF_ERROR(begun);
    SWALE_RETURN_IF_ERROR(open());
    const Status served = options_.unmounted ? serve_unmounted() : options_.mounts ? serve() : Status();
    if (watch_ && watch_->lost()) return lost();
    // Nodes whose mounts are there do not come to an end because of this one's.
    if (!served.ok() && options_.nodes) return served;
    const Status ended = end();
    return served.ok() ? ended : served;
  }

 private:
  Status begin_alone();
  Status read_own();
  Status meet();
  Status agree_on_job();
  Status claim_together(const std::string& hosts);
  Status open();
  Status open_files();
  Status open_stand_ins();
  Status serve();
  Status serve_unmounted();
  std::string remark() const;
  Status end();
  bool drains_at_end() const { return options_.at_end == JobMountOptions::AtEnd::kDrain; }
  bool is_clean() const;
  Status drain_own() { return drains_at_end() ? fs_->drain_all() : fs_->kept_aside(); }
  Status take_all();
  bool drain_alone(Status* drained);
  Result<bool> drain_together(Status* drained);
  Status close();
  void leave_at_once();
  Status lost();
  bool keeps_on_disk() const { return !options_.buffer.empty() && !is_in_memory(folders_.buffer); }
  bool is_first() const { return !options_.nodes || options_.nodes->own == 0; }

  const JobMountOptions& options_;
  JobFolders folders_;
  io::Descriptor buffer_lock_;
  std::string job_name_;  // "": the buffer is of none yet
  bool buffer_is_new_ = false;
  size_t descriptors_ = 0;
  bool fsync_drains_ = true;
  std::string in_memory_;  // the first host whose buffer is; "": none
  io::PosixDevice device_;
  std::unique_ptr<io::Device> anchored_;
  Meeting meeting_;
  std::unique_ptr<fs::BackingClaim> claim_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<fs::NodePeers> peers_;  // of several nodes
  std::unique_ptr<fs::JobFs> fs_;
  std::unique_ptr<fs::StandInFiles> stand_ins_;
  std::unique_ptr<BackingWatch> watch_;
};

// ---- the beginning

Status JobMount::read_own() {
  SWALE_ASSIGN_OR_RETURN(buffer_lock_, lock_buffer(folders_));
  SWALE_ASSIGN_OR_RETURN(job_name_, read_served_job(device_, folders_));
  buffer_is_new_ = job_name_.empty();
  return {};
}

std::string drawn_name() { return fmt::format("job-{:016x}", random_number()); }

Status JobMount::begin_alone() {
  SWALE_RETURN_IF_ERROR(read_own());
  if (job_name_.empty()) {
    job_name_ = drawn_name();
    SWALE_RETURN_IF_ERROR(write_served_job(device_, folders_, job_name_));
  }
  SWALE_ASSIGN_OR_RETURN(
      claim_, fs::BackingClaim::take(folders_.root.get(), folders_.backing, job_name_, host_name()));
  const SignalsBlocked blocked;
  net::JobOptions of_job;
  of_job.transport = "loopback";
  SWALE_ASSIGN_OR_RETURN(job_, net::Job::open(net::solo_bootstrap(), of_job));
  return {};
}

// A signal ends this process while it waits for the others.
Status JobMount::meet() {
  SWALE_ASSIGN_OR_RETURN(meeting_, meet_in_backing(folders_, *options_.nodes));
  const Status own = contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(read_own());
    if (job_name_.empty() || !options_.nodes->again) return {};
    return fs::BackingClaim::end_starts(folders_.root.get(), folders_.backing, job_name_);
  });
  SWALE_RETURN_IF_ERROR(net::agree(*meeting_.bootstrap, own));
  const SignalsBlocked blocked;
  net::JobOptions of_job = options_.nodes->settings.job;
  of_job.collective_deadline = kLongestJob;
  SWALE_ASSIGN_OR_RETURN(job_, net::Job::open(std::move(meeting_.bootstrap), of_job));
  return agree_on_job();
}

// Two ranks that are on one node, for a message.
Status expect_apart(const net::NodeMap& nodes) {
  for (net::Rank rank = 0; rank < nodes.ranks(); ++rank) {
    const net::Seat seat = nodes.seat(rank);
    if (seat.local > 0)
      return invalid_argument(
          "ranks {} and {} are on one node: start one server on each (mpirun --map-by ppr:1:node, srun "
          "--ntasks-per-node=1), or swale run, which does",
          nodes.rank_at(seat.node, 0), rank);
  }
  return {};
}

// What a buffer has of a job before.
struct LeftJob {
  std::string name;        // "": nothing
  bool has_names = false;  // else it was killed before anything could be written
};

// All ranks have the same, and so come to the same answer. "": there was none.
Result<std::string> common_job(const std::vector<LeftJob>& left, const JobFolders& folders) {
  auto known = std::find_if(left.begin(), left.end(), [](const LeftJob& each) { return each.has_names; });
  const bool any_names = known != left.end();
  if (!any_names)
    known = std::find_if(left.begin(), left.end(), [](const LeftJob& each) { return !each.name.empty(); });
  if (known == left.end()) return std::string();
  for (size_t rank = 0; any_names && rank < left.size(); ++rank) {
    if (left[rank].name == known->name) continue;
    return invalid_argument(
        "{}: the buffer of rank {} is of {}, that of rank {} of {}: start swale fs recover on those nodes, "
        "and all of them, where it ran (--without those that are lost for good); a buffer that nothing is "
        "wanted of can be removed",
        folders.backing, known - left.begin(), known->name, rank,
        left[rank].name.empty() ? "no job" : left[rank].name);
  }
  return known->name;
}

Status JobMount::agree_on_job() {
  SWALE_RETURN_IF_ERROR(expect_apart(*job_->nodes()));
  SWALE_RETURN_IF_ERROR(net::agree_on_options(net::ranks_of(*job_), options_in_common(options_)));
  SWALE_ASSIGN_OR_RETURN(const bool has_names, device_.exists(folders_.buffer + "/names/tree.json"));
  std::string mine;
  append_sized(&mine, job_name_);
  append_u8(&mine, has_names ? 1 : 0);
  append_sized(&mine, host_name());
  append_u8(&mine, keeps_on_disk() ? 1 : 0);
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> all, job_->allgather(mine));
  std::vector<LeftJob> left;
  std::string hosts;
  for (const std::string& each : all) {
    Decoder in(each);
    LeftJob& job = left.emplace_back();
    job.name = in.sized();
    job.has_names = in.u8() != 0;
    const Bytes host = in.sized();
    const bool keeps = in.u8() != 0;
    SWALE_RETURN_IF_ERROR(in.finish("what a rank says of its server"));
    if (!keeps && in_memory_.empty()) in_memory_ = host;
    if (left.size() <= kHostsNamed) hosts += fmt::format("{}{}", hosts.empty() ? "" : " ", host);
  }
  if (all.size() > kHostsNamed) hosts += fmt::format(" and {} more", all.size() - kHostsNamed);
  SWALE_ASSIGN_OR_RETURN(std::string job, common_job(left, folders_));
  if (job.empty()) {
    SWALE_ASSIGN_OR_RETURN(const net::Word drawn,
                           net::first_word(net::ranks_of(*job_), is_first() ? drawn_name() : ""));
    job = drawn.text;
  }
  Status written;
  if (job_name_ != job) written = write_served_job(device_, folders_, job);
  job_name_ = job;
  SWALE_RETURN_IF_ERROR(net::agree(*job_, written));
  return claim_together(hosts);
}

// The first takes it, the others are told.
Status JobMount::claim_together(const std::string& hosts) {
  Status claimed;
  std::string start;
  if (is_first()) {
    auto claim = fs::BackingClaim::take(folders_.root.get(), folders_.backing, job_name_, hosts);
    claimed = claim.status();
    if (claim.ok()) {
      claim_ = std::move(*claim);
      start = hex16(claim_->start());
    }
  }
  SWALE_RETURN_IF_ERROR(net::agree(*job_, claimed));
  SWALE_ASSIGN_OR_RETURN(const net::Word told, net::first_word(net::ranks_of(*job_), start));
  if (!is_first()) {
    auto claim = fs::BackingClaim::join(folders_.root.get(), folders_.backing, job_name_,
                                        std::stoull(told.text, nullptr, 16));
    claimed = claim.status();
    if (claim.ok()) claim_ = std::move(*claim);
  }
  return net::agree(*job_, claimed);
}

Status JobMount::open() {
  descriptors_ = raise_descriptor_limit();
  ::umask(0);  // modes are the programs'
  const SignalsBlocked blocked;
  io::PosixOptions beneath;
  beneath.links = io::PosixOptions::Links::kNone;
  SWALE_ASSIGN_OR_RETURN(anchored_, io::PosixDevice(beneath).anchored(folders_.backing));
  meta::JobNamesOptions of_names;
  of_names.deadline = kNamesDeadline;
  SWALE_ASSIGN_OR_RETURN(names_, meta::JobNames::open(*job_, device_, folders_.buffer + "/names", of_names));
  if (!options_.nodes) return open_files();
  fs::NodePeersOptions of_peers;
  names_->with_server([&](meta::NamesServer& server) { of_peers.own = server.server(); });
  SWALE_ASSIGN_OR_RETURN(peers_, fs::NodePeers::open(*job_, of_peers));
  return net::agree(*job_, open_files());
}

Status JobMount::open_files() {
  fs::JobFsOptions of_fs;
  of_fs.backing = folders_.backing;
  of_fs.job = job_name_;
  of_fs.state_folder = folders_.buffer + "/state";
  of_fs.logs.memory_directory = folders_.memory + "/node";
  of_fs.logs.spill_directory = folders_.buffer + "/spill";
  of_fs.logs.memory_bytes = options_.memory_bytes;
  of_fs.logs.shape.node = host_name();
  of_fs.logs.shape.wait_ns = kWaitForSpace;
  if (!options_.nodes && !keeps_on_disk()) in_memory_ = host_name();
  fsync_drains_ = options_.fsync == JobMountOptions::Fsync::kBacking || !in_memory_.empty();
  of_fs.fsync_drains = fsync_drains_;
  of_fs.logs.outlives_power = !fsync_drains_;
  of_fs.drains_alone = options_.mounts && drains_at_end();
  if (options_.nodes) of_fs.expect_own = [this] { return claim_->expect_own(); };
  SWALE_ASSIGN_OR_RETURN(
      fs_, fs::JobFs::open(names_->client(), device_, device_, *anchored_, of_fs, peers_.get()));
  return open_stand_ins();
}

// Also where a tree that was mounted nowhere has left some: they come first then.
Status JobMount::open_stand_ins() {
  const std::string folder = folders_.buffer + "/" + kStandInsFolder;
  if (!options_.unmounted) {
    SWALE_ASSIGN_OR_RETURN(const bool left, device_.exists(folder));
    if (!left) return {};
  }
  if (options_.nodes) {
    SWALE_ASSIGN_OR_RETURN(stand_ins_, fs::SharedStandIns::open(*fs_, folder, descriptors_));
  } else {
    SWALE_ASSIGN_OR_RETURN(stand_ins_, fs::StandIns::open(*fs_, folder, descriptors_));
  }
  if (options_.unmounted || options_.at_end == JobMountOptions::AtEnd::kDiscard) return {};
  SWALE_RETURN_IF_ERROR(stand_ins_->take_all());
  stand_ins_.reset();
  return {};
}

// ---- the mount

std::string JobMount::remark() const {
  if (!fsync_drains_ || options_.fsync == JobMountOptions::Fsync::kBacking || options_.buffer.empty() ||
      !is_first())
    return "";
  return fmt::format(
      "the buffer of {} ({}) is in memory: fsync brings the file to {}, at its speed; name a --buffer on a "
      "disk of each node for more; --fsync backing says so",
      in_memory_, folders_.buffer, folders_.backing);
}

Status JobMount::serve() {
  std::unique_ptr<fs::JobAttach> attach;
  std::unique_ptr<fs::LightServer> light;
  {
    const SignalsBlocked blocked;
    SWALE_ASSIGN_OR_RETURN(attach, fs::JobAttach::open(*fs_, folders_.memory));
    SWALE_ASSIGN_OR_RETURN(light, fs::LightServer::open(*fs_, folders_.memory, folders_.mountpoint));
  }
  Mounted mounted;
  mounted.mountpoint = folders_.mountpoint;
  mounted.name = "swale:" + folders_.backing;
  mounted.trusts_files = false;
  mounted.threads = options_.threads;
  if (options_.nodes) watch_ = std::make_unique<BackingWatch>(*claim_);
  Status watching;
  const Status served = serve_mounted(mounted, fs_.get(), descriptors_, [&] {
    if (watch_) watching = watch_->start();
    if (!watching.ok()) log_warn("{}", watching.message());
    if (options_.ready) options_.ready(remark());
  });
  if (watch_) watch_->stop();
  return served;
}

// Threads that begin leave signals to this one.
Status JobMount::serve_unmounted() {
  const SignalsBlocked blocked;
  SWALE_ASSIGN_OR_RETURN(const auto server, fs::UnmountedServer::open(*fs_, *stand_ins_, folders_.memory));
  SWALE_RETURN_IF_ERROR(show_unmounted(folders_, options_.nodes.has_value()));
  if (options_.nodes) watch_ = std::make_unique<BackingWatch>(*claim_);
  if (watch_)
    if (const Status watching = watch_->start(); !watching.ok()) log_warn("{}", watching.message());
  if (options_.ready) options_.ready(remark());
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&ends, signal);
  int signal = 0;
  while (::sigwait(&ends, &signal) != 0) {
  }
  if (watch_) watch_->stop();
  return {};
}

// ---- the end

Status JobMount::close() {
  stand_ins_.reset();
  fs_->rest();
  Status closed = peers_ ? peers_->close() : Status();
  fs_.reset();
  const Status names = names_->close();
  if (closed.ok()) closed = names;
  names_.reset();
  peers_.reset();
  const Status left = job_->close();
  job_.reset();
  return closed.ok() ? left : closed;
}

// The others are told, and not waited for. While this lives they may ask it.
void JobMount::leave_at_once() {
  stand_ins_.reset();
  if (fs_) fs_->rest();
  peers_.reset();
  fs_.reset();
  names_.reset();
  job_.reset();
}

Status JobMount::lost() {
  const Status why = claim_->expect_own();
  leave_at_once();
  return why;
}

bool JobMount::is_clean() const {
  return options_.at_end == JobMountOptions::AtEnd::kDiscard || fs_->stats().undrained_files == 0;
}

Status JobMount::take_all() {
  if (!stand_ins_ || options_.at_end == JobMountOptions::AtEnd::kDiscard) return {};
  stand_ins_->rest();
  return stand_ins_->take_all();
}

// Whether nothing is left that is not on the backing. `drained`: what has failed.
bool JobMount::drain_alone(Status* drained) {
  const Status taken = take_all();
  *drained = drain_own();
  if (taken.ok()) return is_clean();
  *drained = taken;
  return false;
}

// The same of all nodes, none of which forgets anything before. Others read from this one until their
// programs have ended.
Result<bool> JobMount::drain_together(Status* drained) {
  const bool takes = stand_ins_ && options_.at_end != JobMountOptions::AtEnd::kDiscard;
  if (takes) static_cast<void>(stand_ins_->take_all());  // while other nodes' programs still ask for it
  SWALE_RETURN_IF_ERROR(net::agree(*job_, {}));
  *drained = net::agree(*job_, take_all());
  if (!drained->ok()) {
    static_cast<void>(net::agree(*job_, drain_own()));
    return false;
  }
  // A node that has missed the end of a drain hears of it by the next one.
  for (int tries = 1;; ++tries) {
    *drained = net::agree(*job_, drain_own());
    SWALE_ASSIGN_OR_RETURN(const uint64_t all, net::least_number(net::ranks_of(*job_), is_clean() ? 1 : 0));
    if (all == 1 || !drains_at_end() || !drained->ok() || tries == kDrainTries) return all == 1;
  }
}

Status JobMount::end() {
  Status drained, closed;
  const Result<bool> clean = options_.nodes ? drain_together(&drained) : drain_alone(&drained);
  const bool is_clean = clean.ok() && *clean;
  if (clean.ok()) {
    if (drained.ok() && !is_clean && drains_at_end())
      drained = error(Code::kIoError, Scope::kNode, "some files are not there yet");
    closed = close();
  } else {  // a node is gone
    drained = clean.status();
    if (drains_at_end()) static_cast<void>(fs_->drain_all());
    leave_at_once();
  }
  // Where all nodes have said that all is there, none keeps what the others do not have.
  if (is_clean && (closed.ok() || options_.nodes)) {
    remove_job_folders(folders_, options_);
    const Status left = is_first() ? claim_->leave() : Status();
    if (!left.ok()) log_warn("{}", left.message());
  }
  if (drained.ok()) return closed;
  if (is_clean || !drains_at_end()) return drained;  // a file was kept aside
  return drained.with_context(
      fmt::format("{}: not all came to it; run swale fs recover {}{}{} to repeat it", folders_.backing,
                  folders_.backing, options_.buffer.empty() ? "" : " --buffer " + folders_.buffer,
                  options_.nodes ? " on all nodes of the job (mpirun --map-by ppr:1:node)" : ""));
}

}  // namespace

Status run_job_mount(const JobMountOptions& options) {
  return contain([&] { return JobMount(options).run(); });
}

Result<std::string> place_of_unmounted(const JobMountOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const JobFolders folders, find_job_folders(options));
  return fmt::format("{}{}/{}:{}", options.nodes ? fs::kUnmountedOnNodes : "", folders.memory,
                     fs::kUnmountedSocket, folders.backing);
}

}  // namespace swale::fuse
