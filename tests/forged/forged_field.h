// ForgedField: one number of a file, and how to write another number in its place with checksums that fit.
// Checksums find accidents; a file that came from elsewhere may say anything with right ones.
//
// Threads: values. Used by the tests of this folder: they set each number of each format to what is most
// likely not expected, and ask everything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace swale::forged {

using Content = std::shared_ptr<const std::string>;  // of a whole file

struct ForgedField {
  std::string name;    // "block 3: first_start"
  uint32_t bytes = 0;  // of the number
  uint64_t now = 0;
  std::function<std::string(uint64_t)> forge;  // the file with another number
};
using Fields = std::vector<ForgedField>;

// Makes all checksums of a file fit that cover the field.
using Reseal = std::function<void(std::string*)>;

inline uint64_t number_at(Bytes content, size_t offset, uint32_t bytes) {
  uint64_t number = 0;
  for (uint32_t i = bytes; i > 0; --i) number = number << 8 | static_cast<uint8_t>(content[offset + i - 1]);
  return number;
}

inline void put_number(std::string* content, size_t offset, uint32_t bytes, uint64_t number) {
  for (uint32_t i = 0; i < bytes; ++i) (*content)[offset + i] = static_cast<char>(number >> 8 * i);
}

// Nothing happens if the file is too short for the field.
inline void add_field(Fields* fields, std::string name, const Content& content, size_t offset, uint32_t bytes,
                      const Reseal& reseal) {
  if (offset + bytes > content->size()) return;
  fields->push_back({std::move(name), bytes, number_at(*content, offset, bytes),
                     [content, offset, bytes, reseal](uint64_t number) {
                       std::string changed = *content;
                       put_number(&changed, offset, bytes, number);
                       reseal(&changed);
                       return changed;
                     }});
}

// Names, offsets and lengths of a structure's numbers.
struct Part {
  const char* name;
  size_t offset;
  uint32_t bytes;
};

inline void add_parts(Fields* fields, const std::string& what, const Content& content, size_t begin,
                      const std::vector<Part>& parts, const Reseal& reseal) {
  for (const Part& part : parts)
    add_field(fields, what + ": " + part.name, content, begin + part.offset, part.bytes, reseal);
}

// What is written into a field: the ends of its range and the neighbours of what is right.
inline std::vector<uint64_t> forged_numbers(const ForgedField& field) {
  const uint64_t most = field.bytes >= 8 ? UINT64_MAX : (uint64_t{1} << 8 * field.bytes) - 1;
  std::vector<uint64_t> numbers;
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{1}, (field.now - 1) & most, (field.now + 1) & most, most / 2, most}) {
    const bool known = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    if (number != field.now && !known) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace swale::forged
