#include "imd/writer_lock.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"

namespace swale::imd {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLockBytesMax = 4096;
constexpr std::string_view kDraftHead = "swale.lock.";
constexpr std::string_view kDraftTail = ".tmp";
constexpr int kAttempts = 3;  // to create it: it may go, or be taken, between two looks

// The jobs that write from this process: a lock which names this process and none of them is a leftover.
struct HeldLocks {
  std::mutex mutex;
  std::set<uint64_t> jobs;
};
HeldLocks& held_locks() {
  static HeldLocks locks;
  return locks;
}

struct Holder {
  std::string host;
  std::string boot;           // the kernel's boot id
  std::string pid_namespace;  // process ids of another one mean nothing here
  int64_t pid = 0;
  std::string start_time;  // in clock ticks since boot: tells a process from a later one of the same number
  uint64_t job_id = 0;
  std::string since;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string own_pid_namespace() {
  std::array<char, 64> name{};
  const ssize_t count = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return count < 0 ? "" : std::string(name.data(), static_cast<size_t>(count));
}

// A field of /proc/PID/stat, numbered from 1 as in proc(5), at least the third; "" if there is no process.
std::string process_field(int64_t pid, int number) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  size_t at = line.rfind(')');  // of the command, which may hold blanks
  for (int field = 2; field < number && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return "";
  return line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

std::string start_time_of(int64_t pid) { return process_field(pid, 22); }

// Ended, and its parent has not asked for its status yet. While threads of it are left it may still be writing.
bool is_zombie(int64_t pid) { return process_field(pid, 3) == "Z" && process_field(pid, 20) == "1"; }

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

Holder this_process(uint64_t job_id) {
  Holder self;
  self.host = host_name();
  self.boot = first_line("/proc/sys/kernel/random/boot_id");
  self.pid_namespace = own_pid_namespace();
  self.pid = ::getpid();
  self.start_time = start_time_of(self.pid);
  self.job_id = job_id;
  self.since = utc_now();
  return self;
}

std::string encode(const Holder& holder) {
  const Json json = {{"host", holder.host},
                     {"boot", holder.boot},
                     {"pid_namespace", holder.pid_namespace},
                     {"pid", holder.pid},
                     {"start_time", holder.start_time},
                     {"job", fmt::format("{:016x}", holder.job_id)},
                     {"since", holder.since}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Holder> decode(const std::string& content) {
  const Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  Holder holder;
  const std::pair<const char*, std::string*> texts[] = {{"host", &holder.host},
                                                        {"boot", &holder.boot},
                                                        {"pid_namespace", &holder.pid_namespace},
                                                        {"start_time", &holder.start_time},
                                                        {"since", &holder.since}};
  for (const auto& [name, text] : texts) {
    const auto member = json.find(name);
    if (member == json.end() || !member->is_string()) return std::nullopt;
    *text = member->get<std::string>();
  }
  const auto pid = json.find("pid");
  const auto job = json.find("job");
  if (pid == json.end() || !pid->is_number_integer() || job == json.end() || !job->is_string())
    return std::nullopt;
  holder.pid = pid->get<int64_t>();
  errno = 0;
  holder.job_id = std::strtoull(job->get_ref<const std::string&>().c_str(), nullptr, 16);
  return errno == 0 ? std::optional(holder) : std::nullopt;
}

// Why the holder cannot be writing any more; "" if it may be.
std::string why_dead(const Holder& holder) {
  const Holder self = this_process(0);
  if (holder.boot.empty() || self.boot.empty()) return "";
  if (holder.boot != self.boot) {
    // Another machine, or this one before its last start. Many machines may call themselves localhost.
    const bool this_host = holder.host == self.host && !self.host.starts_with("localhost");
    return this_host ? "the host was restarted since" : "";
  }
  if (holder.pid_namespace != self.pid_namespace) return "";
  if (holder.pid == self.pid && holder.start_time == self.start_time) {
    HeldLocks& held = held_locks();
    const std::lock_guard lock(held.mutex);
    return held.jobs.contains(holder.job_id) ? "" : "this process has no such writer open";
  }
  if (::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH) return "the process is gone";
  const std::string start_time = start_time_of(holder.pid);
  if (!start_time.empty() && start_time != holder.start_time)
    return "the process is gone, another has its number";
  if (is_zombie(holder.pid)) return "the process has ended";
  return "";
}

// A lock that no writer leaves: it lost its bytes in a power cut, or was written by something else than Swale. Not so
// an object that says other things than ours, which may be a newer version's.
bool torn(const std::string& content) {
  return !Json::parse(content, nullptr, /*allow_exceptions=*/false).is_object();
}

// The lock as a message names it, if its holder is surely dead; else "".
std::string what_is_dead(const std::optional<Holder>& holder, const std::string& content) {
  if (!holder) {
    if (!torn(content)) return "";
    return fmt::format("a lock of {} bytes that says nothing: its writer's host lost power", content.size());
  }
  const std::string why = why_dead(*holder);
  if (why.empty()) return "";
  return fmt::format("the lock of process {} on host {}, which wrote here since {}: {}", holder->pid,
                     holder->host, holder->since, why);
}

Status busy(const std::string& path, const std::optional<Holder>& holder) {
  if (!holder) {
    return error(Code::kBusy, Scope::kFile,
                 "{}: exists but does not say who holds it in a way that this build knows. If no job is "
                 "writing here, remove "
                 "the file",
                 path);
  }
  return error(Code::kBusy, Scope::kFile,
               "{}: process {} on host {} has been writing here since {} (job {:016x}); wait for it, or "
               "remove the file "
               "if that process is surely dead",
               path, holder->pid, holder->host, holder->since, holder->job_id);
}

std::string draft_name(uint64_t job_id) { return fmt::format("{}{:016x}{}", kDraftHead, job_id, kDraftTail); }

Status write_draft(io::Device& device, const std::string& path, const std::string& content) {
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file, device.open(path, io::OpenMode::kCreate));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, content));
  return file->sync();
}

// The lock appears whole and durable, or not at all: it is written beside and then given its name. kAlreadyExists if
// somebody has it, kNotFound if whoever has got it took our draft for a leftover.
Status create(io::Device& device, const std::string& directory, uint64_t job_id, const std::string& content) {
  const std::string draft = fmt::format("{}/{}", directory, draft_name(job_id));
  Status status = write_draft(device, draft, content);
  if (status.ok()) status = device.rename_new(draft, lock_path(directory));
  if (!status.ok()) static_cast<void>(device.remove(draft));
  return status;
}

// Drafts of writers that were killed while they made them. What cannot be removed does no harm.
void remove_drafts(io::Device& device, const std::string& directory) {
  const Result<std::vector<std::string>> names = device.list(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.starts_with(kDraftHead) && name.ends_with(kDraftTail))
      static_cast<void>(device.remove(fmt::format("{}/{}", directory, name)));
  }
}

// Removes the lock that says `stale`, unless somebody else has done so and taken it meanwhile.
Status remove_stale(io::Device& device, const std::string& directory, const std::string& stale) {
  const std::string takeover = fmt::format("{}/{}", directory, kTakeoverName);
  const Status alone = device.open(takeover, io::OpenMode::kCreate).status();
  if (alone.code() == Code::kAlreadyExists) {
    return error(
        Code::kBusy, Scope::kFile,
        "{}: another process is taking over the lock of a dead writer, or died while doing so. If no job is "
        "starting here, remove the file",
        takeover);
  }
  SWALE_RETURN_IF_ERROR(alone);
  Result<std::string> now = io::read_file(device, lock_path(directory), kLockBytesMax);
  Status removed;
  if (!now.ok()) {
    removed = now.status();
  } else if (*now == stale) {
    removed = device.remove(lock_path(directory));
  }
  const Status left = device.remove(takeover);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  return left;
}

}  // namespace

