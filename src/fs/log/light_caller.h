// A program's half of fs.descriptors=light: it meets the server, asks it, and tells it of closes
// (light_format.h), by its page (light_page.h) or, without one, by its socket.
//
// Threads: ask_light one at a time for a way; close_light any, and signal handlers. A child of fork asks
// nobody by its parent's way.
// Errors: errnos. A server that does not answer within kAnswerSeconds: ETIMEDOUT, and what was asked for may
// have been done, or be done later; one that is gone: ENOTCONN. *lost: nobody may ask again by this way.
// Needs: libc only: no C++ run time (it goes into a preload library).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/log/light_page.h"

namespace swale::fs {

using SystemCall = long (*)(long number, ...);  // -1, and errno

struct LightWay {
  SystemCall call = nullptr;
  int socket = -1;
  int bell = -1;              // an eventfd
  LightPage* page = nullptr;  // none: the socket is asked
};

// What the server says on a socket that has just been connected, and the page and the bell, if it gives any.
// The caller closes the bell.
int hear_welcome(SystemCall call, int socket, LightWelcome* said, int* bell, LightPage** page) noexcept;

// What the answer says. `argument` gets what follows the answer.
int ask_light(const LightWay& way, const LightRequest& request, LightAnswer* answer, void* argument,
              size_t size, bool* lost) noexcept;
void close_light(const LightWay& way, uint32_t handle) noexcept;

}  // namespace swale::fs
