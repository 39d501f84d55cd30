#include "preload/log_reads.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/log/map_reader.h"
#include "preload/light.h"
#include "preload/next_calls.h"

// How many reads of this process needed no call of the mount. Tests and benchmarks look at it.
extern "C" {
extern __attribute__((visibility("default"))) std::atomic<uint64_t> swale_preload_reads_in_logs;
constinit std::atomic<uint64_t> swale_preload_reads_in_logs = 0;
}

namespace swale::preload {
namespace {

constexpr uint8_t kReadsBefore = 2;        // a map costs about as much as two reads through the mount
constexpr uint8_t kPatienceMax = 63;       // reads between questions
constexpr size_t kAlwaysAsks = 256 << 10;  // a read of so many bytes is worth one

// Description::map: the server's number here + 1, the slot, the ticket.
constexpr unsigned kTicketBits = 48, kSlotBits = 10;
static_assert(fs::kMapSlotsMax <= 1 << kSlotBits && kServersMax < 1 << (64 - kTicketBits - kSlotBits));
constexpr uint64_t packed_map(uint32_t server, uint32_t slot, uint64_t ticket) {
  return uint64_t{server + 1} << (kTicketBits + kSlotBits) | uint64_t{slot} << kTicketBits | ticket;
}

enum ServerState : uint32_t { kFree, kOpening, kOpen, kFailed };
struct Server {
  std::atomic<uint32_t> state = kFree;
  std::atomic<uint64_t> number = 0;  // of a server that was met
  fs::MapReader reader;
};
constinit Server servers[kServersMax];

// kServersMax: none, at least now.
uint32_t server_of(const fs::MapRequest& answer) {
  for (uint32_t i = 0; i < kServersMax; ++i) {
    Server& each = servers[i];
    uint32_t state = each.state.load(std::memory_order_acquire);
    if (state == kFree && each.state.compare_exchange_strong(state, kOpening)) {
      each.number.store(answer.server, std::memory_order_relaxed);
      state = each.reader.open(answer) ? kOpen : kFailed;
      each.state.store(state, std::memory_order_release);
    }
    // While another thread opens one, perhaps this, the mount reads.
    if (state == kOpening) return kServersMax;
    if (each.number.load(std::memory_order_relaxed) == answer.server) return state == kOpen ? i : kServersMax;
  }
  return kServersMax;
}

// An answer of which nobody had any use makes the next one rarer.
bool is_time_to_ask(Description& held, size_t bytes) {
  const uint8_t waits = held.read_waits.load(std::memory_order_relaxed);
  if (waits > 0 && bytes < kAlwaysAsks) {
    held.read_waits.store(waits - 1, std::memory_order_relaxed);
    return false;
  }
  const bool was_of_use = held.map_was_used.exchange(false, std::memory_order_relaxed);
  const uint8_t before = held.read_patience.load(std::memory_order_relaxed);
  const int patience = was_of_use ? 0 : 2 * before + 1;
  held.read_patience.store(static_cast<uint8_t>(patience < kPatienceMax ? patience : kPatienceMax));
  held.read_waits.store(held.read_patience.load(std::memory_order_relaxed));
  return true;
}

bool ask_map(Description& held, int fd, uint64_t offset, size_t bytes) {
  if (!is_time_to_ask(held, bytes)) return false;
  const int kept = errno;
  fs::MapRequest request;
  request.offset = offset;
  uint32_t server = kServersMax;
  if (ask_tree(held, fd, fs::kAskMap, &request, sizeof(request)) == 0) {
    server = server_of(request);
    if (server < kServersMax && request.slot < fs::kMapSlotsMax && request.ticket <= fs::kTicketMax)
      held.map.store(packed_map(server, request.slot, request.ticket), std::memory_order_release);
  } else if (errno != EAGAIN && errno != EBUSY && errno != EINTR && errno != ENOMEM && errno != ENOSPC) {
    held.reads.store(false, std::memory_order_relaxed);
  }
  errno = kept;
  return server < kServersMax;
}

using How = fs::MapReader::How;
fs::MapReader::Outcome read_by_map(Description& held, uint64_t offset, void* out, size_t bytes) {
  const uint64_t map = held.map.load(std::memory_order_acquire);
  if (map == 0) return {};
  const uint64_t ticket = map & fs::kTicketMax;
  const auto slot = static_cast<uint32_t>(map >> kTicketBits) & ((1u << kSlotBits) - 1);
  fs::MapReader& reader = servers[(map >> (kTicketBits + kSlotBits)) - 1].reader;
  const auto outcome = reader.read(slot, ticket, offset, out, bytes);
  if (outcome.how != How::kPart && outcome.how != How::kAll) return outcome;
  if (!held.map_was_used.load(std::memory_order_relaxed)) {
    held.map_was_used.store(true, std::memory_order_relaxed);
    held.read_waits.store(0, std::memory_order_relaxed);
  }
  swale_preload_reads_in_logs.fetch_add(1, std::memory_order_relaxed);
  return outcome;
}

// What logs have of it. kNoMap is kNothing here.
fs::MapReader::Outcome read_in_logs(Description& held, int fd, uint64_t offset, void* out, size_t bytes) {
  if (!held.reads.load(std::memory_order_relaxed) || bytes == 0) return {};
  const auto outcome = read_by_map(held, offset, out, bytes);
  if (outcome.how != How::kNoMap || !ask_map(held, fd, offset, bytes)) return outcome;
  return read_by_map(held, offset, out, bytes);
}

}  // namespace

void begin_reads(Description& held) noexcept {
  const bool is_light = held.light.load(std::memory_order_relaxed) != 0;  // reads nothing through the mount
  held.read_waits.store(is_light ? 0 : kReadsBefore, std::memory_order_relaxed);
  held.reads.store(true, std::memory_order_relaxed);
}

ssize_t read_at(Description& held, int fd, uint64_t offset, void* out, size_t bytes) noexcept {
  const auto outcome = read_in_logs(held, fd, offset, out, bytes);
  if (outcome.how == How::kAll) return static_cast<ssize_t>(outcome.bytes);
  const size_t done = outcome.how == How::kPart ? outcome.bytes : 0;
  be_real(held, fd);
  const int kept = errno;
  const ssize_t more = next<decltype(::pread)>(calls::pread)(fd, static_cast<char*>(out) + done, bytes - done,
                                                             static_cast<off_t>(offset + done));
  if (more >= 0 || done == 0) return static_cast<ssize_t>(done) + more;
  errno = kept;
  return static_cast<ssize_t>(done);
}

// What logs do not have as a whole is read through the mount as a whole.
ssize_t read_parts_at(Description& held, int fd, uint64_t offset, const iovec* parts, int count) noexcept {
  size_t done = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len == 0) continue;
    const auto outcome = read_in_logs(held, fd, offset + done, parts[i].iov_base, parts[i].iov_len);
    if (outcome.how != How::kAll) {
      be_real(held, fd);
      return next<decltype(::preadv)>(calls::preadv)(fd, parts, count, static_cast<off_t>(offset));
    }
    done += outcome.bytes;
    if (outcome.bytes < parts[i].iov_len) break;
  }
  return static_cast<ssize_t>(done);
}

void announce_mapping(int fd) noexcept { raw(SYS_ioctl, fd, static_cast<long>(fs::kAskPages), 0L); }

void settle_reads_after_fork() noexcept {
  for (Server& each : servers) {
    uint32_t opening = kOpening;
    each.state.compare_exchange_strong(opening, kFailed);
    if (each.state.load() == kOpen) each.reader.settle_after_fork();
  }
}

}  // namespace swale::preload
