// Before calls that take descriptors in other ways than the rest of this library sees placeholders (light.h)
// become real. And the umask, by which files are made.
#include <errno.h>
#include <sys/stat.h>

#include "preload/light.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {

bool stays_light(int fd) noexcept { return stays_light(Held(fd)); }

bool stays_light(const Held& held) noexcept {
  if (!held || held->light.load(std::memory_order_acquire) == 0) return false;
  errno = EBADF;
  return true;
}

extern "C" {

mode_t swale_take_umask(mode_t mask) {
  const mode_t before = next<mode_t(mode_t)>(calls::umask)(mask);
  note_umask(mask);
  if (is_unmounted()) forget_umask_unmounted();
  return before;
}

// The descriptor is the first argument.
void swale_before_real(int fd) {
  ready();
  const Held held(fd);
}

// Descriptors stand in structures, or elsewhere.
void swale_before_reals() {
  ready();
  make_all_real();
}

}  // extern "C"

}  // namespace swale::preload
