#include "io/uring_queue.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <numeric>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "io/posix_file.h"

namespace swale::io {
namespace {

constexpr uint64_t kEventTag = UINT64_MAX;

// The kernel's own limit is 2 GiB less a page; the remainder follows as after any short transfer.
constexpr size_t kTransferBytesMax = kGiB;

unsigned transfer_bytes(size_t missing) {
  return static_cast<unsigned>(std::min(missing, kTransferBytesMax));
}

// Requires an operation that goes through the ring: its file is a PosixFile.
PosixFile& posix_file(const Operation& operation) { return static_cast<PosixFile&>(*operation.file); }

// The remaining bytes of a transfer.
Operation rest_of(const Operation& operation, size_t done) {
  Operation rest = operation;
  rest.offset += done;
  if (rest.kind == Operation::Kind::kRead) rest.into = rest.into.subspan(done);
  if (rest.kind == Operation::Kind::kWrite) rest.from = rest.from.substr(done);
  return rest;
}

Status worded_failure(const Operation& operation, int error_number) {
  const PosixFile& file = posix_file(operation);
  switch (operation.kind) {
    case Operation::Kind::kRead:
      return file.failure(PosixFile::Access::kRead, error_number, operation.offset, operation.into.size());
    case Operation::Kind::kWrite:
      return file.failure(PosixFile::Access::kWrite, error_number, operation.offset, operation.from.size());
    case Operation::Kind::kSync:
      break;
  }
  return file.sync_failure(error_number);
}

Status failure(const Operation& operation, int error_number) noexcept {
  return failure_without_throw([&] { return worded_failure(operation, error_number); });
}

}  // namespace

struct UringQueue::Ring {
  io_uring kernel{};
  bool open = false;

