#include "fs/job/job_locks.h"

#include "base/contain.h"
#include "base/log.h"
#include "fs/job/job_files.h"

namespace swale::fs {
namespace {

const meta::FileId& id_of(OpenFile& file) { return JobFile::of(file).node.id; }
uint64_t number_of(OpenFile& file) { return reinterpret_cast<uint64_t>(&file); }

constexpr int kTries = 8;  // to get the memory for the end of a lock

int answer_of(const Status& status) {
  if (!status.ok()) log_error("{}", status.message());
  return status.posix_error();
}

}  // namespace

void JobLocks::set(OpenFile& file, const FileLock& wanted, bool waits, uint64_t request) {
  int failed = 0;
  if (wanted.type != LockType::kWrite) {
    const Status contained = contain([&] { failed = commit_(file); });
    if (!contained.ok()) failed = contained.posix_error();
  }
  if (failed != 0 && wanted.type == LockType::kRead) return remote_.refuse(request, failed);
  remote_.set(id_of(file), number_of(file), wanted, waits, request, failed);
}

int JobLocks::get(OpenFile& file, const FileLock& wanted, FileLock* in_the_way) {
  const auto found = remote_.get(id_of(file), wanted);
  if (found.ok()) *in_the_way = *found;
  return answer_of(found.status());
}

int JobLocks::end_owner(OpenFile& file, uint64_t owner) {
  return answer_of(remote_.end_owner(id_of(file), owner));
}

void JobLocks::release(OpenFile& file) noexcept {
  Status ended;
  for (int tries = 0; tries < kTries; ++tries) {
    ended = contain([&] { return remote_.end_handle(id_of(file), number_of(file)); });
    if (ended.code() != Code::kResourceExhausted) break;
  }
  static_cast<void>(answer_of(ended));
}

}  // namespace swale::fs