std::string lock_path(const std::string& directory) { return fmt::format("{}/{}", directory, kLockName); }

Result<WriterLock> WriterLock::acquire(io::Device& device, const std::string& directory, uint64_t job_id) {
  const std::string path = lock_path(directory);
  const std::string content = encode(this_process(job_id));
  std::optional<Holder> holder;
  std::string dead;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Status created = create(device, directory, job_id, content);
    if (created.ok()) {
      if (!dead.empty()) log_warn("{}: took over {}", path, dead);
      remove_drafts(device, directory);
      return WriterLock(device, path, content, job_id);
    }
    if (created.code() == Code::kNotFound && attempt + 1 < kAttempts) continue;
    if (created.code() != Code::kAlreadyExists) return created;
    const Result<std::string> theirs = io::read_file(device, path, kLockBytesMax);
    if (theirs.status().code() == Code::kNotFound) continue;  // given back meanwhile
    SWALE_RETURN_IF_ERROR(theirs.status());
    holder = decode(*theirs);
    dead = what_is_dead(holder, *theirs);
    if (dead.empty()) break;
    SWALE_RETURN_IF_ERROR(remove_stale(device, directory, *theirs));
  }
  return busy(path, holder);
}

WriterLock::WriterLock(io::Device& device, std::string path, std::string content, uint64_t job_id)
    : device_(&device), path_(std::move(path)), content_(std::move(content)), job_id_(job_id) {
  HeldLocks& held = held_locks();
  const std::lock_guard lock(held.mutex);
  held.jobs.insert(job_id_);
}

WriterLock::WriterLock(WriterLock&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      path_(std::move(other.path_)),
      content_(std::move(other.content_)),
      job_id_(other.job_id_) {}

WriterLock& WriterLock::operator=(WriterLock&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(path_, other.path_);
  std::swap(content_, other.content_);
  std::swap(job_id_, other.job_id_);
  return *this;
}

void WriterLock::release() {
  if (device_ == nullptr) return;
  io::Device& device = *std::exchange(device_, nullptr);
  {
    HeldLocks& held = held_locks();
    const std::lock_guard lock(held.mutex);
    held.jobs.erase(job_id_);
  }
  Result<std::string> now = io::read_file(device, path_, kLockBytesMax);
  if (now.ok() && *now != content_) {
    log_warn("{}: was taken over by somebody else while this process was writing; leaving it", path_);
    return;
  }
  const Status removed = now.ok() ? device.remove(path_) : now.status();
  if (!removed.ok()) log_warn("{}: could not be removed: {}", path_, removed.to_string());
}

}  // namespace swale::imd
