// What a file on the backing has, for tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace swale::fs {

// "(missing)", if it is not there.
inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "(missing)";
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace swale::fs
