#include "fs/log/light_caller.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "fs/log/attach_client.h"

namespace swale::fs {
namespace {

constexpr int64_t kSecondNanos = 1'000'000'000;
constexpr int64_t kSleepNanos = kSecondNanos / 20;  // asleep, until it looks whether the server lives
// To sleep and to be woken costs about so much. Where no processor is free for the server the answer does not
// come meanwhile: then the next answers are waited for asleep, twice as many each time.
constexpr int64_t kSpinNanos = 10'000;
constexpr int kSpinsAtATime = 16;
constexpr uint32_t kPauseMax = 1 << 10;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now() {
  timespec at = {};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * kSecondNanos + at.tv_nsec;
}

long word(const void* value) { return reinterpret_cast<long>(value); }

void ring(const LightWay& way) {
  const uint64_t one = 1;
  way.call(SYS_write, static_cast<long>(way.bell), word(&one), static_cast<long>(sizeof(one)));
}

// After what the server is to see.
void ring_if_asleep(const LightWay& way) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (way.page->listens.load(std::memory_order_relaxed) == 0) ring(way);
}

bool server_is_gone(const LightWay& way) {
  char byte = 0;
  const long got = way.call(SYS_recvfrom, static_cast<long>(way.socket), word(&byte), 1L,
                            static_cast<long>(MSG_PEEK | MSG_DONTWAIT), 0L, 0L);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool spins_until(LightPage& page, uint32_t number) {
  if (page.spins_after > 0) {
    --page.spins_after;
    return page.answered.load(std::memory_order_acquire) == number;
  }
  const int64_t until = now() + kSpinNanos;
  do {
    for (int i = 0; i < kSpinsAtATime; ++i) {
      if (page.answered.load(std::memory_order_acquire) == number) {
        page.pause = 1;
        return true;
      }
      relax();
    }
  } while (now() < until);
  page.pause = page.pause < kPauseMax ? page.pause * 2 + 1 : kPauseMax;
  page.spins_after = page.pause;
  return false;
}

// 0, or an errno.
int wait_for(const LightWay& way, uint32_t number) {
  LightPage& page = *way.page;
  if (spins_until(page, number)) return 0;
  const int64_t until = now() + kAnswerSeconds * kSecondNanos;
  for (;;) {
    const uint32_t seen = page.answered.load(std::memory_order_acquire);
    if (seen == number) return 0;
    page.waits.store(1, std::memory_order_seq_cst);
    if (page.answered.load(std::memory_order_seq_cst) == number) return 0;
    const timespec time = {0, kSleepNanos};
    const long woken = way.call(SYS_futex, word(&page.answered), static_cast<long>(FUTEX_WAIT),
                                static_cast<long>(seen), word(&time), 0L, 0L);
    if (woken == 0 || errno != ETIMEDOUT) continue;
    if (page.answered.load(std::memory_order_acquire) == number) return 0;
    if (server_is_gone(way)) return ENOTCONN;
    if (now() >= until) return ETIMEDOUT;
  }
}

// The length of the answer, or -errno.
long ask_by_page(const LightWay& way, const LightRequest& request, size_t bytes, LightAnswer* answer,
                 void* argument, size_t size) {
  LightPage& page = *way.page;
  const uint32_t number = page.asked.load(std::memory_order_relaxed) + 1;
  ::memcpy(&page.request, &request, bytes);
  page.request_bytes.store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
  page.asked.store(number, std::memory_order_release);
  ring_if_asleep(way);
  if (const int failed = wait_for(way, number); failed != 0) return -failed;
  const size_t got = page.answer_bytes.load(std::memory_order_relaxed);
  if (got < sizeof(*answer) || got > sizeof(*answer) + size) return -ENOTCONN;
  ::memcpy(answer, page.answer, sizeof(*answer));
  if (got > sizeof(*answer)) ::memcpy(argument, page.answer + sizeof(*answer), got - sizeof(*answer));
  return static_cast<long>(got);
}

long ask_by_socket(const LightWay& way, const LightRequest& request, size_t bytes, LightAnswer* answer,
                   void* argument, size_t size) {
  iovec parts[] = {{answer, sizeof(*answer)}, {argument, size}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const long socket = way.socket, length = static_cast<long>(bytes);
  if (way.call(SYS_sendto, socket, word(&request), length, static_cast<long>(MSG_NOSIGNAL), 0L, 0L) != length)
    return -ENOTCONN;
  long got = 0;
  do {
    got = way.call(SYS_recvmsg, socket, word(&message), 0L);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return -ETIMEDOUT;
  return (message.msg_flags & MSG_TRUNC) == 0 ? got : -ENOTCONN;
}

}  // namespace

int hear_welcome(SystemCall call, int socket, LightWelcome* said, int* bell, LightPage** page) noexcept {
  iovec part = {said, sizeof(*said)};
  alignas(cmsghdr) char control[CMSG_SPACE(kLightDescriptors * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  *bell = -1;
  *page = nullptr;
  const long got =
      call(SYS_recvmsg, static_cast<long>(socket), word(&message), static_cast<long>(MSG_CMSG_CLOEXEC));
  int passed[kLightDescriptors] = {-1, -1};  // the page, then the bell
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (got >= 0 && head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
    ::memcpy(passed, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
  const bool whole = got == static_cast<long>(sizeof(*said)) && said->magic == kLightMagic &&
                     said->version == kLightVersion && said->error == 0;
  const auto close = [&](int fd) {
    if (fd >= 0) call(SYS_close, static_cast<long>(fd));
  };
  if (whole && passed[1] >= 0) {
    const long mapped =
        call(SYS_mmap, 0L, static_cast<long>(kLightPageBytes), static_cast<long>(PROT_READ | PROT_WRITE),
             static_cast<long>(MAP_SHARED), static_cast<long>(passed[0]), 0L);
    if (mapped != -1 && call(SYS_madvise, mapped, static_cast<long>(kLightPageBytes),
                             static_cast<long>(MADV_DONTFORK)) == 0) {
      *page = reinterpret_cast<LightPage*>(mapped);
      *bell = passed[1];
      passed[1] = -1;
    }
  }
  for (const int each : passed) close(each);
  if (!whole) return got == static_cast<long>(sizeof(*said)) && said->error != 0 ? said->error : EPROTO;
  return 0;
}

int ask_light(const LightWay& way, const LightRequest& request, LightAnswer* answer, void* argument,
              size_t size, bool* lost) noexcept {
  const size_t bytes = kLightHeadBytes + request.path_bytes;
  const bool fits = bytes <= sizeof(LightRequest) && size <= kLightArgumentMax;
  const long got = way.page != nullptr && fits ? ask_by_page(way, request, bytes, answer, argument, size)
                                               : ask_by_socket(way, request, bytes, answer, argument, size);
  const long none = sizeof(*answer), all = none + static_cast<long>(size);
  if (got == all || (got == none && answer->error != 0)) return answer->error;
  *lost = true;
  return got < 0 ? static_cast<int>(-got) : ENOTCONN;
}

void close_light(const LightWay& way, uint32_t handle) noexcept {
  if (way.page != nullptr) {
    LightPage& page = *way.page;
    const uint32_t first = page.closed.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < kLightClosesMax; ++i) {
      std::atomic<uint32_t>& each = page.closes[(first + i) % kLightClosesMax];
      uint32_t free = 0;
      if (each.load(std::memory_order_relaxed) != 0 || !each.compare_exchange_strong(free, handle)) continue;
      page.closed.fetch_add(1, std::memory_order_release);
      return ring_if_asleep(way);
    }
  }
  LightRequest request;
  request.call = LightCall::kClose;
  request.handle = handle;
  way.call(SYS_sendto, static_cast<long>(way.socket), word(&request), static_cast<long>(kLightHeadBytes),
           static_cast<long>(MSG_NOSIGNAL), 0L, 0L);
}

}  // namespace swale::fs
