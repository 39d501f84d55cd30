// Failures of the C interface as Python exceptions, and interrupts (Ctrl-C) of calls that may take long.
//
// Threads: `call` gives up the interpreter's lock (the GIL) while the C library works, so it is made by a
// thread that holds it; what the library said is copied before another thread may make a Swale call on this
// one.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "swale/swale_arrow.h"

namespace swale::python {

namespace nb = nanobind;

struct Failure {
  int code = SWALE_INTERNAL;
  std::string message;
  std::string file;
  int64_t offset = -1;
  int64_t epoch = -1;
  int64_t partition = -1;

  static Failure of_this_thread();
  static Failure of_stream(const ArrowArrayStream* stream);
  // As an exception of swale._errors.
  [[noreturn]] void raise() const;
};

// Runs a call of the C library, which returns a swale_code, without the GIL. Raises its failure.
template <class Body>
void call(Body&& body) {
  std::optional<Failure> failure;
  {
    const nb::gil_scoped_release without;
    if (body() != SWALE_OK) failure = Failure::of_this_thread();
  }
  if (failure) failure->raise();
}

// Raises a ValueError or TypeError.
[[noreturn]] void raise_value(const std::string& message);
[[noreturn]] void raise_type(const std::string& message);

// Whether this thread is the one that runs Python's signal handlers.
bool is_main_thread();

// Asks Python for signals that have arrived, at most 20 times a second.
class Signals {
 public:
  // True: a signal's handler has raised; the exception is set for this thread. Call without the GIL.
  bool arrived();
  // Raises what the handler has raised.
  void raise_if_arrived() const {
    if (arrived_) throw nb::python_error();
  }

 private:
  uint32_t calls_ = 0;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  bool arrived_ = false;
};

}  // namespace swale::python
