// What the fuzz targets that read an input piece by piece share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/bytes.h"

namespace swale::fuzz {

// Says which promise was broken.
inline void require(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: a promise is broken\n", file, line);
  std::abort();
}

// Takes the bytes up to the next '\n' (or the end) off the front.
inline std::string take_line(Bytes* input) {
  const size_t end = std::min(input->find('\n'), input->size());
  std::string line(input->substr(0, end));
  input->remove_prefix(std::min(end + 1, input->size()));
  return line;
}

inline Bytes as_bytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace swale::fuzz
