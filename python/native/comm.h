// The caller's communicator, as the library sees it: an allgather that calls back into Python.
//
// Threads: the library calls back on the thread that made the call, which has given up the GIL by then.
// Errors: what the callback raises ends the library's call; `raise` raises it again.
#pragma once

#include <nanobind/nanobind.h>

#include "swale/swale.h"

namespace swale::python {

namespace nb = nanobind;

class Comm {
 public:
  // `allgather(send, receive)` gets two buffers; None: a job of this process alone, or of a launcher's ranks.
  Comm(nb::object allgather, int rank, int size) : allgather_(std::move(allgather)) {
    comm_ = {.struct_bytes = sizeof comm_, .rank = rank, .size = size, .context = this, .allgather = &gather};
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const swale_comm* get() const { return allgather_.is_none() ? nullptr : &comm_; }

  // If the callback has raised, raises that.
  void raise_if_raised() {
    if (!raised_.is_valid()) return;
    const nb::object value = std::move(raised_);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
    throw nb::python_error();
  }

 private:
  static int gather(void* context, const void* send, void* receive, size_t bytes) {
    auto* const self = static_cast<Comm*>(context);
    const nb::gil_scoped_acquire with;
    try {
      // Neither buffer is changed through the view of `send`.
      auto* const out = static_cast<char*>(const_cast<void*>(send));
      const auto own = static_cast<Py_ssize_t>(bytes);
      self->allgather_(view(out, own, PyBUF_READ),
                       view(static_cast<char*>(receive), own * self->comm_.size, PyBUF_WRITE));
      return 0;
    } catch (nb::python_error& error) {
      self->raised_ = nb::borrow(error.value());
      return 1;
    }
  }
  static nb::object view(char* data, Py_ssize_t bytes, int flags) {
    nb::object made = nb::steal(PyMemoryView_FromMemory(data, bytes, flags));
    if (!made.is_valid()) throw nb::python_error();
    return made;
  }

  const nb::object allgather_;
  swale_comm comm_;
  nb::object raised_;
};

}  // namespace swale::python