  // The kernel reports completions when this thread enters it, instead of interrupting the thread (5.19 and
  // later).
  int create(unsigned entries) {
    int result = io_uring_queue_init(entries, &kernel, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (result == -EINVAL) result = io_uring_queue_init(entries, &kernel, 0);
    open = result == 0;
    return result;
  }
  ~Ring() {
    if (open) io_uring_queue_exit(&kernel);
  }
};

Result<std::unique_ptr<IoQueue>> UringQueue::make(size_t depth, ChangeAnswer change) {
  depth = std::clamp<size_t>(depth, 1, kDepthMax);
  auto ring = std::make_unique<Ring>();
  const int created = ring->create(static_cast<unsigned>(depth + 1));  // one for the event
  if (created < 0) {
    return errno_status(-created,
                        fmt::format("making an io_uring for {} operations (see kernel.io_uring_disabled, "
                                    "seccomp, the limit on locked memory)",
                                    depth));
  }
  // 5.7 has plain reads and writes, and a read of an event descriptor occupies no kernel thread.
  if ((ring->kernel.features & IORING_FEAT_FAST_POLL) == 0)
    return error(Code::kUnsupported, Scope::kNode, "io_uring: this kernel's is too old; 5.7 is needed");
  Descriptor event(::eventfd(0, EFD_CLOEXEC));
  if (!event.valid()) return errno_status(errno, "making an event descriptor");
  return std::unique_ptr<IoQueue>(
      new UringQueue(depth, std::move(ring), std::move(event), std::move(change)));
}

UringQueue::UringQueue(size_t depth, std::unique_ptr<Ring> ring, Descriptor event, ChangeAnswer change)
    : owner_(::getpid()),
      ring_(std::move(ring)),
      event_(std::move(event)),
      change_(std::move(change)),
      slots_(depth),
      free_(depth) {
  std::iota(free_.rbegin(), free_.rend(), size_t{0});
}

UringQueue::~UringQueue() {
  if (inherited()) return;  // operations in flight belong to the parent; only unmap the ring
  while (busy() > 0) {
    enter(busy());
    reap();
  }
  // The kernel must not write to event_count_ later.
  if (event_awaited_ && broken_.ok()) {
    const uint64_t one = 1;
    static_cast<void>(continued([&] { return ::write(event_.get(), &one, sizeof(one)); }));
  }
  while (event_awaited_ && broken_.ok()) {
    enter(1);
    reap();
  }
}

bool UringQueue::inherited() const { return ::getpid() != owner_; }

bool UringQueue::goes_through_ring(const Operation& operation) const {
  if (dynamic_cast<PosixFile*>(operation.file) == nullptr) return false;
  if (operation.kind == Operation::Kind::kSync) return true;
  const size_t bytes =
      operation.kind == Operation::Kind::kRead ? operation.into.size() : operation.from.size();
  // The kernel would read an offset of -1 as the descriptor's own position.
  return bytes > 0 && operation.offset <= static_cast<uint64_t>(INT64_MAX);
}

void UringQueue::submit(std::span<const Operation> operations) {
  if (inherited()) {
    for (const Operation& operation : operations) refused_.push_back(refused_after_fork(operation));
    return;
  }
  reserve_more(&done_, busy() + operations.size());
  for (const Operation& operation : operations) {
    if (!goes_through_ring(operation)) {
      done_.push_back(execute(operation));
      continue;
    }
    while (free_.empty()) {
      enter(1);
      reap();
    }
    if (!broken_.ok()) {
      done_.push_back({operation.tag, 0, broken_});
      continue;
    }
    const size_t index = free_.back();
    free_.pop_back();
    slots_[index] = {operation};
    start(index);
  }
  enter(0);
}

void UringQueue::start(size_t index) {
  Slot& slot = slots_[index];
  const Operation& operation = slot.operation;
  PosixFile& file = posix_file(operation);
  io_uring_sqe* entry = io_uring_get_sqe(&ring_->kernel);
  assert(entry != nullptr && "the ring has an entry for each slot and one for the event");
  switch (operation.kind) {
    case Operation::Kind::kRead: {
      const MutableBytes rest = operation.into.subspan(slot.done);
      const unsigned bytes = transfer_bytes(rest.size());
      const uint64_t offset = operation.offset + slot.done;
      const PosixFile::Route way = file.route(PosixFile::Access::kRead, offset, rest.data(), bytes);
      slot.direct = way.direct;
      io_uring_prep_read(entry, way.fd, rest.data(), bytes, offset);
      break;
    }
    case Operation::Kind::kWrite: {
      const Bytes rest = operation.from.substr(slot.done);
      const unsigned bytes = transfer_bytes(rest.size());
      const uint64_t offset = operation.offset + slot.done;
      const PosixFile::Route way = file.route(PosixFile::Access::kWrite, offset, rest.data(), bytes);
      slot.direct = way.direct;
      io_uring_prep_write(entry, way.fd, rest.data(), bytes, offset);
      break;
    }
    case Operation::Kind::kSync:
      io_uring_prep_fsync(entry, file.descriptor(), IORING_FSYNC_DATASYNC);
      break;
  }
  io_uring_sqe_set_data64(entry, index);
}

void UringQueue::enter(size_t at_least) {
  if (!broken_.ok() || (at_least == 0 && io_uring_sq_ready(&ring_->kernel) == 0)) return;
  const int result = io_uring_submit_and_wait(&ring_->kernel, static_cast<unsigned>(at_least));
  // A signal, or a kernel short of memory: callers check for completions, and call enter again if they must
  // wait on.
  if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) return;
  fail_all(failure_without_throw(
      [&] { return errno_status(-result, "io_uring: entering the kernel; the queue fails"); }));
}

void UringQueue::sleep(size_t at_least) {
  if (at_least > 1) return enter(at_least);
  if (!event_awaited_) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_->kernel);
    assert(entry != nullptr && "the ring has an entry for each slot and one for the event");
    io_uring_prep_read(entry, event_.get(), &event_count_, sizeof(event_count_), 0);
    io_uring_sqe_set_data64(entry, kEventTag);
    event_awaited_ = true;
  }
  Wake expected = Wake::kNone;
  if (!wake_.compare_exchange_strong(expected, Wake::kSleeping)) return;
  enter(1);
  expected = Wake::kSleeping;
  wake_.compare_exchange_strong(expected, Wake::kNone);
}

