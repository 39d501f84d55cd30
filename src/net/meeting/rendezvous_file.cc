#include "net/meeting/rendezvous_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "base/coding.h"
#include "base/hash.h"

namespace swale::net {
namespace {

constexpr char kRecordMagic[] = "SWRZ";
constexpr size_t kMagicBytes = 4;
constexpr std::string_view kNodePrefix = "node-";
constexpr std::string_view kAddressesPrefix = "addresses-";
constexpr size_t kFileChecked = 16;  // offset of the first byte under the checksum
constexpr size_t kHeaderBytes = 48;

// What stands at the start of `bytes`?
enum class Found { kRecord, kCutOff, kDamage };

Found decode_one(Bytes bytes, RendezvousRecord* record, size_t* size) {
  const size_t known = std::min(bytes.size(), kMagicBytes);
  if (bytes.substr(0, known) != Bytes(kRecordMagic, known)) return Found::kDamage;
  if (bytes.size() < kHeaderBytes) return Found::kCutOff;
  Decoder in(bytes.substr(kMagicBytes));
  const uint32_t body_bytes = in.u32();
  const uint64_t checksum = in.u64();
  if (body_bytes > RendezvousDirectory::kBodyBytesMax) return Found::kDamage;
  if (bytes.size() < kHeaderBytes + body_bytes) return Found::kCutOff;
  *size = kHeaderBytes + body_bytes;
  if (hash_bytes(bytes.substr(kFileChecked, *size - kFileChecked)) != checksum) return Found::kDamage;
  record->kind = static_cast<RendezvousKind>(in.u32());
  record->rank = static_cast<Rank>(in.u32());
  record->nonce = in.u64();
  record->session = in.u64();
  record->round = in.u32();
  in.u32();
  record->body = std::string(in.bytes(body_bytes));
  return Found::kRecord;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace

std::string encode_record(const RendezvousRecord& record) {
  std::string out(kRecordMagic, kMagicBytes);
  append_u32(&out, static_cast<uint32_t>(record.body.size()));
  append_u64(&out, 0);
  append_u32(&out, static_cast<uint32_t>(record.kind));
  append_u32(&out, static_cast<uint32_t>(record.rank));
  append_u64(&out, record.nonce);
  append_u64(&out, record.session);
  append_u32(&out, record.round);
  append_u32(&out, 0);
  out += record.body;
  put_u64(out.data() + 8, hash_bytes(Bytes(out).substr(kFileChecked)));
  return out;
}

size_t decode_records(Bytes bytes, const std::function<void(RendezvousRecord)>& visit) {
  size_t at = 0;
  size_t unfinished = Bytes::npos;  // the first thing that may yet become a record
  while (at < bytes.size()) {
    RendezvousRecord record;
    size_t size = 0;
    const Found found = decode_one(bytes.substr(at), &record, &size);
    if (found == Found::kRecord) {
      visit(std::move(record));
      at += size;
      unfinished = Bytes::npos;  // appends are whole: what was cut off before this record stays cut off
      continue;
    }
    if (found == Found::kCutOff && unfinished == Bytes::npos) unfinished = at;
    at = std::min(bytes.find(kRecordMagic[0], at + 1), bytes.size());
  }
  return std::min(unfinished, bytes.size());
}

Status RendezvousDirectory::open() {
  close_directory();
  first_header_.clear();
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_status(errno, fmt::format("mkdir {} (rendezvous directory)", path_));
  }
  Descriptor fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) {
    return errno_status(errno, fmt::format("open {} (rendezvous directory; must not be a link)", path_));
  }
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return errno_status(errno, fmt::format("fstat {}", path_));
  if (found.st_uid != ::geteuid()) {
    return error(
        Code::kInvalidArgument, Scope::kFatal,
        "rendezvous directory {} belongs to user {}, not to you ({}): remove it, or set job.rendezvous to a "
        "directory of your own",
        path_, found.st_uid, ::geteuid());
  }
  if ((found.st_mode & 077) != 0) {
    return error(
        Code::kInvalidArgument, Scope::kFatal,
        "rendezvous directory {} has mode {:04o}, expected 0700: others could read the job's secret; chmod "
        "700 it, or remove it",
        path_, found.st_mode & 07777);
  }
  directory_fd_ = fd.release();
  return ok_status();
}

void RendezvousDirectory::close_directory() {
  if (directory_fd_ >= 0) ::close(directory_fd_);
  directory_fd_ = -1;
}

Status RendezvousDirectory::append(const RendezvousRecord& record) {
  const std::string bytes = encode_record(record);
  SWALE_ASSIGN_OR_RETURN(const uint64_t at, append_to(file_, bytes));
  if (!first_header_.empty()) return ok_status();
  first_header_ = bytes.substr(0, kHeaderBytes);  // its checksum covers the nonce and the body
  first_at_ = at;
  return ok_status();
}

Status RendezvousDirectory::append_answer(const RendezvousRecord& record) {
  return append_to(kAnswers, encode_record(record)).status();
}

Result<uint64_t> RendezvousDirectory::append_to(const std::string& file, Bytes record) {
  if (record.size() > kHeaderBytes + kBodyBytesMax) {
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "rendezvous record of {} bytes, the limit is {}", record.size() - kHeaderBytes,
                 kBodyBytesMax);
  }
  Descriptor fd(::openat(directory_fd_, file.c_str(),
                         O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (fd.get() < 0) return errno_status(errno, fmt::format("open {}/{}", path_, file));
  ssize_t written;
  do {
    written = ::write(fd.get(), record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return errno_status(errno, fmt::format("append to {}/{}", path_, file));
  if (static_cast<size_t>(written) != record.size()) {
    return errno_status(
        ENOSPC, fmt::format("append to {}/{}: wrote {} of {} bytes", path_, file, written, record.size()));
  }
  const off_t end = ::lseek(fd.get(), 0, SEEK_CUR);
  if (end < written) return errno_status(end < 0 ? errno : EIO, fmt::format("seek in {}/{}", path_, file));
  if (::close(fd.release()) != 0) return errno_status(errno, fmt::format("close {}/{}", path_, file));
  return static_cast<uint64_t>(end - written);
}

Result<std::vector<std::string>> RendezvousDirectory::list(bool of_nodes_only) const {
  Descriptor fd(::openat(directory_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd.get() < 0 ? nullptr : ::fdopendir(fd.get()),
                                                      ::closedir);
  if (!directory) return errno_status(errno, fmt::format("list {}", path_));
  fd.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    const bool wanted = name.starts_with(kNodePrefix) ||
                        (!of_nodes_only && (name == kAnswers || name.starts_with(kAddressesPrefix)));
    if (wanted) names.emplace_back(name);
  }
  return names;
}

Status RendezvousDirectory::read_file(const std::string& name, uint64_t* offset, const Visit& visit) {
  // A FIFO is not waited for; it has no bytes.
  Descriptor fd(::openat(directory_fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0)
    return errno == ENOENT ? ok_status() : errno_status(errno, fmt::format("open {}/{}", path_, name));
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return errno_status(errno, fmt::format("fstat {}/{}", path_, name));
  const auto size = static_cast<uint64_t>(found.st_size);
  // A window that holds no whole record grows until it does, or ends with the file.
  std::string window;
  for (size_t bytes = kWindowBytes; *offset < size;) {
    window.resize(std::min<uint64_t>(bytes, size - *offset));
    size_t filled = 0;
    while (filled < window.size()) {
      const ssize_t count = ::pread(fd.get(), window.data() + filled, window.size() - filled,
                                    static_cast<off_t>(*offset + filled));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0)
        return errno_status(errno, fmt::format("read {}/{} at {}", path_, name, *offset + filled));
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    const bool last = filled < window.size() || *offset + filled == size;
    const size_t done = decode_records(Bytes(window.data(), filled), visit);
    *offset += done;
    if (last) break;
    if (done == 0) bytes *= 2;
  }
  return ok_status();
}

Status RendezvousDirectory::scan(const Visit& visit) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, list(true));
  for (const std::string& name : names) SWALE_RETURN_IF_ERROR(read_file(name, &offsets_[name], visit));
  return ok_status();
}

Status RendezvousDirectory::scan_again(const Visit& visit) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, list(true));
  for (const std::string& name : names) {
    uint64_t offset = 0;
    SWALE_RETURN_IF_ERROR(read_file(name, &offset, visit));
  }
  return ok_status();
}

std::string RendezvousDirectory::addresses_path(uint64_t session) const {
  return fmt::format("{}/{}{:016x}", path_, kAddressesPrefix, session);
}

bool RendezvousDirectory::own_records_stand() const {
  const Descriptor fd(::openat(directory_fd_, file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return false;
  std::array<char, kHeaderBytes> found;
  ssize_t count;
  do {
    count = ::pread(fd.get(), found.data(), found.size(), static_cast<off_t>(first_at_));
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(found.size()) && Bytes(found.data(), found.size()) == first_header_;
}

void RendezvousDirectory::remove_all() {
  if (directory_fd_ < 0) return;
  if (const auto names = list(false); names.ok()) {
    for (const std::string& name : *names) ::unlinkat(directory_fd_, name.c_str(), 0);
  }
  ::rmdir(path_.c_str());
}

}  // namespace swale::net
