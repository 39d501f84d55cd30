// Which sanitizer this program was built with, for tests that count what a sanitizer changes. Constants.
#pragma once

namespace swale::test {

#if defined(__has_feature)  // clang
// It kills a child of fork that starts threads, if its parent had some.
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
// It keeps memory that was freed, to see who uses it.
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#endif

}  // namespace swale::test
