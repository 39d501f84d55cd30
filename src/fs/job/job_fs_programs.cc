// JobFs: programs that append to logs of their own (fs/log/attach_format.h).
//
// A program's writes reach the file by take(), which every call here that reads bytes, sizes or times makes
// first. The kernel must not answer in its place: a grant is given while no open of the file lets the kernel
// keep its pages, and an open that comes while there are grants does not. Of such an open the kernel reads
// pages for a mapping alone (job_fs_pages.cc).
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"

namespace swale::fs {

void JobFs::programs_meet_at(const std::string& socket) {
  const RequestLock lock(mutex_, requests_);
  meeting_ = socket;
}

// For those that have a file of the tree before them.
int JobFs::say_meeting(std::string* value) {
  const RequestLock lock(mutex_, requests_);
  if (meeting_.empty()) return ENODATA;
  *value = fmt::format("{} {} {}", kAttachVersion, options_.logs.shape.node, meeting_);
  return 0;
}

Result<JobFs::Program> JobFs::add_program() noexcept {
  Program made;
  const Status status = contain([&]() -> Status {
    made.token = {random_number(), random_number()};
    const RequestLock lock(mutex_, requests_);
    SWALE_ASSIGN_OR_RETURN(made.log, files_->logs().add_log());
    const Status opened = contain([&]() REQUIRES(mutex_) -> Status {
      SWALE_ASSIGN_OR_RETURN(made.files, files_->logs().descriptors(made.log));
      grants_.add(made.log, made.token);
      return {};
    });
    if (!opened.ok()) static_cast<void>(files_->end_log(made.log));
    return opened;
  });
  if (!status.ok()) return status;
  return made;
}

// All that it has written counts, and is seen on all nodes: as if it had closed its files.
Status JobFs::end_program(uint32_t log) noexcept {
  return contain([&]() -> Status {
    std::vector<meta::FileId> files;
    {
      const RequestLock lock(mutex_, requests_);
      const Status taken = files_->end_log(log);
      if (taken.code() == Code::kResourceExhausted) return taken;
      files = grants_.remove(log);
      if (!taken.ok()) log_error("the end of the process with log {}: {}", log, taken.message());
    }
    for (const meta::FileId& id : files) {
      JobNode* const node = nodes_.find(id);
      if (node == nullptr) continue;
      static_cast<void>(commit(*node));
      static_cast<void>(say_modified(*node));
      show_to_mappings(*node);
      nodes_.forget(node, 1);
    }
    return {};
  });
}

int JobFs::command(OpenFile& opened, unsigned long command, Bytes in, std::string* out) {
  JobFile& file = JobFile::of(opened);
  if (command == kAskCommit) return flush(opened);
  if (command == kAskSeal) return tell_seal(file.node, out);
  if (command == kAskMap) return publish_map(file, in, out);
  if (command == kAskPages) return take_promise_back(file);
  if (command == kAskShow) return show_to_mappings(file.node), 0;
  if (command != kAskGrant && command != kAskShortCut) return ENOTTY;
  GrantRequest request;
  if (in.size() != sizeof(request)) return EINVAL;
  std::memcpy(&request, in.data(), sizeof(request));
  const bool promises = command == kAskShortCut;
  if (const int failed = promises ? take_promise(file) : 0; failed != 0) return failed;
  if (!promises || request.token != AttachToken{})
    if (const int failed = grant(file, request.token); failed != 0) return failed;
  request = {{}, file.node.id.high, file.node.id.low};
  out->assign(reinterpret_cast<const char*>(&request), sizeof(request));
  return 0;
}

// The program maps nothing of this open while it writes by its log.
int JobFs::take_promise(JobFile& file) {
  const MutexLock lock(mutex_);
  if (file.direct || file.without_pages) set_may_map(file, false);
  if (file.without_pages) return 0;
  if (!file.direct && file.sealed_at == 0) return EBUSY;
  file.without_pages = true;
  --file.node.opens_with_pages;
  return 0;
}

// It maps it after all: reads of others must come here, where the kernel first writes what it has.
int JobFs::take_promise_back(JobFile& file) {
  if (!file.writes || !file.reads) return 0;
  const MutexLock lock(mutex_);
  set_may_map(file, true);
  return 0;
}

void JobFs::set_may_map(JobFile& file, bool may) {
  if (file.may_map == may) return;
  file.may_map = may;
  file.node.opens_that_may_map += may ? 1 : -1;
  if (!may || files_ == nullptr) return;
  shared_ ? shared_->withdraw_maps(file.node.id) : files_->withdraw_maps(file.node.id);
}

int JobFs::grant(JobFile& file, const AttachToken& token) {
  if (!file.writes) return EBADF;
  if (file.appends) return EINVAL;  // each write of it has a place that is drawn here
  if (const int failed = content_changes(file.node, own_user()); failed != 0) return failed;
  const RequestLock lock(mutex_, requests_);
  const auto log = grants_.log_of(token);
  if (!log) return EPERM;
  if (kernel_has_pages(file.node) && options_.refuses_kept_pages) return EBUSY;
  if (std::find(file.granted.begin(), file.granted.end(), *log) != file.granted.end()) return 0;
  file.granted.reserve(file.granted.size() + 1);
  grants_.grant(*log, &file.node);
  file.granted.push_back(*log);
  if (file.node.may_have_pages.exchange(false) && options_.shows_to_mappings) file.node.drops_pages = true;
  if (file.node.shows_logs()) tell_if_mapped({&*log, 1});
  return 0;
}

// With several nodes the file's root is asked without the mutex: what must not be told any more is withdrawn
// meanwhile.
Status JobFs::map_of(JobFile& file, MapRequest* map) {
  RequestLock lock(mutex_, requests_);
  if (file.node.opens_that_may_map > 0) return errno_status(EBUSY, "a map of a file that is mapped");
  if (!shared_) return files_->publish_map(file.node.id, map);
  const uint64_t withdrawn = shared_->maps_withdrawn();
  lock.unlock();
  return shared_->publish_map(file.node.id, map, withdrawn);
}

int JobFs::publish_map(JobFile& file, Bytes in, std::string* out) {
  MapRequest request;
  if (in.size() != sizeof(request)) return EINVAL;
  std::memcpy(&request, in.data(), sizeof(request));
  const std::string& folder = folder_of_logs();
  if (request.offset > meta::kOffsetEnd || folder.size() >= sizeof(request.folder)) return EINVAL;
  std::memset(request.folder, 0, sizeof(request.folder));
  std::memcpy(request.folder, folder.data(), folder.size());
  const Status done = map_of(file, &request);
  if (done.code() == Code::kBusy && done.error_number() == 0) return EAGAIN;
  if (const int failed = answer(done); failed != 0) return failed;
  out->assign(reinterpret_cast<const char*>(&request), sizeof(request));
  return 0;
}

// Programs of one node are all of this user.
Caller JobFs::own_user() { return {::geteuid(), ::getegid(), 0, 0}; }

// What programs have appended counts before anything is said of the file.
int JobFs::take_granted(JobNode& node) {
  {
    const RequestLock lock(mutex_, requests_);
    if (!grants_.has(node.id)) return 0;
    if (const int failed = answer(files_->take()); failed != 0) return failed;
  }
  return content_changes(node, own_user());
}

std::vector<Status> JobFs::damage() {
  const RequestLock lock(mutex_, requests_);
  return files_->damage();
}

// The open file is over: of what comes from now on nothing is this file's.
void JobFs::revoke_grants(JobFile& file) {
  static_cast<void>(take_granted(file.node));
  {
    const RequestLock lock(mutex_, requests_);
    if (file.granted.empty()) return;
    for (const uint32_t log : file.granted) grants_.revoke(log, file.node.id);
    tell_if_mapped(std::exchange(file.granted, {}));
  }
  show_to_mappings(file.node);  // also what a process did not come to tell of
}

// Where the kernel has not seen all writes, it does not know where the file ends.
Result<std::optional<uint64_t>> JobFs::place_to_append(JobNode& node, uint64_t bytes) {
  if (shared_) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t place, shared_->reserve(node.id, bytes));
    return std::optional(place);
  }
  const RequestLock lock(mutex_, requests_);
  if (!grants_.has(node.id) && !node.was_cut_past_kernel) return std::optional<uint64_t>();
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, files_->size(node.id));
  const uint64_t place = std::max(size, node.reserved_end);
  if (bytes > meta::kOffsetEnd - std::min(place, meta::kOffsetEnd)) return errno_status(EFBIG, "an append");
  node.reserved_end = place + bytes;
  return std::optional(place);
}

}  // namespace swale::fs
