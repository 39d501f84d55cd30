#include "fs/job/backing_claim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/contain.h"
#include "fs/node/drain_mark.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr char kLock[] = "lock";
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

}  // namespace

Result<std::unique_ptr<BackingClaim>> BackingClaim::take(int root, const std::string& path,
                                                         const std::string& job) {
  std::unique_ptr<BackingClaim> claim(new BackingClaim(root, path, job));
  bool locked = false;
  for (int tries = 0; !locked && tries < kLockTries; ++tries) {
    SWALE_ASSIGN_OR_RETURN(locked, claim->lock());
  }
  if (!locked) return error(Code::kBusy, Scope::kFile, "{}: other servers come and go; try again", path);
  SWALE_RETURN_IF_ERROR(claim->expect_no_other_job());
  return claim;
}

Result<bool> BackingClaim::lock() {
  if (::mkdirat(root_, kSwaleDirectory, 0700) != 0 && errno != EEXIST)
    return errno_status(errno, path_ + "/" + kSwaleDirectory + ": making it");
  folder_ = io::Descriptor(io::open_beneath(root_, kSwaleDirectory, O_RDONLY | O_DIRECTORY));
  if (!folder_.valid()) return errno == ENOENT ? Result<bool>(false) : errno_status(errno, path_ + "/.swale");
  struct stat found;
  if (::fstat(folder_.get(), &found) != 0) return errno_status(errno, path_ + "/.swale");
  if (found.st_uid != ::geteuid())
    return invalid_argument("{}/.swale belongs to user {}: only that user can use or recover it", path_,
                            found.st_uid);
  lock_ = io::Descriptor(io::open_beneath(folder_.get(), kLock, O_RDWR | O_CREAT, 0600));
  if (!lock_.valid())
    return errno == ENOENT ? Result<bool>(false) : errno_status(errno, path_ + "/.swale/lock");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(errno, path_ + "/.swale/lock: locking it");
    return error(Code::kBusy, Scope::kFile, "{}: a job has it now: wait until that has ended", path_);
  }
  return same(lock_.get(), folder_.get(), kLock) && same(folder_.get(), root_, kSwaleDirectory);
}

Status BackingClaim::expect_no_other_job() const {
  SWALE_ASSIGN_OR_RETURN(const auto names, names_in(folder_.get(), path_ + "/.swale"));
  for (const std::string& name : names)
    if (name != kLock && name != job_)
      return error(
          Code::kBusy, Scope::kFile,
          "{}: {} has ended without bringing all to it: run swale fs recover {} where it ran, with its "
          "--buffer; if its buffer is lost, remove {}/.swale/{}",
          path_, name, path_, path_, name);
  return {};
}

Status BackingClaim::leave() noexcept {
  return contain([&]() -> Status {
    const io::Descriptor own(io::open_beneath(folder_.get(), job_.c_str(), O_RDONLY | O_DIRECTORY));
    if (own.valid()) {
      SWALE_ASSIGN_OR_RETURN(const auto names, names_in(own.get(), path_ + "/.swale/" + job_));
      for (const std::string& name : names) ::unlinkat(own.get(), name.c_str(), 0);
      if (::unlinkat(folder_.get(), job_.c_str(), AT_REMOVEDIR) != 0)
        return errno_status(errno, path_ + "/.swale/" + job_ + ": removing it");
    }
    ::unlinkat(folder_.get(), kLock, 0);
    if (::unlinkat(root_, kSwaleDirectory, AT_REMOVEDIR) != 0 && errno != ENOENT)
      return errno_status(errno, path_ + "/.swale: removing it");
    return {};
  });
}

}  // namespace swale::fs
