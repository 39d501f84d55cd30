// How benchmarks that drive the library's inside give up: die() with what the Status says.
#pragma once

#include <utility>

#include "base/status.h"
#include "bench/arguments.h"

namespace swale::bench {

inline void check(const Status& status) {
  if (!status.ok()) die(status.to_string());
}
template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace swale::bench
