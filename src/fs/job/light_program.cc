#include "fs/job/light_program.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
namespace {

bool is_whole(const LightRequest& request, size_t bytes) {
  if (bytes < kLightHeadBytes) return false;
  const size_t path = request.call == LightCall::kCreate ? request.path_bytes : 0;
  return path <= kLightPathMax && bytes == kLightHeadBytes + path;
}

}  // namespace

void LightProgram::serve() noexcept {
  bool goes_on = true;
  while (goes_on) {
    const Status served = contain([&] { goes_on = answer_next(); });
    if (served.ok()) continue;
    log_warn("process {} makes files past the kernel no more: {}", who_.thread, served.message());
    goes_on = false;
  }
  stop();
  for (uint32_t handle = 1; handle <= opens_.size(); ++handle)
    if (const Status closed = contain([&] { close(handle); }); !closed.ok())
      log_warn("closing a file of process {}, which has ended: {}", who_.thread, closed.message());
  over_.store(true);
}

void LightProgram::stop() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

bool LightProgram::answer_next() {
  LightRequest request;
  const ssize_t got =
      io::continued([&] { return ::recv(socket_.get(), &request, sizeof(request), MSG_TRUNC); });
  if (got <= 0) return false;
  if (!is_whole(request, static_cast<size_t>(got))) {
    log_warn("process {} has sent {} bytes that are no request for a file", who_.thread, got);
    return false;
  }
  if (request.call == LightCall::kClose) {
    close(request.handle);
    return true;
  }
  LightAnswer answer;
  const Status obeyed = contain([&] { answer = obey(request, static_cast<size_t>(got)); });
  if (!obeyed.ok()) answer.error = obeyed.posix_error();
  return ::send(socket_.get(), &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer);
}

LightProgram::Opened* LightProgram::find(uint32_t handle) {
  if (handle == 0 || handle > opens_.size() || opens_[handle - 1].file == nullptr) return nullptr;
  return &opens_[handle - 1];
}

LightAnswer LightProgram::obey(const LightRequest& request, size_t bytes) {
  LightAnswer answer;
  if (request.call == LightCall::kCreate) {
    create(request, &answer);
    return answer;
  }
  Opened* const opened = find(request.handle);
  if (opened == nullptr) {
    answer.error = EBADF;
  } else if (request.call == LightCall::kStat) {
    stat(*opened, &answer);
  } else if (request.call == LightCall::kReopen) {
    if (opened->lent.empty()) opened->lent = fs_.lend(*opened->file);
    opened->lent.copy(answer.name, sizeof(answer.name) - 1);
  } else {
    log_warn("process {} has sent a request of {} bytes and kind {}, which this server does not know",
             who_.thread, bytes, static_cast<uint32_t>(request.call));
    answer.error = EPROTO;
  }
  return answer;
}

void LightProgram::create(const LightRequest& request, LightAnswer* answer) {
  if (free_.empty()) {
    if (opens_.size() >= kLightOpensMax) {
      answer->error = EMFILE;
      return;
    }
    opens_.emplace_back();
    if (free_.capacity() < opens_.size()) free_.reserve(opens_.capacity());
    free_.push_back(static_cast<uint32_t>(opens_.size()));
  }
  const uint32_t handle = free_.back();
  Opened& opened = opens_[handle - 1];
  Entry entry;
  answer->error = fs_.create_light({.directory = request.directory,
                                    .path = std::string_view(request.path, request.path_bytes),
                                    .flags = static_cast<int>(request.flags),
                                    .mode = request.mode & 0777,
                                    .umask = request.umask & 0777},
                                   who_, &entry, &opened.file);
  if (answer->error != 0) return;
  opened.node = entry.node;
  free_.pop_back();
  answer->handle = handle;
}

void LightProgram::stat(Opened& opened, LightAnswer* answer) {
  struct stat found;
  answer->error = fs_.attributes(*opened.node, &found);
  if (answer->error != 0) return;
  LightStat& out = answer->stat;
  out.inode = found.st_ino;
  out.size = static_cast<uint64_t>(found.st_size);
  out.blocks = static_cast<uint64_t>(found.st_blocks);
  out.mode = found.st_mode;
  out.links = static_cast<uint32_t>(found.st_nlink);
  out.user = found.st_uid;
  out.group = found.st_gid;
  out.block_bytes = static_cast<uint32_t>(found.st_blksize);
  out.accessed_ns = nanos_of(found.st_atim);
  out.modified_ns = nanos_of(found.st_mtim);
  out.changed_ns = nanos_of(found.st_ctim);
}

void LightProgram::close(uint32_t handle) {
  Opened* const opened = find(handle);
  if (opened == nullptr) return;
  if (!opened->lent.empty()) fs_.take_back(opened->lent);
  fs_.end_light(std::move(opened->file), opened->node);
  *opened = {};
  free_.push_back(handle);
}

}  // namespace swale::fs
