#include "fuse/job_mount.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/sealed_document.h"
#include "fs/job/backing_claim.h"
#include "fs/job/job_fs.h"
#include "fuse/mounted.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fuse {
namespace {

constexpr DocumentFormat kFormat{"swale-serve"};
constexpr size_t kDocumentBytesMax = 64 * kKiB;
constexpr char kMemoryFolder[] = "/dev/shm";
constexpr Nanos kNamesDeadline = seconds(30);
constexpr uint64_t kWaitForSpace = 600'000'000'000;  // of a writer, while the drain makes some

// An ordinary user's mount is unmounted by a program that may do so; it works for root, too.
Status unmount_dead(const std::string& path) {
  const char* const arguments[] = {"fusermount3", "-u", "-z", path.c_str(), nullptr};
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ);
  if (failed != 0) return errno_status(failed, "starting fusermount3");
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
  return error(Code::kIoError, Scope::kFile,
               "{}: its dead mount could not be unmounted: run fusermount3 -u {}", path, path);
}

// The directory behind a path, without the mount that a killed server has left over it.
Result<std::string> find_directory(const std::string& path) {
  struct stat found;
  const std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  if (::stat(whole.c_str(), &found) != 0 && errno == ENOTCONN) SWALE_RETURN_IF_ERROR(unmount_dead(whole));
  SWALE_RETURN_IF_ERROR(expect_mountpoint(whole));
  if (::getxattr(whole.c_str(), fs::kJobStatsAttribute, nullptr, 0) > 0)
    return error(Code::kBusy, Scope::kFile, "{}: a job has it now: wait until that has ended", whole);
  std::error_code failed;
  const auto real = std::filesystem::canonical(whole, failed);
  if (failed) return errno_status(failed.value(), whole);
  return real.string();
}

// The server would ask itself for what lies below its own mount.
Status expect_apart(const std::string& path, const char* option, const std::string& other) {
  std::error_code failed;
  const std::filesystem::path one = std::filesystem::weakly_canonical(path, failed);
  const auto is_within = [](const std::filesystem::path& inner, const std::filesystem::path& outer) {
    const auto relative = inner.lexically_relative(outer);
    return !relative.empty() && *relative.begin() != "..";
  };
  if (!is_within(one, other) && !is_within(other, one)) return {};
  return invalid_argument("{}: {} must neither be in {} nor have it inside", path, option, other);
}

// This user's alone.
Status make_private(const std::string& path) {
  struct stat found;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno_status(errno, path + ": making it");
  if (::lstat(path.c_str(), &found) != 0) return errno_status(errno, path);
  if (S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() && (found.st_mode & 0077) == 0) return {};
  return invalid_argument(
      "{}: it must be a directory of yours that is closed to others: chmod 700, or name "
      "another --buffer",
      path);
}

bool is_in_memory(const std::string& folder) {
  struct statfs found;
  if (::statfs(folder.c_str(), &found) != 0) return true;  // promises less
  return found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
}

class JobMount {
 public:
  explicit JobMount(const JobMountOptions& options) : options_(options) {}

  Status run() {
    SWALE_RETURN_IF_ERROR(find());
    SWALE_RETURN_IF_ERROR(open());
    const Status served = options_.mounts ? serve() : Status();
    const Status ended = end();
    return served.ok() ? ended : served;
  }

 private:
  Status find();
  Status find_job();
  Status open();
  Status serve();
  Status end();
  Status close();

  const JobMountOptions& options_;
  std::string backing_;
  std::string mountpoint_;
  std::string buffer_;
  std::string memory_;
  std::string job_name_;
  size_t descriptors_ = 0;
  bool fsync_drains_ = true;
  io::Descriptor root_;
  io::PosixDevice device_;
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<fs::BackingClaim> claim_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<fs::JobFs> fs_;
};

