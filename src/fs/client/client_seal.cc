#include "fs/client/client_seal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>

#include "fs/log/attach_format.h"
#include "io/descriptor.h"

namespace swale::fs {
namespace {

constexpr int kSealLooks = 50;  // until an open to write is no close that is under way
constexpr int kSealLookMillis = 20;

struct SealedFile {
  io::Descriptor file;
  SealState state;
  mode_t mode = 0;
};

Result<SealState> state_of(int fd, const std::string& path) {
  SealState found;
  if (::ioctl(fd, kAskSeal, &found) == 0) return found;
  if (errno == ENOTTY || errno == ENOSYS)
    return error(Code::kNotFound, Scope::kFile,
                 "{}: it is no file of a tree that swale run or swale serve has mounted", path);
  return errno_status(errno, path + ": asking whether it is sealed");
}

// O_NONBLOCK: a path elsewhere may lead to a FIFO.
Result<SealedFile> open_to_seal(const std::string& path) {
  SealedFile opened;
  opened.file = io::Descriptor(
      io::continued([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
  if (!opened.file.valid()) return errno_status(errno, path + ": opening it for its seal");
  SWALE_ASSIGN_OR_RETURN(opened.state, state_of(opened.file.get(), path));
  struct stat found;
  if (::fstat(opened.file.get(), &found) != 0) return errno_status(errno, path);
  opened.mode = found.st_mode & 07777;
  return opened;
}

Status refuse(const std::string& path, const SealState& found) {
  return error(Code::kBusy, Scope::kFile,
               "{}: it is open to be written by {}; it can be sealed when they have closed it", path,
               found.who);
}

}  // namespace

// Who has it open to write is asked before, and after: somebody may have opened it meanwhile.
Status seal_file(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedFile opened, open_to_seal(path));
  const int fd = opened.file.get();
  SealState asked = opened.state;
  for (int looks = 1; asked.writers != 0 && looks < kSealLooks; ++looks) {
    ::poll(nullptr, 0, kSealLookMillis);
    SWALE_ASSIGN_OR_RETURN(asked, state_of(fd, path));
  }
  if (asked.sealed != 0) return {};
  if (asked.writers != 0) return refuse(path, asked);
  if (::fchmod(fd, opened.mode & 07555) != 0) return errno_status(errno, path + ": making it read-only");
  SWALE_ASSIGN_OR_RETURN(const SealState after, state_of(fd, path));
  if (after.sealed != 0) return {};
  ::fchmod(fd, opened.mode);
  return refuse(path, after);
}

Status unseal_file(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedFile opened, open_to_seal(path));
  if (::fchmod(opened.file.get(), opened.mode | S_IWUSR) == 0) return {};
  return errno_status(errno, path + ": letting its owner write it");
}

Result<bool> is_sealed(int fd, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealState found, state_of(fd, path));
  return found.sealed != 0;
}

}  // namespace swale::fs
