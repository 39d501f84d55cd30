#include "preload/next_calls.h"

#include <dlfcn.h>
#include <errno.h>

namespace swale::preload {
namespace {

constexpr const char* kNames[] = {
#define SWALE_CALL(name) #name,
#include <call_names.inc>
#undef SWALE_CALL
};

long not_there() {
  errno = ENOSYS;
  return -1;
}

__attribute__((constructor)) void look_up_early() { look_up_next_calls(); }

}  // namespace

// Another thread may do the same at the same time, with the same results. The first entry is the last to be
// written: it says that all are there.
void look_up_next_calls() noexcept {
  const int kept = errno;
  for (unsigned i = calls::kCount; i-- > 0;) {
    void* const found = ::dlsym(RTLD_NEXT, kNames[i]);
    __atomic_store_n(&swale_next_calls[i], found != nullptr ? found : reinterpret_cast<void*>(not_there),
                     __ATOMIC_RELEASE);
  }
  errno = kept;
}

}  // namespace swale::preload

extern "C" {

void* swale_next_calls[swale::preload::calls::kCount];

// `swale run --preload` asks a program whether it has this (tools/preload.cc).
extern __attribute__((visibility("default"))) const char swale_preload_version[];
const char swale_preload_version[] = SWALE_VERSION_TEXT;
}
