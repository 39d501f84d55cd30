// A decoder that believes its input: the replay must fail on it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] != '{') std::exit(9);
  return 0;
}
