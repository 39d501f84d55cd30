// SWALE_FUZZ_TARGET(name) { ... } is what a fuzz target does with `data` and `size`; it returns 0.
// libFuzzer's programs have one target each; the replay (replay.cc) has all, by name, in one program, which
// compiles in a fifth of the time.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef SWALE_FUZZ_REPLAY
namespace swale::fuzz {

// One of the program's targets. They are linked in a list before main() begins.
class Target {
 public:
  using Run = int(const uint8_t* data, size_t size);
  Target(const char* name, Run* run);
  static Run* named(const char* name);  // nullptr: there is none

 private:
  const char* name_;
  Run* run_;
  const Target* next_;
};

}  // namespace swale::fuzz
#define SWALE_FUZZ_TARGET(name)                                        \
  static int run_##name(const uint8_t*, size_t);                       \
  static const ::swale::fuzz::Target name##_target(#name, run_##name); \
  static int run_##name(const uint8_t* data, size_t size)
#else
#define SWALE_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#endif
