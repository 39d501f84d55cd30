// ErrorPlace: which file, offset, epoch and partition a failure's message names. The house's messages have
// one form: "FILE: offset N: what is wrong with epoch M ...", with what the caller was doing in front. What a
// message does not say is unknown; nothing is guessed from other sources.
//
// Threads: a free function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace swale::capi {

struct ErrorPlace {
  std::string file;     // "" if unknown
  int64_t offset = -1;  // this and the others: -1 if unknown
  int64_t epoch = -1;
  int64_t partition = -1;

  bool operator==(const ErrorPlace&) const = default;
};

ErrorPlace place_in(std::string_view message);

}  // namespace swale::capi
