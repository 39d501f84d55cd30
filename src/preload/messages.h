// What this library says to the user: lines on standard error, "swale preload: ...".
//
// Threads: any. Limits: a process says kMessagesMax lines; the last one says that no more come.
#pragma once

namespace swale::preload {

// errno stays.
__attribute__((format(printf, 1, 2))) void tell(const char* format, ...) noexcept;

}  // namespace swale::preload