void UringQueue::reap() {
  std::array<io_uring_cqe*, 64> entries;
  unsigned count = 0;
  do {
    if (!broken_.ok()) return;
    count = io_uring_peek_batch_cqe(&ring_->kernel, entries.data(), entries.size());
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t tag = io_uring_cqe_get_data64(entries[i]);
      const int result = entries[i]->res;
      io_uring_cq_advance(&ring_->kernel, 1);  // once, even if completing it throws
      if (tag == kEventTag) {
        event_awaited_ = false;
      } else {
        complete(tag, result);
      }
    }
  } while (count == entries.size());
  enter(0);  // what was started again
}

void UringQueue::complete(size_t index, int result) {
  Slot& slot = slots_[index];
  const Operation& operation = slot.operation;
  if (change_) result = change_(operation, result);
  if (result < 0) {
    if (slot.direct && posix_file(operation).gives_up_direct(-result)) return start(index);
    const bool writes = operation.kind == Operation::Kind::kWrite;
    if (writes && !slot.made_space && posix_file(operation).makes_space(-result)) {
      slot.made_space = true;
      return start(index);
    }
    if (result == -EINTR || result == -EAGAIN) {
      Completion completion = execute(rest_of(operation, slot.done));
      completion.bytes += slot.done;
      return finish(index, std::move(completion));
    }
    return finish(index, {operation.tag, 0, contain([&] { return failure(operation, -result); })});
  }
  slot.done += static_cast<size_t>(result);
  switch (operation.kind) {
    case Operation::Kind::kRead:
      if (result > 0 && slot.done < operation.into.size()) return start(index);
      return finish(index, {operation.tag, slot.done, {}});
    case Operation::Kind::kWrite:
      if (result == 0)
        return finish(index, {operation.tag, 0, contain([&] { return failure(operation, EIO); })});
      if (slot.done < operation.from.size()) return start(index);
      break;
    case Operation::Kind::kSync:
      break;
  }
  finish(index, {operation.tag, 0, {}});
}

void UringQueue::finish(size_t index, Completion completion) {
  slots_[index].operation.file = nullptr;
  done_.push_back(std::move(completion));
  free_.push_back(index);
}

void UringQueue::fail_all(const Status& status) {
  broken_ = status;
  for (size_t index = 0; index < slots_.size(); ++index)
    if (slots_[index].operation.file != nullptr) finish(index, {slots_[index].operation.tag, 0, status});
  try {
    log_error("{}", status.message());
  } catch (const std::bad_alloc&) {  // each operation reports it
  }
}

size_t UringQueue::wait(size_t at_least, std::vector<Completion>* out) {
  if (inherited()) return hand_out(&refused_, out);
  reap();
  bool woken = take_wake();
  while (!woken && done_.size() < at_least && busy() > 0) {
    sleep(std::min(at_least - done_.size(), busy()));
    reap();
    woken = take_wake();
  }
  return hand_out(&done_, out);
}

void UringQueue::wake() {
  if (wake_.exchange(Wake::kWoken) != Wake::kSleeping) return;
  const uint64_t one = 1;
  // Fails only if 2^64 wakes were unread.
  static_cast<void>(continued([&] { return ::write(event_.get(), &one, sizeof(one)); }));
}

bool UringQueue::take_wake() {
  Wake expected = Wake::kWoken;
  return wake_.compare_exchange_strong(expected, Wake::kNone);
}

size_t UringQueue::in_flight() const { return inherited() ? refused_.size() : done_.size() + busy(); }

}  // namespace swale::io