Status JobMount::find() {
  SWALE_ASSIGN_OR_RETURN(backing_, find_directory(options_.backing));
  mountpoint_ = backing_;
  if (!options_.at.empty() && options_.mounts) {
    SWALE_ASSIGN_OR_RETURN(mountpoint_, find_directory(options_.at));
    if (mountpoint_ != backing_) SWALE_RETURN_IF_ERROR(expect_apart(mountpoint_, "--at", backing_));
  }
  for (const std::string& other : {backing_, mountpoint_})
    if (!options_.buffer.empty()) SWALE_RETURN_IF_ERROR(expect_apart(options_.buffer, "--buffer", other));
  root_ = io::Descriptor(::open(backing_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat found;
  if (!root_.valid() || ::fstat(root_.get(), &found) != 0) return errno_status(errno, backing_);
  memory_ = fmt::format("{}/swale-fs-{}-{:x}-{:x}", kMemoryFolder, ::geteuid(), found.st_dev, found.st_ino);
  buffer_ = options_.buffer;
  if (buffer_.empty())
    buffer_ = std::filesystem::temp_directory_path() / std::filesystem::path(memory_).filename();
  buffer_ = std::filesystem::absolute(buffer_).lexically_normal().string();
  if (!options_.mounts && ::access((buffer_ + "/" + kServeDocument).c_str(), F_OK) != 0)
    return error(Code::kNotFound, Scope::kFile,
                 "{}: no job of {} has left anything there; if it had a --buffer, name that", buffer_,
                 backing_);
  SWALE_RETURN_IF_ERROR(make_private(memory_));
  SWALE_RETURN_IF_ERROR(make_private(buffer_));
  SWALE_RETURN_IF_ERROR(find_job());
  io::PosixOptions beneath;
  beneath.links = io::PosixOptions::Links::kNone;
  SWALE_ASSIGN_OR_RETURN(anchored_, io::PosixDevice(beneath).anchored(backing_));
  SWALE_ASSIGN_OR_RETURN(claim_, fs::BackingClaim::take(root_.get(), backing_, job_name_));
  return {};
}

// The job that the buffer is of: one that was killed, or this one.
Status JobMount::find_job() {
  struct stat found;
  if (::fstat(root_.get(), &found) != 0) return errno_status(errno, backing_);
  const std::string path = buffer_ + "/" + kServeDocument;
  const auto text = io::read_file(device_, path, kDocumentBytesMax);
  if (text.ok()) {
    SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(*text, path));
    SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
    SWALE_ASSIGN_OR_RETURN(const uint64_t inode, document.root().hex("inode"));
    SWALE_ASSIGN_OR_RETURN(job_name_, document.root().text("job"));
    if (inode == found.st_ino) return {};
    return invalid_argument(
        "{}: it has bytes of another directory than {}: recover that first (swale fs recover), or name "
        "another --buffer",
        buffer_, backing_);
  }
  if (text.status().code() != Code::kNotFound) return text.status();
  job_name_ = fmt::format("job-{:016x}", random_number());
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.member("inode", hex16(found.st_ino)).member("job", job_name_);
  return io::replace_file(device_, path, take_sealed(&json));
}

Status JobMount::open() {
  descriptors_ = raise_descriptor_limit();
  ::umask(0);  // modes are the programs'
  const SignalsBlocked blocked;
  net::JobOptions of_job;
  of_job.transport = "loopback";
  SWALE_ASSIGN_OR_RETURN(job_, net::Job::open(net::solo_bootstrap(), of_job));
  meta::JobNamesOptions of_names;
  of_names.deadline = kNamesDeadline;
  SWALE_ASSIGN_OR_RETURN(names_, meta::JobNames::open(*job_, device_, buffer_ + "/names", of_names));
  fs::JobFsOptions of_fs;
  of_fs.backing = backing_;
  of_fs.job = job_name_;
  of_fs.state_folder = buffer_ + "/state";
  of_fs.logs.memory_directory = memory_ + "/node";
  of_fs.logs.spill_directory = buffer_ + "/spill";
  of_fs.logs.memory_bytes = options_.memory_bytes;
  char host[64] = "";
  ::gethostname(host, sizeof(host) - 1);
  of_fs.logs.shape.node = host;
  of_fs.logs.shape.wait_ns = kWaitForSpace;
  fsync_drains_ =
      options_.fsync == JobMountOptions::Fsync::kBacking || options_.buffer.empty() || is_in_memory(buffer_);
  of_fs.fsync_drains = fsync_drains_;
  of_fs.logs.outlives_power = !fsync_drains_;
  of_fs.drains_alone = options_.mounts && options_.at_end == JobMountOptions::AtEnd::kDrain;
  SWALE_ASSIGN_OR_RETURN(fs_, fs::JobFs::open(names_->client(), device_, device_, *anchored_, of_fs));
  return {};
}

Status JobMount::serve() {
  Mounted mounted;
  mounted.mountpoint = mountpoint_;
  mounted.name = "swale:" + backing_;
  mounted.trusts_files = false;
  mounted.threads = options_.threads;
  return serve_mounted(mounted, fs_.get(), descriptors_, [&] {
    const bool less =
        fsync_drains_ && options_.fsync == JobMountOptions::Fsync::kNode && !options_.buffer.empty();
    if (options_.ready)
      options_.ready(less ? fmt::format("{} is in memory: fsync brings the file to {}, at its speed; name a "
                                        "--buffer on a disk of this node, or set --fsync backing",
                                        buffer_, backing_)
                          : "");
  });
}

Status JobMount::close() {
  fs_.reset();
  Status closed = names_->close();
  names_.reset();
  const Status left = job_->close();
  job_.reset();
  return closed.ok() ? left : closed;
}

Status JobMount::end() {
  using AtEnd = JobMountOptions::AtEnd;
  const Status drained = options_.at_end == AtEnd::kDrain ? fs_->drain_all() : Status();
  const bool clean = fs_->stats().undrained_files == 0 || options_.at_end == AtEnd::kDiscard;
  const Status closed = close();
  if (clean && closed.ok()) {
    std::error_code failed;
    for (const char* const folder : {"names", "state", "spill", kServeDocument})
      std::filesystem::remove_all(buffer_ + "/" + folder, failed);
    std::filesystem::remove_all(memory_, failed);
    if (options_.buffer.empty()) std::filesystem::remove(buffer_, failed);
    if (const Status left = claim_->leave(); !left.ok()) log_warn("{}", left.message());
  }
  if (!drained.ok() && clean) return drained;  // a file was kept aside
  if (!drained.ok())
    return drained.with_context(fmt::format("{}: not all came to it; run swale fs recover {}{} to repeat it",
                                            backing_, backing_,
                                            options_.buffer.empty() ? "" : " --buffer " + buffer_));
  return closed;
}

}  // namespace

Status run_job_mount(const JobMountOptions& options) {
  return contain([&] { return JobMount(options).run(); });
}

}  // namespace swale::fuse
