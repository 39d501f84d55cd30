#include "fs/job/backing_claim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/sealed_document.h"
#include "fs/node/drain_mark.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr char kServersPrefix[] = "servers-";
constexpr DocumentFormat kServersFormat{"swale-servers"};
constexpr size_t kServersBytesMax = 64 * kKiB;
constexpr int kLockTries = 100;  // a server that ends meanwhile removes what was locked

bool same(int fd, int folder, const char* name) {
  struct stat one, two;
  return ::fstat(fd, &one) == 0 && ::fstatat(folder, name, &two, AT_SYMLINK_NOFOLLOW) == 0 &&
         one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

Result<std::vector<std::string>> names_in(int folder, const std::string& path) {
  const int fd = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!stream) return errno_status(errno, path);
  std::vector<std::string> names;
  while (const dirent* const found = ::readdir(stream.get()))
    if (io::is_one_name(found->d_name)) names.emplace_back(found->d_name);
  return names;
}

Result<std::string> read_hosts(int folder, const std::string& name) {
  const io::Descriptor file(io::open_beneath(folder, name.c_str(), O_RDONLY));
  if (!file.valid()) return errno_status(errno, name);
  std::string text(kServersBytesMax, '\0');
  const ssize_t bytes = io::continued([&] { return ::read(file.get(), text.data(), text.size()); });
  if (bytes < 0) return errno_status(errno, name);
  text.resize(static_cast<size_t>(bytes));
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, name));
  SWALE_RETURN_IF_ERROR(document.check_header(kServersFormat));
  return document.root().text("hosts");
}

// Where the servers of a job are or were, for a message.
std::string hosts_of(int folder, const std::string& job) {
  const io::Descriptor there(io::open_beneath(folder, job.c_str(), O_RDONLY | O_DIRECTORY));
  const auto names = there.valid() ? names_in(there.get(), job) : errno_status(errno, job);
  if (names.ok())
    for (const std::string& name : *names) {
      if (!name.starts_with(kServersPrefix)) continue;
      if (const auto hosts = read_hosts(there.get(), name); hosts.ok()) return *hosts;
    }
  return "hosts that it does not name";
}

// `.swale`, made if it is not there.
Result<io::Descriptor> open_folder(int root, const std::string& path) {
  if (::mkdirat(root, kSwaleDirectory, 0700) != 0 && errno != EEXIST)
    return errno_status(errno, path + "/" + kSwaleDirectory + ": making it");
  io::Descriptor folder(io::open_beneath(root, kSwaleDirectory, O_RDONLY | O_DIRECTORY));
  struct stat found;
  if (!folder.valid() || ::fstat(folder.get(), &found) != 0) return errno_status(errno, path + "/.swale");
  if (found.st_uid == ::geteuid()) return folder;
  return invalid_argument("{}/.swale belongs to user {}: only that user can use or recover it", path,
                          found.st_uid);
}

void remove_starts_in(int folder, const std::string& path) {
  const auto names = names_in(folder, path);
  if (!names.ok()) return;
  for (const std::string& name : *names)
    if (name.starts_with(kServersPrefix)) ::unlinkat(folder, name.c_str(), 0);
}

}  // namespace

Result<io::Descriptor> BackingClaim::open_meeting(int root, const std::string& path) {
  for (int tries = 0; tries < kLockTries; ++tries) {
    auto folder = open_folder(root, path);
    if (folder.ok() && ::mkdirat(folder->get(), kMeetingFolder, 0700) != 0 && errno != EEXIST &&
        errno != ENOENT)
      return errno_status(errno, path + "/.swale/" + kMeetingFolder + ": making it");
    if (folder.ok()) {
      io::Descriptor meeting(io::open_beneath(folder->get(), kMeetingFolder, O_RDONLY | O_DIRECTORY));
      if (meeting.valid()) return meeting;
      folder = errno_status(errno, path + "/.swale/" + kMeetingFolder);
    }
    if (folder.status().posix_error() != ENOENT) return folder.status();
  }
  return error(Code::kBusy, Scope::kFile, "{}: other servers come and go; try again", path);
}

Status BackingClaim::end_starts(int root, const std::string& path, const std::string& job) {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor folder, open_folder(root, path));
  const io::Descriptor own(io::open_beneath(folder.get(), job.c_str(), O_RDONLY | O_DIRECTORY));
  if (own.valid()) remove_starts_in(own.get(), path);
  return own.valid() || errno == ENOENT ? Status() : errno_status(errno, path + "/.swale/" + job);
}

Result<std::unique_ptr<BackingClaim>> BackingClaim::take(int root, const std::string& path,
                                                         const std::string& job, const std::string& hosts) {
  std::unique_ptr<BackingClaim> claim(new BackingClaim(root, path, job));
  bool locked = false;
  for (int tries = 0; !locked && tries < kLockTries; ++tries) {
    SWALE_ASSIGN_OR_RETURN(locked, claim->lock());
  }
  if (!locked) return error(Code::kBusy, Scope::kFile, "{}: other servers come and go; try again", path);
  // First the own folder, then a look: of two jobs that do so at least one sees the other.
  const bool made = ::mkdirat(claim->folder_.get(), job.c_str(), 0700) == 0;
  Status own = made || errno == EEXIST ? Status() : errno_status(errno, path + "/.swale/" + job);
  if (own.ok()) own = claim->expect_no_other_job();
  if (own.ok()) own = claim->open_own();
  if (own.ok()) own = claim->begin_start(hosts);
  if (own.ok()) return claim;
  if (made) {
    remove_starts_in(claim->own_.get(), path);
    ::unlinkat(claim->folder_.get(), job.c_str(), AT_REMOVEDIR);
  }
  return own;
}

