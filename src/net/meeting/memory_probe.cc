#include "net/meeting/memory_probe.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/hash.h"

namespace swale::net {
namespace {

constexpr size_t kContentBytes = 32;
using Content = std::array<char, kContentBytes>;

// UCX takes processes for neighbours only if they also have the same System V names.
uint64_t namespace_of_names() {
  struct stat found;
  return ::stat("/proc/self/ns/ipc", &found) == 0 ? found.st_ino : 0;
}

uint64_t hash_of(const Content& content) {
  std::string all(content.data(), content.size());
  append_u64(&all, namespace_of_names());
  return hash_bytes(all);
}

Status not_shared(std::string_view why, int code) {
  return errno_status(code, fmt::format("it does not see the shared memory of rank 0: {}", why));
}

Status not_shared(std::string_view why) {
  return error(Code::kUnavailable, Scope::kOperation, "it does not see the shared memory of rank 0: {}", why);
}

}  // namespace

MemoryProbe MemoryProbe::make() {
  MemoryProbe probe;
  Content content;
  if (::getrandom(content.data(), content.size(), 0) != static_cast<ssize_t>(content.size())) return probe;
  // Without a name, so that nothing is left of it whenever this process ends.
  probe.fd_ = ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (probe.fd_ < 0 || ::write(probe.fd_, content.data(), content.size()) != kContentBytes) return probe;
  probe.offer_ = {static_cast<uint64_t>(::getpid()) << 32 | static_cast<uint32_t>(probe.fd_),
                  hash_of(content)};
  return probe;
}

MemoryProbe::MemoryProbe(MemoryProbe&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), offer_(other.offer_) {}

MemoryProbe::~MemoryProbe() {
  if (fd_ >= 0) ::close(fd_);
}

Status look_for_memory(const MemoryProbe::Offer& offer) {
  if (offer.where == 0) return not_shared("rank 0 could make no segment in /dev/shm");
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.where >> 32, offer.where & 0xffffffff);
  // First without opening it: where the number means another process, this may be a device.
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return not_shared(path, errno);
  if (!S_ISREG(found.st_mode) || found.st_size != kContentBytes || found.st_uid != ::geteuid())
    return not_shared(fmt::format("{} is something else", path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return not_shared(path, errno);
  Content content;
  const ssize_t count = ::pread(fd, content.data(), content.size(), 0);
  ::close(fd);
  if (count != static_cast<ssize_t>(content.size()) || hash_of(content) != offer.what)
    return not_shared(fmt::format("{} has another content, or System V names are not shared", path));
  return ok_status();
}

}  // namespace swale::net
