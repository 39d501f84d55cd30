#include "fs/job/light_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "fs/job/light_stat.h"
#include "fs/log/attach_format.h"
#include "fs/log/map_format.h"

namespace swale::fs {
namespace {

constexpr size_t kAtATime = 8;  // requests of a program, before another one's turn

bool is_whole(const LightRequest& request, size_t bytes) {
  if (bytes < kLightHeadBytes) return false;
  const bool has_path =
      request.call == LightCall::kOpen || request.call == LightCall::kLook || request.call == LightCall::kAsk;
  const size_t path = has_path ? request.path_bytes : 0;
  return path <= kLightPathMax && bytes == kLightHeadBytes + path;
}

}  // namespace

// ---- batches

void LightBatch::add_open(LightProgram* program, uint32_t handle, LightVia via, const LightRequest& request) {
  JobFs::LightOpen wanted;
  wanted.directory = request.directory;
  wanted.path = std::string_view(request.path, request.path_bytes);
  wanted.flags = static_cast<int>(request.flags);
  wanted.mode = request.mode & 0777;
  wanted.umask = request.umask & 0777;
  wanted.who = &program->who();
  wanted.failed = ENOMEM;  // for what is not tried
  askers_.push_back({program, handle, via});
  wanted_.push_back(std::move(wanted));
}

void LightBatch::serve(JobFs& fs) {
  if (ended_.empty() && wanted_.empty()) return;
  const Status served = contain([&] { fs.serve_light(ended_, wanted_); });
  if (!served.ok()) log_warn("opening files past the kernel: {}", served.message());
  for (size_t i = 0; i < wanted_.size(); ++i)
    askers_[i].program->answer_open(askers_[i].handle, askers_[i].via, &wanted_[i]);
  ended_.clear();
  wanted_.clear();
  askers_.clear();
  used_ = 0;
}

// ---- programs

void LightProgram::stop() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

bool LightProgram::say(LightVia via, const LightAnswer& answer, Bytes argument) const noexcept {
  if (via == LightVia::kPage) {
    page_->answer(answer, argument);
    return true;
  }
  iovec parts[] = {{const_cast<LightAnswer*>(&answer), sizeof(answer)},
                   {const_cast<char*>(argument.data()), argument.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = argument.empty() ? 1 : 2;
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(sizeof(answer) + argument.size());
}

bool LightProgram::take(LightBatch* batch) {
  for (size_t i = 0; i < kAtATime; ++i) {
    LightRequest* const request = batch->next();
    if (request == nullptr) return true;
    const ssize_t got = io::continued(
        [&] { return ::recv(socket_.get(), request, sizeof(*request), MSG_TRUNC | MSG_DONTWAIT); });
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    if (!obey(*request, static_cast<size_t>(got), LightVia::kSocket, batch)) return false;
    if (request->call != LightCall::kClose) return true;  // it waits for the answer
  }
  return true;
}

bool LightProgram::take_from_page(LightBatch* batch) {
  LightRequest* const request = page_ == nullptr ? nullptr : batch->next();
  size_t bytes = 0;
  return request == nullptr || !page_->take(request, &bytes) || obey(*request, bytes, LightVia::kPage, batch);
}

bool LightProgram::take_closes(LightBatch* batch) {
  if (page_ != nullptr) page_->take_closes([&](uint32_t handle) { close(handle, batch); });
  return true;
}

// False: it does not take an answer, or it was no request.
bool LightProgram::obey(LightRequest& request, size_t bytes, LightVia via, LightBatch* batch) {
  if (!is_whole(request, bytes)) {
    log_warn("process {} has sent {} bytes that are no request for a file", who_.thread, bytes);
    return false;
  }
  if (request.call == LightCall::kClose) {
    close(request.handle, batch);
    return true;
  }
  LightAnswer answer;
  std::string argument;
  if (request.call == LightCall::kOpen) {
    const uint32_t handle = free_handle();
    if (handle != 0) {
      batch->add_open(this, handle, via, request);
      batch->take_next();
      return true;
    }
    answer.error = EMFILE;
  } else if (request.call == LightCall::kStat || request.call == LightCall::kReopen ||
             request.call == LightCall::kLook) {
    const Status looked = contain([&] { answer = look(request); });
    if (!looked.ok()) answer.error = looked.posix_error();
  } else if (request.call == LightCall::kAsk) {
    const Status passed = contain([&] { answer = pass_on(request, &argument); });
    if (!passed.ok()) answer.error = passed.posix_error();
  } else {
    log_warn("process {} has sent a request of {} bytes and kind {}, which this server does not know",
             who_.thread, bytes, static_cast<uint32_t>(request.call));
    answer.error = EPROTO;
  }
  return say(via, answer, argument);
}

// With several nodes a close would have to wait for them, also that of a program that is killed.
LightAnswer LightProgram::pass_on(const LightRequest& request, std::string* argument) {
  LightAnswer answer;
  Opened* const opened = find(request.handle);
  if (opened == nullptr) {
    answer.error = EBADF;
  } else if (request.flags == kAskShortCut && fs_.light_waits()) {
    answer.error = EBUSY;
  } else if (request.flags != kAskShortCut && request.flags != kAskMap && request.flags != kAskCommit &&
             request.flags != kAskShow) {
    answer.error = EOPNOTSUPP;
  } else {
    answer.error = fs_.command(*opened->of.file, request.flags, {request.path, request.path_bytes}, argument);
  }
  return answer;
}

LightAnswer LightProgram::look(const LightRequest& request) {
  LightAnswer answer;
  struct stat found;
  Opened* const opened = find(request.handle);
  if (request.call == LightCall::kLook) {
    answer.error = fs_.look_light(request.directory, {request.path, request.path_bytes},
                                  static_cast<int>(request.mode) & (R_OK | W_OK | X_OK), who_, &found);
    if (answer.error == 0) answer.stat = described(found);
  } else if (opened == nullptr) {
    answer.error = EBADF;
  } else if (request.call == LightCall::kStat) {
    answer.error = fs_.attributes(*opened->of.node, &found);
    if (answer.error == 0) answer.stat = described(found);
  } else {
    // Another one each time: what was used, or failed, would be the name of a new file.
    if (!opened->lent.empty()) fs_.take_back(opened->lent);
    opened->lent = fs_.lend(*opened->of.file);
    opened->lent.copy(answer.name, sizeof(answer.name) - 1);
  }
  return answer;
}

LightProgram::Opened* LightProgram::find(uint32_t handle) {
  if (handle == 0 || handle > opens_.size() || opens_[handle - 1].of.file == nullptr) return nullptr;
  return &opens_[handle - 1];
}

// It is promised from now on: free_ has the capacity to take it back.
uint32_t LightProgram::free_handle() {
  if (free_.empty()) {
    if (opens_.size() >= kLightOpensMax) return 0;
    opens_.emplace_back();
    if (free_.capacity() < opens_.size()) free_.reserve(opens_.capacity());
    return static_cast<uint32_t>(opens_.size());
  }
  const uint32_t handle = free_.back();
  free_.pop_back();
  return handle;
}

void LightProgram::answer_open(uint32_t handle, LightVia via, JobFs::LightOpen* tried) noexcept {
  LightAnswer answer;
  answer.error = tried->failed;
  if (tried->failed == 0) {
    opens_[handle - 1].of = std::move(tried->made);
    answer.handle = handle;
  } else {
    free_.push_back(handle);
  }
  if (!say(via, answer)) stop();  // its end comes to take()
}

void LightProgram::close(uint32_t handle, LightBatch* batch) {
  Opened* const opened = find(handle);
  if (opened == nullptr) return;
  if (!opened->lent.empty()) fs_.take_back(opened->lent);
  batch->add_end(std::move(opened->of));
  *opened = {};
  free_.push_back(handle);
}

void LightProgram::end(LightBatch* batch) {
  stop();
  for (uint32_t handle = 1; handle <= opens_.size(); ++handle) close(handle, batch);
}

}  // namespace swale::fs