Result<std::unique_ptr<BackingClaim>> BackingClaim::join(int root, const std::string& path,
                                                         const std::string& job, uint64_t start) {
  std::unique_ptr<BackingClaim> claim(new BackingClaim(root, path, job));
  claim->start_ = start;
  SWALE_ASSIGN_OR_RETURN(claim->folder_, open_folder(root, path));
  SWALE_RETURN_IF_ERROR(claim->open_own());
  SWALE_RETURN_IF_ERROR(claim->expect_own());
  return claim;
}

Result<bool> BackingClaim::lock() {
  auto folder = open_folder(root_, path_);
  if (folder.status().posix_error() == ENOENT) return false;
  SWALE_RETURN_IF_ERROR(folder.status());
  folder_ = std::move(*folder);
  lock_ = io::Descriptor(io::open_beneath(folder_.get(), kClaimLock, O_RDWR | O_CREAT, 0600));
  if (!lock_.valid())
    return errno == ENOENT ? Result<bool>(false) : errno_status(errno, path_ + "/.swale/lock");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(errno, path_ + "/.swale/lock: locking it");
    return error(Code::kBusy, Scope::kFile, "{}: a job has it now: wait until that has ended", path_);
  }
  return same(lock_.get(), folder_.get(), kClaimLock) && same(folder_.get(), root_, kSwaleDirectory);
}

Status BackingClaim::open_own() {
  own_ = io::Descriptor(io::open_beneath(folder_.get(), job_.c_str(), O_RDONLY | O_DIRECTORY));
  return own_.valid() ? Status() : errno_status(errno, path_ + "/.swale/" + job_);
}

Status BackingClaim::expect_no_other_job() const {
  SWALE_ASSIGN_OR_RETURN(const auto names, names_in(folder_.get(), path_ + "/.swale"));
  for (const std::string& name : names)
    if (name != kClaimLock && name != kMeetingFolder && name != job_ && !name.starts_with(kLostPrefix))
      return error(
          Code::kBusy, Scope::kFile,
          "{}: {} has it, or has ended without bringing all to it, on {}: when its servers have ended, run "
          "swale fs recover {} where it ran, with its --buffer; if its buffer is lost, remove {}/.swale/{}",
          path_, name, hosts_of(folder_.get(), name), path_, path_, name);
  return {};
}

std::string BackingClaim::start_name() const { return kServersPrefix + hex16(start_); }

Status BackingClaim::begin_start(const std::string& hosts) {
  remove_starts_in(own_.get(), path_);
  start_ = random_number() | 1;
  JsonWriter json;
  begin_document(kServersFormat, {}, &json);
  json.member("hosts", hosts);
  const std::string text = take_sealed(&json);
  const std::string name = start_name();
  const io::Descriptor file(io::open_beneath(own_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (!file.valid()) return errno_status(errno, path_ + "/.swale/" + job_ + "/" + name);
  const ssize_t bytes = io::continued([&] { return ::write(file.get(), text.data(), text.size()); });
  if (bytes == static_cast<ssize_t>(text.size())) return {};
  return errno_status(bytes < 0 ? errno : ENOSPC, path_ + "/.swale/" + job_ + "/" + name);
}

// Opened, not looked up: a network file system then asks its server.
Status BackingClaim::expect_own() const noexcept {
  return contain([&]() -> Status {
    const io::Descriptor there(io::open_beneath(own_.get(), start_name().c_str(), O_RDONLY));
    if (there.valid()) return {};
    if (errno != ENOENT) return errno_status(errno, path_ + "/.swale/" + job_);
    return error(Code::kAborted, Scope::kFatal,
                 "{}: the servers of {} were started anew, or it has ended, without this one, which "
                 "changes nothing any more",
                 path_, job_)
        .with_error_number(EIO);
  });
}

Status BackingClaim::leave() noexcept {
  return contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const auto names, names_in(own_.get(), path_ + "/.swale/" + job_));
    for (const std::string& name : names) ::unlinkat(own_.get(), name.c_str(), 0);
    if (::unlinkat(folder_.get(), job_.c_str(), AT_REMOVEDIR) != 0)
      return errno_status(errno, path_ + "/.swale/" + job_ + ": removing it");
    std::error_code failed;
    std::filesystem::remove_all(io::descriptor_path(folder_) + "/" + kMeetingFolder, failed);
    ::unlinkat(folder_.get(), kClaimLock, 0);
    if (::unlinkat(root_, kSwaleDirectory, AT_REMOVEDIR) != 0 && errno != ENOENT && errno != ENOTEMPTY)
      return errno_status(errno, path_ + "/.swale: removing it");
    return {};
  });
}

}  // namespace swale::fs
