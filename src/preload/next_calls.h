// The functions of the libraries that come after this one: the C library's, or those of another preload that
// wraps them. They are looked up by the table of entries (calls.txt), all at once, when the library is
// loaded, or at the first call if that comes earlier: a signal handler never looks one up.
//
// Threads: any. Errors: a function that the C library does not have sets ENOSYS and returns -1.
#pragma once

#include <sys/types.h>

namespace swale::preload {

namespace calls {
enum Number : unsigned {
#define SWALE_CALL(name) name,
#include <call_names.inc>  // made of calls.txt
#undef SWALE_CALL
  kCount
};
}  // namespace calls

void look_up_next_calls() noexcept;

}  // namespace swale::preload

extern "C" {
extern __attribute__((visibility("hidden"))) void* swale_next_calls[swale::preload::calls::kCount];
}

namespace swale::preload {

inline void ready() {
  if (swale_next_calls[0] == nullptr) look_up_next_calls();
}

template <class Function>
Function* next(calls::Number number) {
  ready();
  return reinterpret_cast<Function*>(swale_next_calls[number]);
}

inline long word_of(long value) { return value; }
inline long word_of(const volatile void* value) { return reinterpret_cast<long>(value); }

// A system call that no library sees.
template <class... Arguments>
long raw(long number, Arguments... arguments) {
  return next<long(long, ...)>(calls::syscall)(number, word_of(arguments)...);
}

}  // namespace swale::preload
