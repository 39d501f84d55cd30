// LightPage: by which a program asks the server of its node to open files (light_format.h), without a call of
// the kernel while the server is awake.
//
//   program                                         server
//   request, request_bytes; asked = n ────────────► a copy of the request, which it checks and does
//   listens == 0: rings the bell                    before it sleeps: listens = 0, and a last look
//   spins shortly, then waits = 1 and sleeps  ◄──── answer, answer_bytes; answered = n; wakes it if it waits
//   closes[i] = handle; ++closed ─────────────────► takes the handle away, and closes it; no answer
//
// One program has the page, and one thread of it asks at a time. What it writes there is of no matter to
// others: the server copies each request before it looks at it, reads nothing back that it has written, and
// does no more in a round for one that asks without waiting for answers.
// The server makes the page, in memory that nobody can shorten. A child of fork has none (MADV_DONTFORK).
//
// Needs: the system's headers (the client's half goes into a preload library).
// Limits: one request at a time, whose answer fits; what does not goes by the socket; kLightClosesMax closes
// that the server has not seen, others go by the socket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/log/light_format.h"

namespace swale::fs {

inline constexpr size_t kLightClosesMax = 16;
inline constexpr size_t kLightPageBytes = 4096;
inline constexpr size_t kLightPageAnswerMax = sizeof(LightAnswer) + kLightArgumentMax;

struct LightPage {
  // The program's.
  alignas(64) std::atomic<uint32_t> asked;
  std::atomic<uint32_t> request_bytes;
  std::atomic<uint32_t> closed;  // how many handles were put
  uint32_t spins_after;          // its own: so many answers are waited for asleep
  uint32_t pause;
  alignas(64) std::atomic<uint32_t> closes[kLightClosesMax];  // 0: free
  // The server's; `waits` is the program's to set, and the server's to clear.
  alignas(64) std::atomic<uint32_t> answered;  // a futex
  std::atomic<uint32_t> waits;
  std::atomic<uint32_t> listens;
  std::atomic<uint32_t> answer_bytes;
  alignas(64) LightRequest request;
  alignas(64) char answer[kLightPageAnswerMax];  // LightAnswer, and the argument of kAsk
};
static_assert(sizeof(LightPage) <= kLightPageBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace swale::fs
